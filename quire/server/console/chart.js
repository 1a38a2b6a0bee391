// A chart of one or two lines over the last minutes, drawn as SVG, with its figures as text.
import { element, setText } from "./dom.js";
import { age } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300; // of the drawing's own units; it is stretched to its place
const HEIGHT = 100;
const LONGEST_STEP = 5000; // milliseconds without a sample after which the line is broken
const ENDS = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];

function svg(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// The next round number that is not below the value; never more than half again as much.
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return ENDS.map((digit) => digit * power).find((bound) => bound >= value * 0.999999);
}

// `lines` is [{name, figure}], where `figure` names a sample's; `format` writes a value; `smallest` is the least upper
// bound of the axis.
export class Chart {
  #title;
  #lines;
  #format;
  #smallest;
  #top = element("span", { className: "axis-top", ariaHidden: "true" });
  #begin = element("span");
  #drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  #cursor = svg("path", { class: "cursor" });
  #samples = [];
  #now = 0;
  #span = 1;
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
      element("p", { className: "axis-time", ariaHidden: "true" }, this.#begin, element("span", {}, "now")),
    );
  }

  // `span` is how many milliseconds are shown.
  draw(samples, now, span) {
    const first = samples.findIndex(({ time }) => time >= now - span);
    this.#samples = first === -1 ? [] : samples.slice(Math.max(first - 1, 0));
    this.#now = now;
    this.#span = span;
    const columns = this.#lines.map(({ figure }) => this.#samples.map((sample) => sample[figure] ?? null));
    const highest = Math.max(0, ...columns.flat().filter((value) => value !== null));
    const top = roundUp(Math.max(highest, this.#smallest));
    setText(this.#top, this.#format(top));
    setText(this.#begin, `${age(span / 1000)} ago`);
    this.#lines.forEach(({ path, area }, index) => {
      const runs = this.#runs(columns[index], top);
      path.setAttribute("d", runs.map((run) => `M${run.join("L")}`).join(""));
      const below = (run) => `M${run[0][0]} ${HEIGHT}L${run.join("L")}L${run.at(-1)[0]} ${HEIGHT}Z`;
      area?.setAttribute("d", runs.map(below).join(""));
    });
    this.#describe(columns);
    this.#showValues();
  }

  #x(time) {
    return Math.max(0, WIDTH * (1 - (this.#now - time) / this.#span));
  }

  // The points of a line, in pieces where it has gaps.
  #runs(values, top) {
    const runs = [];
    let previous = null;
    values.forEach((value, index) => {
      if (value === null) return;
      const { time } = this.#samples[index];
      if (previous === null || previous.index !== index - 1 || time - previous.time > LONGEST_STEP) runs.push([]);
      const y = HEIGHT - (HEIGHT - 2) * (value / top) - 1;
      runs.at(-1).push([this.#x(time).toFixed(1), y.toFixed(1)]);
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
    this.#drawing.setAttribute("aria-label", `${this.#title} over ${age(this.#span / 1000)}. ${parts.join(". ")}.`);
  }

  #point(share) {
    this.#pointed = share;
    this.#showValues();
  }

  // Figures of the sample under the pointer, or else of the newest.
  #showValues() {
    const pointed = this.#pointed === null ? null : this.#sampleAt(this.#now - this.#span * (1 - this.#pointed));
    const shown = pointed ?? this.#samples.at(-1);
    if (!shown) return;
    for (const { figure, value } of this.#lines) setText(value, this.#format(shown[figure] ?? null));
    this.#cursor.setAttribute("d", pointed ? `M${this.#x(pointed.time)} 0V${HEIGHT}` : "");
  }

  #sampleAt(time) {
    const distance = (sample) => Math.abs(sample.time - time);
    const nearest = this.#samples.reduce((best, sample) => (distance(sample) < distance(best) ? sample : best), this.#samples[0]);
    return nearest && distance(nearest) < LONGEST_STEP ? nearest : null;
  }
}
