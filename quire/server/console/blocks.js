// The map of the KV blocks: a cell for each block in the order of their ids, or for many where they would be too small.
import { byId, element, setText } from "./dom.js";
import { count } from "./format.js";

const STATES = ["free", "used", "shared", "cached"];
const TALLEST = 168; // pixels
const LARGEST_CELL = 12;
const SMALLEST_CELL = 3;

// How N blocks are laid out in a width: the side of a cell, cells in a row, rows, and blocks in a cell.
export function layout(blocks, width) {
  const fit = Math.floor(Math.sqrt((width * TALLEST) / Math.max(blocks, 1)));
  for (let cell = Math.min(fit + 1, LARGEST_CELL); cell >= SMALLEST_CELL; cell -= 1) {
    const columns = Math.floor(width / cell);
    const rows = Math.ceil(blocks / columns);
    if (rows * cell <= TALLEST) return { cell, columns, rows, perCell: 1 };
  }
  const columns = Math.floor(width / SMALLEST_CELL);
  const perCell = Math.ceil(blocks / (columns * Math.floor(TALLEST / SMALLEST_CELL)));
  return { cell: SMALLEST_CELL, columns, rows: Math.ceil(blocks / perCell / columns), perCell };
}

export class BlockMap {
  #container = byId("blocks");
  #aside = byId("blocks-aside");
  #keys;
  #maps = new Map(); // replica -> ReplicaMap

  constructor() {
    this.#keys = STATES.map((state) => {
      const number = element("span", { className: "value" }, "–");
      const swatch = element("span", { className: `swatch state-${state}`, ariaHidden: "true" });
      byId("blocks-legend").append(element("li", {}, swatch, element("span", { className: "name" }, state), number));
      return { swatch, number };
    });
    new ResizeObserver(() => this.#redraw()).observe(this.#container);
    window.addEventListener("themechange", () => this.#redraw());
  }

  // `answer` is that of GET /stats/blocks.
  show({ replicas }) {
    const totals = [0, 0, 0, 0];
    for (const [replica, map] of this.#maps) {
      if (replicas.some((other) => other.replica === replica)) continue;
      map.element.remove();
      this.#maps.delete(replica);
    }
    for (const { replica, states } of replicas) {
      if (!this.#maps.has(replica)) {
        this.#maps.set(replica, new ReplicaMap(replica));
        this.#container.append(this.#maps.get(replica).element);
      }
      const map = this.#maps.get(replica);
      map.set(states, replicas.length > 1);
      map.counts.forEach((number, state) => (totals[state] += number));
    }
    totals.forEach((number, state) => setText(this.#keys[state].number, count(number)));
    const sum = totals.reduce((a, b) => a + b, 0);
    const size = replicas[0]?.block_size; // 0 before an engine's first step
    setText(this.#aside, `${count(sum)} blocks${size ? ` of ${size} tokens` : ""}`);
    this.#redraw();
  }

  #redraw() {
    // Canvas knows no CSS variables; the legend's swatches have the theme's colours.
    const colours = this.#keys.map(({ swatch }) => rgb(getComputedStyle(swatch).backgroundColor));
    for (const map of this.#maps.values()) map.draw(colours);
  }
}

function rgb(colour) {
  return colour.match(/[\d.]+/g).slice(0, 3).map(Number);
}

class ReplicaMap {
  counts = [0, 0, 0, 0];
  #replica;
  #encoded = null;
  #states = new Uint8Array();
  #canvas = element("canvas");
  #caption = element("figcaption");
  #drawn = "";

  constructor(replica) {
    this.#replica = replica;
    this.#canvas.setAttribute("role", "img");
    this.#canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => this.#point(offsetX, offsetY));
    this.#canvas.addEventListener("pointerleave", () => this.#name());
    this.element = element("figure", { className: "block-map" }, this.#canvas, this.#caption);
  }

  set(encoded, isNamed) {
    this.#caption.dataset.name = isNamed ? `Replica ${this.#replica}` : "";
    if (encoded === this.#encoded) return;
    this.#encoded = encoded;
    this.#states = Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0));
    this.counts = tally(this.#states);
    this.#drawn = "";
    const parts = STATES.map((state, index) => `${count(this.counts[index])} ${state}`);
    this.#canvas.setAttribute("aria-label", `Blocks of replica ${this.#replica}: ${parts.join(", ")}`);
    if (!this.#canvas.matches(":hover")) this.#name();
  }

  draw(colours) {
    const width = this.element.clientWidth;
    const ratio = window.devicePixelRatio;
    const picture = `${width} ${ratio} ${colours.join()}`;
    if (!width || picture === this.#drawn) return;
    this.#drawn = picture;
    const { cell, columns, rows, perCell } = layout(this.#states.length, width);
    const height = rows * cell;
    this.#canvas.width = width * ratio;
    this.#canvas.height = height * ratio;
    this.#canvas.style.height = `${height}px`;
    const context = this.#canvas.getContext("2d");
    context.scale(ratio, ratio);
    const side = cell > SMALLEST_CELL ? cell - 1 : cell;
    for (let at = 0, index = 0; index < this.#states.length; index += perCell, at += 1) {
      const counts = tally(this.#states.subarray(index, index + perCell));
      context.fillStyle = mixture(counts, colours);
      context.fillRect((at % columns) * cell, Math.floor(at / columns) * cell, side, side);
    }
  }

  #name() {
    setText(this.#caption, this.#caption.dataset.name);
  }

  #point(x, y) {
    const { cell, columns, perCell } = layout(this.#states.length, this.element.clientWidth);
    const first = (Math.floor(y / cell) * columns + Math.min(Math.floor(x / cell), columns - 1)) * perCell;
    if (first >= this.#states.length) return this.#name();
    const last = Math.min(first + perCell, this.#states.length) - 1;
    if (perCell === 1) return setText(this.#caption, `Block ${count(first)}: ${STATES[this.#states[first]]}`);
    const counts = tally(this.#states.subarray(first, last + 1));
    const parts = STATES.flatMap((state, index) => (counts[index] ? `${counts[index]} ${state}` : []));
    return setText(this.#caption, `Blocks ${count(first)} to ${count(last)}: ${parts.join(", ")}`);
  }
}

function tally(states) {
  const counts = [0, 0, 0, 0];
  for (const state of states) counts[state] += 1;
  return counts;
}

function mixture(counts, colours) {
  const sum = counts.reduce((a, b) => a + b, 0);
  const channels = [0, 1, 2].map((channel) =>
    Math.round(counts.reduce((total, number, state) => total + number * colours[state][channel], 0) / sum),
  );
  return `rgb(${channels.join(" ")})`;
}
