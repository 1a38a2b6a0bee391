// LoRA adapters: how many are where, how often requests found theirs on the device, and a row for each that is known.
// Servers without adapters have no such part.
import { makeAdapterCharts } from "./charts.js";
import { byId, element, setText } from "./dom.js";
import { count } from "./format.js";

const FIGURES = [
  ["on the device", "on_device"],
  ["in host memory", "on_host"],
  ["waiting for room", "waiting"],
  ["hits", "hits"],
  ["loads", "loads"],
  ["evictions", "evictions"],
];
const PLACES = { device: "device", host: "host memory", disk: "disk" };

export class Adapters {
  #section = byId("adapters-section");
  #aside = byId("adapters-aside");
  #body = byId("adapters");
  #charts = makeAdapterCharts();
  #values = FIGURES.map(() => element("dd"));

  constructor() {
    const pairs = FIGURES.map(([name], index) => element("div", {}, element("dt", {}, name), this.#values[index]));
    byId("adapters-figures").append(...pairs);
    byId("adapters-charts").append(...this.#charts.map((chart) => chart.element));
  }

  // Whether the server has adapters, as far as it has told.
  get isShown() {
    return !this.#section.hidden;
  }

  // `stats` is the answer of GET /stats.
  show({ lora }) {
    this.#section.hidden = !lora;
    if (lora) FIGURES.forEach(([, figure], index) => setText(this.#values[index], count(lora[figure])));
  }

  draw(samples, now, span) {
    if (this.isShown) for (const chart of this.#charts) chart.draw(samples, now, span);
  }

  // `replicas` is that of the answer of GET /stats/adapters.
  list({ replicas }) {
    const rows = replicas.flatMap(({ replica, adapters }) => adapters.map((adapter) => cellsOf(adapter, replica, replicas.length > 1)));
    while (this.#body.rows.length > rows.length) this.#body.deleteRow(-1);
    rows.forEach((texts, index) => {
      const row = this.#body.rows[index] ?? this.#addRow();
      texts.forEach((text, column) => setText(row.cells[column], text));
    });
    const leftOut = replicas.reduce((sum, each) => sum + each.left_out, 0);
    this.#body.parentElement.hidden = !rows.length;
    const known = leftOut ? `${count(leftOut)} more are not shown · ` : "";
    setText(this.#aside, rows.length ? `${known}hits, loads and evictions since the start` : "none was asked for yet");
  }

  #addRow() {
    const row = element("tr", {}, element("th", { scope: "row" }), ...Array.from({ length: 3 }, () => element("td")));
    this.#body.append(row);
    return row;
  }
}

function cellsOf({ name, place, running, waiting }, replica, isNamed) {
  const where = isNamed ? `${PLACES[place]}, replica ${replica}` : PLACES[place];
  return [name, where, count(running), count(waiting)];
}
