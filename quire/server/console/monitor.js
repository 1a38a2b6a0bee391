// Asks the server each second how it is, and hands the answer to everything that shows it.
import { ApiError } from "./api.js";
import { BlockMap } from "./blocks.js";
import { makeCharts } from "./charts.js";
import { byId, setText } from "./dom.js";
import { Engines } from "./engines.js";
import { age } from "./format.js";
import { History } from "./history.js";
import { RequestList } from "./requests.js";

const PERIOD = 1000; // milliseconds
const PERIOD_AWAY = 3000; // while the server does not answer

// Sends "reachable" on the first good answer, and on the first after the server was away.
export class Monitor extends EventTarget {
  #api;
  #history = new History();
  #charts = makeCharts();
  #blocks = new BlockMap();
  #requests = new RequestList();
  #engines = new Engines();
  #timer = null;
  #polling = false;
  #reachable = false;

  constructor(api) {
    super();
    this.#api = api;
    byId("charts").append(...this.#charts.map((chart) => chart.element));
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
      const stats = await this.#api.json("stats");
      this.#show(stats);
      this.#blocks.show(await this.#api.json("stats/blocks"));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#away(error);
    } finally {
      this.#polling = false;
      this.#timer = setTimeout(() => this.poll(), this.#reachable ? PERIOD : PERIOD_AWAY);
    }
  }

  #show(stats) {
    const now = performance.now();
    this.#history.add(now, stats);
    for (const chart of this.#charts) chart.draw(this.#history.samples, now);
    this.#requests.show(stats);
    this.#engines.show(stats);
    this.#showState(...stateOf(stats));
    setText(byId("status-detail"), `${stats.model} · up ${age(stats.uptime_seconds)} · ${stats.version}`);
    if (!this.#reachable) this.dispatchEvent(new Event("reachable"));
    this.#reachable = true;
  }

  #away(error) {
    this.#reachable = false;
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
  if (engines.some(({ state }) => state === "lost")) return ["lost", "Replacing an engine"];
  return ready ? ["ready", "Ready"] : ["waiting", "Starting"];
}
