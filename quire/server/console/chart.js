// A chart of one or two lines over the last minutes, drawn as SVG, with its figures as text.
import { element, setText } from "./dom.js";
import { SPAN } from "./history.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300; // of the drawing's own units; it is stretched to its place
const HEIGHT = 100;
const LONGEST_STEP = 5000; // milliseconds without a sample after which the line is broken

function svg(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// The next of 1, 2, 5, 10, … that is not below the value.
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((digit) => digit * power).find((bound) => bound >= value * 0.999999);
}

// `lines` is [{name, pick: stats => number|null}]; `format` writes a value; `smallest` is the least upper bound of the axis.
export class Chart {
  #title;
  #lines;
  #format;
  #smallest;
  #top = element("span", { className: "axis-top", ariaHidden: "true" });
  #drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  #cursor = svg("path", { class: "cursor" });
  #samples = [];
  #now = 0;
  #pointed = null; // share of the width under the pointer

  constructor({ title, lines, format, smallest }) {
    this.#title = title;
    this.#format = format;
    this.#smallest = smallest;
    this.#lines = lines.map((line, index) => ({
      ...line,
      path: svg("path", { class: `line line-${index}` }),
      area: index === 0 ? svg("path", { class: "area" }) : null,
      value: element("span", { className: "value" }, "–"),
    }));
    this.element = this.#build();
  }

  #build() {
    const grid = svg("path", { class: "grid", d: `M0 .5H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}M0 ${HEIGHT - 0.5}H${WIDTH}` });
    const areas = this.#lines.flatMap(({ area }) => area ?? []);
    this.#drawing.append(grid, ...areas, ...this.#lines.map(({ path }) => path), this.#cursor);
    const keys = this.#lines.map(({ name, value }, index) =>
      element("li", { className: `key key-${index}` }, element("span", { className: "name" }, name), value),
    );
    const plot = element("div", { className: "plot" }, this.#drawing, this.#top);
    plot.addEventListener("pointermove", ({ offsetX }) => this.#point(offsetX / plot.clientWidth));
    plot.addEventListener("pointerleave", () => this.#point(null));
    return element(
      "figure",
      { className: "chart" },
      element("figcaption", {}, this.#title),
      element("ul", { className: "keys" }, ...keys),
      plot,
    );
  }

  draw(samples, now) {
    this.#samples = samples;
    this.#now = now;
    const columns = this.#lines.map(({ pick }) => samples.map(({ stats }) => pick(stats) ?? null));
    const highest = Math.max(0, ...columns.flat().filter((value) => value !== null));
    const top = roundUp(Math.max(highest, this.#smallest));
    setText(this.#top, this.#format(top));
    this.#lines.forEach(({ path, area }, index) => {
      const runs = this.#runs(columns[index], top);
      path.setAttribute("d", runs.map((run) => `M${run.join("L")}`).join(""));
      const below = (run) => `M${run[0][0]} ${HEIGHT}L${run.join("L")}L${run.at(-1)[0]} ${HEIGHT}Z`;
      area?.setAttribute("d", runs.map(below).join(""));
    });
    this.#describe(columns);
    this.#showValues();
  }

  // The points of a line, in pieces where it has gaps.
  #runs(values, top) {
    const runs = [];
    let previous = null;
    values.forEach((value, index) => {
      if (value === null) return;
      const { time } = this.#samples[index];
      if (previous === null || previous.index !== index - 1 || time - previous.time > LONGEST_STEP) runs.push([]);
      const x = WIDTH * (1 - (this.#now - time) / SPAN);
      const y = HEIGHT - (HEIGHT - 2) * (value / top) - 1;
      runs.at(-1).push([x.toFixed(1), y.toFixed(1)]);
      previous = { index, time };
    });
    return runs;
  }

  #describe(columns) {
    const parts = this.#lines.map(({ name }, index) => {
      const known = columns[index].filter((value) => value !== null);
      if (!known.length) return `${name}: nothing yet`;
      const [low, high] = [Math.min(...known), Math.max(...known)];
      const now = columns[index].at(-1);
      return `${name}: now ${this.#format(now)}, between ${this.#format(low)} and ${this.#format(high)}`;
    });
    this.#drawing.setAttribute("aria-label", `${this.#title} over three minutes. ${parts.join(". ")}.`);
  }

  #point(share) {
    this.#pointed = share;
    this.#showValues();
  }

  // Figures of the sample under the pointer, or else of the newest.
  #showValues() {
    const pointed = this.#pointed === null ? null : this.#sampleAt(this.#now - SPAN * (1 - this.#pointed));
    const shown = pointed ?? this.#samples.at(-1);
    if (!shown) return;
    for (const { pick, value } of this.#lines) setText(value, this.#format(pick(shown.stats) ?? null));
    const x = pointed ? WIDTH * (1 - (this.#now - pointed.time) / SPAN) : null;
    this.#cursor.setAttribute("d", x === null ? "" : `M${x} 0V${HEIGHT}`);
  }

  #sampleAt(time) {
    const distance = (sample) => Math.abs(sample.time - time);
    const nearest = this.#samples.reduce((best, sample) => (distance(sample) < distance(best) ? sample : best), this.#samples[0]);
    return nearest && distance(nearest) < LONGEST_STEP ? nearest : null;
  }
}
