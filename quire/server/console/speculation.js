// Speculation: how much is drafted, and how much of it is right. Servers that draft nothing have no such part.
import { makeSpeculationCharts } from "./charts.js";
import { byId, setText } from "./dom.js";
import { count, share } from "./format.js";

export class Speculation {
  #section = byId("speculation-section");
  #aside = byId("speculation-aside");
  #charts = makeSpeculationCharts();

  constructor() {
    byId("speculation-charts").append(...this.#charts.map((chart) => chart.element));
  }

  // `stats` is the answer of GET /stats.
  show({ speculation }) {
    this.#section.hidden = !speculation;
    if (speculation) setText(this.#aside, `${speculation.method} · ${sinceStart(speculation)}`);
  }

  draw(samples, now, span) {
    if (!this.#section.hidden) for (const chart of this.#charts) chart.draw(samples, now, span);
  }
}

function sinceStart({ draft_tokens: tokens, accepted_tokens: accepted }) {
  return tokens ? `${share(accepted / tokens)} of ${count(tokens)} drafted tokens accepted` : "no drafts yet";
}
