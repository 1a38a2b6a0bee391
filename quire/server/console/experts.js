// The map of experts: a row for each layer that has some and a cell for each expert, the stronger the more of the last
// seconds' tokens chose it. Models without experts have no map, and are not asked about it again.
import { byId, element, setText } from "./dom.js";
import { rate } from "./format.js";

const FULL = 3; // times the tokens of an average expert, from which on a cell has its whole colour
const TALLEST_CELL = 12; // pixels
const SMALLEST_CELL = 3;

export class ExpertMap {
  #section = byId("experts-section");
  #container = byId("experts");
  #aside = byId("experts-aside");
  #maps = new Map(); // replica -> ReplicaMap
  #swatches = ["state-free", "state-used"].map((name) => element("span", { className: `swatch ${name}` }));
  isOfUse = true; // whether the server has told of no engine without experts

  constructor() {
    // Canvas knows no CSS variables: these have the theme's colours, and are never seen.
    byId("experts-legend").after(element("div", { hidden: true }, ...this.#swatches));
    new ResizeObserver(() => this.#redraw()).observe(this.#container);
    window.addEventListener("themechange", () => this.#redraw());
  }

  // `answer` is that of GET /stats/experts.
  show({ replicas }) {
    this.isOfUse = replicas.length > 0;
    this.#section.hidden = !this.isOfUse;
    for (const [replica, map] of this.#maps) {
      if (replicas.some((other) => other.replica === replica)) continue;
      map.element.remove();
      this.#maps.delete(replica);
    }
    for (const answer of replicas) {
      if (!this.#maps.has(answer.replica)) {
        this.#maps.set(answer.replica, new ReplicaMap(answer.replica));
        this.#container.append(this.#maps.get(answer.replica).element);
      }
      this.#maps.get(answer.replica).set(answer, replicas.length > 1);
    }
    const largest = replicas.flatMap(({ shares }) => shares.map((layer) => Math.max(...layer)));
    const busiest = Math.max(0, ...largest);
    setText(this.#aside, busiest ? `busiest expert: ${rate(busiest)} × an average one` : "no tokens yet");
    this.#redraw();
  }

  #redraw() {
    const colours = this.#swatches.map((swatch) => getComputedStyle(swatch).backgroundColor);
    for (const map of this.#maps.values()) map.draw(colours);
  }
}

class ReplicaMap {
  #replica;
  #name = "";
  #layers = [];
  #shares = [];
  #canvas = element("canvas");
  #caption = element("figcaption");

  constructor(replica) {
    this.#replica = replica;
    this.#canvas.setAttribute("role", "img");
    this.#canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => this.#point(offsetX, offsetY));
    this.#canvas.addEventListener("pointerleave", () => setText(this.#caption, this.#name));
    this.element = element("figure", { className: "block-map" }, this.#canvas, this.#caption);
  }

  set({ layers, shares }, isNamed) {
    this.#name = isNamed ? `Replica ${this.#replica}` : "";
    this.#layers = layers;
    this.#shares = shares;
    const worst = shares.map((layer) => Math.max(...layer)).reduce((best, each, at, all) => (each > all[best] ? at : best), 0);
    const most = rate(Math.max(...shares[worst]));
    const text = `${layers.length} layers of ${shares[0].length} experts; the busiest, in layer ${layers[worst]}, has ${most} times an average one's tokens`;
    this.#canvas.setAttribute("aria-label", `Experts of replica ${this.#replica}: ${text}`);
  }

  #cell() {
    const width = this.element.clientWidth / (this.#shares[0]?.length ?? 1);
    return { width, height: Math.max(SMALLEST_CELL, Math.min(TALLEST_CELL, Math.floor(width))) };
  }

  draw([ground, colour]) {
    const ratio = window.devicePixelRatio;
    const { width, height } = this.#cell();
    if (!width) return;
    this.#canvas.width = this.element.clientWidth * ratio;
    this.#canvas.height = this.#shares.length * height * ratio;
    this.#canvas.style.height = `${this.#shares.length * height}px`;
    const context = this.#canvas.getContext("2d");
    context.scale(ratio, ratio);
    const gap = width > SMALLEST_CELL ? 1 : 0;
    context.fillStyle = ground;
    context.fillRect(0, 0, this.element.clientWidth, this.#shares.length * height);
    context.fillStyle = colour;
    this.#shares.forEach((layer, row) =>
      layer.forEach((share, expert) => {
        if (!share) return;
        context.globalAlpha = Math.min(share / FULL, 1);
        context.fillRect(expert * width, row * height, width - gap, height - (height > SMALLEST_CELL ? 1 : 0));
      }),
    );
  }

  #point(x, y) {
    const { width, height } = this.#cell();
    const row = Math.min(Math.floor(y / height), this.#shares.length - 1);
    const expert = Math.min(Math.floor(x / width), this.#shares[row].length - 1);
    const share = rate(this.#shares[row][expert]);
    setText(this.#caption, `Layer ${this.#layers[row]}, expert ${expert}: ${share} × the tokens of an average expert`);
  }
}
