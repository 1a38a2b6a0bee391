// Asks the server each second how it is, and hands the answer to everything that shows it.
import { Adapters } from "./adapters.js";
import { ApiError } from "./api.js";
import { Banner, isReplaced } from "./banner.js";
import { BlockMap } from "./blocks.js";
import { makeCharts } from "./charts.js";
import { byId, setText } from "./dom.js";
import { Engines } from "./engines.js";
import { ExpertMap } from "./experts.js";
import { age } from "./format.js";
import { History } from "./history.js";
import { RequestColours } from "./request_colours.js";
import { RequestList } from "./requests.js";
import { Speculation } from "./speculation.js";

const PERIOD = 1000; // milliseconds
const PERIOD_AWAY = 3000; // while the server does not answer

// Sends "reachable" on the first good answer, and on the first after the server was away.
export class Monitor extends EventTarget {
  #api;
  #history = new History();
  #charts = makeCharts();
  #colours = new RequestColours();
  #blocks = new BlockMap(this.#colours);
  #experts = new ExpertMap();
  #adapters = new Adapters();
  #speculation = new Speculation();
  #requests = new RequestList();
  #engines = new Engines();
  #banner = new Banner();
  #timer = null;
  #polling = false;
  #reachable = false;

  constructor(api) {
    super();
    this.#api = api;
    byId("charts").append(...this.#charts.map((chart) => chart.element));
    byId("span").addEventListener("change", () => this.#draw());
  }

  start() {
    document.addEventListener("visibilitychange", () => this.poll()); // a hidden page asks nothing
    this.poll();
  }

  async poll() {
    clearTimeout(this.#timer);
    if (this.#polling || document.hidden) return;
    this.#polling = true;
    try {
      if (this.#history.isStale(performance.now())) this.#history.seed(await this.#api.json("stats/history"), performance.now());
      this.#show(await this.#api.json("stats"));
      this.#blocks.show(await this.#api.json("stats/blocks"));
      if (this.#experts.isOfUse) this.#experts.show(await this.#api.json("stats/experts"));
      if (this.#adapters.isShown) this.#adapters.list(await this.#api.json("stats/adapters"));
      this.#requests.paint(this.#colours);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#away(error);
    } finally {
      this.#polling = false;
      this.#timer = setTimeout(() => this.poll(), this.#reachable ? PERIOD : PERIOD_AWAY);
    }
  }

  #show(stats) {
    this.#history.add(performance.now(), stats);
    this.#adapters.show(stats);
    this.#speculation.show(stats);
    this.#draw();
    this.#requests.show(stats);
    this.#engines.show(stats);
    this.#banner.show(stats.engines);
    this.#showState(...stateOf(stats));
    setText(byId("status-detail"), `${stats.model} · up ${age(stats.uptime_seconds)} · ${stats.version}`);
    if (!this.#reachable) this.dispatchEvent(new Event("reachable"));
    this.#reachable = true;
  }

  #draw() {
    const span = 1000 * Number(byId("span").value);
    for (const each of [...this.#charts, this.#speculation, this.#adapters]) each.draw(this.#history.samples, performance.now(), span);
  }

  #away(error) {
    this.#reachable = false;
    this.#experts.isOfUse = true; // it may come back with another model
    if (error.status === 401) this.#showState("locked", "Needs a key");
    else if (error.status) this.#showState("lost", `Answered ${error.status}`);
    else this.#showState("lost", "Not reachable");
  }

  #showState(state, text) {
    byId("status").dataset.state = state;
    setText(byId("status-text"), text);
  }
}

function stateOf({ ready, draining, engines }) {
  if (draining) return ["waiting", "Draining"];
  if (engines.some(isReplaced)) return ["lost", "Restarting"];
  return ready ? ["ready", "Ready"] : ["waiting", "Starting"];
}
