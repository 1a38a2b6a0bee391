// The map of the KV blocks: a cell for each block in the order of their ids, or for many where they would be too small.
// Blocks that one request has are in its colour.
import { SMALLEST_CELL, expand, layout, shownBlocks } from "./block_layout.js";
import { byId, element, setText } from "./dom.js";
import { count } from "./format.js";
import { PALETTE } from "./request_colours.js";

const STATES = ["free", "cached", "shared", "used"]; // values below OWNED, in the server's order
const [FREE, CACHED, , USED] = [0, 1, 2, 3];
const OWNED = 4; // from here on, a value is a place among the requests
const FAINTEST = 0.55; // of its colour, of a cell where one block of many is touched

const stateOf = (value) => Math.min(value, USED);

export class BlockMap {
  #colours;
  #container = byId("blocks");
  #aside = byId("blocks-aside");
  #keys;
  #maps = new Map(); // replica -> ReplicaMap
  #swatches = [...STATES.map((state) => `state-${state}`), ...Array.from({ length: PALETTE }, (_, place) => `request-${place}`)].map(
    (name) => element("span", { className: `swatch ${name}` }),
  );

  constructor(colours) {
    this.#colours = colours;
    this.#keys = STATES.map((state) => {
      const number = element("span", { className: "value" }, "–");
      const swatch = element("span", { className: `swatch legend-${state}`, ariaHidden: "true" });
      const name = element("span", { className: "name" }, state === "used" ? "used, a colour a request" : state);
      byId("blocks-legend").append(element("li", {}, swatch, number, name));
      return number;
    });
    // Canvas knows no CSS variables: these have the theme's colours, and are never seen.
    byId("blocks-legend").after(element("div", { hidden: true }, ...this.#swatches));
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
    this.#colours.keep(replicas.flatMap(({ requests }) => requests.filter((id) => id !== null)));
    for (const answer of replicas) {
      if (!this.#maps.has(answer.replica)) {
        this.#maps.set(answer.replica, new ReplicaMap(answer.replica));
        this.#container.append(this.#maps.get(answer.replica).element);
      }
      const map = this.#maps.get(answer.replica);
      map.set(answer, this.#colours, replicas.length > 1);
      map.counts.forEach((number, state) => (totals[state] += number));
    }
    totals.forEach((number, state) => setText(this.#keys[state], count(number)));
    const sum = totals.reduce((a, b) => a + b, 0);
    const size = replicas[0]?.block_size; // 0 before an engine's first step
    setText(this.#aside, `${count(sum)} blocks${size ? ` of ${size} tokens` : ""}`);
    this.#redraw();
  }

  #redraw() {
    const colours = this.#swatches.map((swatch) => rgb(getComputedStyle(swatch).backgroundColor));
    for (const map of this.#maps.values()) map.draw(colours);
  }
}

function rgb(colour) {
  return colour.match(/[\d.]+/g).slice(0, 3).map(Number);
}

class ReplicaMap {
  counts = [0, 0, 0, 0];
  #replica;
  #name = "";
  #heard = null;
  #values = new Uint32Array();
  #touched = 0; // blocks up to the last that is not free
  #requests = [];
  #paints = []; // place of each value's colour
  #canvas = element("canvas");
  #caption = element("figcaption");
  #drawn = "";

  constructor(replica) {
    this.#replica = replica;
    this.#canvas.setAttribute("role", "img");
    this.#canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => this.#point(offsetX, offsetY));
    this.#canvas.addEventListener("pointerleave", () => this.#rest());
    this.element = element("figure", { className: "block-map" }, this.#canvas, this.#caption);
  }

  set({ num_blocks: blocks, runs, requests }, colours, isNamed) {
    this.#name = isNamed ? `Replica ${this.#replica}` : "";
    this.#requests = requests;
    this.#paints = [0, 1, 2, 3, ...requests.map((id) => (id === null ? USED : OWNED + colours.of(id)))];
    const heard = `${blocks} ${runs} ${this.#paints}`;
    if (heard === this.#heard) return;
    this.#heard = heard;
    this.#values = expand(runs, blocks);
    this.#touched = this.#values.findLastIndex((value) => value !== FREE) + 1;
    this.counts = tally(this.#values);
    this.#drawn = "";
    const parts = STATES.map((state, index) => `${count(this.counts[index])} ${state}`);
    this.#canvas.setAttribute("aria-label", `Blocks of replica ${this.#replica}: ${parts.join(", ")}`);
  }

  #plan() {
    const width = this.element.clientWidth;
    const shown = shownBlocks(this.#values.length, this.#touched, width);
    return { width, shown, ...layout(shown, width) };
  }

  draw(colours) {
    const ratio = window.devicePixelRatio;
    const { width, shown, cell, columns, rows, perCell } = this.#plan();
    const picture = `${width} ${ratio} ${colours.join()}`;
    if (!width || picture === this.#drawn) return;
    this.#drawn = picture;
    const height = rows * cell;
    this.#canvas.width = width * ratio;
    this.#canvas.height = height * ratio;
    this.#canvas.style.height = `${height}px`;
    const context = this.#canvas.getContext("2d");
    context.scale(ratio, ratio);
    const side = cell > SMALLEST_CELL ? cell - 1 : cell;
    for (let at = 0, index = 0; index < shown; index += perCell, at += 1) {
      context.fillStyle = this.#paint(this.#values.subarray(index, Math.min(index + perCell, shown)), colours);
      context.fillRect((at % columns) * cell, Math.floor(at / columns) * cell, side, side);
    }
    if (!this.#canvas.matches(":hover")) this.#rest();
  }

  // The colour of a cell: what most of its busy blocks are, or else cached, on what the others are.
  #paint(values, colours) {
    if (values.length === 1) return css(colours[this.#paints[values[0]]]);
    const busy = values.filter((value) => value > CACHED);
    const touched = busy.length ? busy : values.filter((value) => value === CACHED);
    if (!touched.length) return css(colours[FREE]);
    const ground = colours[busy.length && values.includes(CACHED) ? CACHED : FREE];
    const strength = FAINTEST + (1 - FAINTEST) * (touched.length / values.length);
    const colour = colours[this.#paints[mostFrequent(touched)]];
    return css(colour.map((channel, index) => Math.round(strength * channel + (1 - strength) * ground[index])));
  }

  #rest() {
    const { shown } = this.#plan();
    const rest = this.#values.length - shown;
    const part = rest ? `First ${count(shown)} of ${count(this.#values.length)} blocks; the rest is free.` : "";
    setText(this.#caption, [this.#name, part].filter(Boolean).join(" · "));
  }

  #point(x, y) {
    const { shown, cell, columns, perCell } = this.#plan();
    const first = (Math.floor(y / cell) * columns + Math.min(Math.floor(x / cell), columns - 1)) * perCell;
    if (first >= shown) return this.#rest();
    const last = Math.min(first + perCell, shown) - 1;
    if (perCell === 1) return setText(this.#caption, `Block ${count(first + 1)}: ${this.#describe(this.#values[first])}`);
    const counts = tally(this.#values.subarray(first, last + 1));
    const parts = STATES.flatMap((state, index) => (counts[index] ? `${counts[index]} ${state}` : []));
    return setText(this.#caption, `Blocks ${count(first + 1)} to ${count(last + 1)}: ${parts.join(", ")}`);
  }

  #describe(value) {
    const id = value < OWNED ? null : this.#requests[value - OWNED];
    return id === null ? STATES[stateOf(value)] : `used by ${id}`;
  }
}

function tally(values) {
  const counts = [0, 0, 0, 0];
  for (const value of values) counts[stateOf(value)] += 1;
  return counts;
}

function mostFrequent(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].reduce((best, entry) => (entry[1] > best[1] ? entry : best))[0];
}

const css = (channels) => `rgb(${channels.join(" ")})`;
