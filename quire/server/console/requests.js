// The requests the server holds, oldest first, each with how far it is.
import { byId, element, setText } from "./dom.js";
import { age, count } from "./format.js";

const MOST_ROWS = 40; // what a reader can follow; the rest is a number

export class RequestList {
  #list = byId("requests");
  #aside = byId("requests-aside");
  #rows = new Map(); // id -> Row

  show({ requests, running, waiting, held }) {
    const shown = [...requests].sort((a, b) => b.age_seconds - a.age_seconds).slice(0, MOST_ROWS);
    const kept = new Set(shown.map(({ id }) => id));
    for (const [id, row] of this.#rows) {
      if (kept.has(id)) continue;
      row.element.remove();
      this.#rows.delete(id);
    }
    shown.forEach((request, index) => {
      if (!this.#rows.has(request.id)) this.#rows.set(request.id, new Row(request));
      const row = this.#rows.get(request.id);
      row.show(request);
      if (this.#list.children[index] !== row.element) this.#list.insertBefore(row.element, this.#list.children[index] ?? null);
    });
    const parts = [`${count(running)} running`, `${count(waiting)} waiting`];
    if (held) parts.push(`${count(held)} held`);
    if (requests.length > MOST_ROWS) parts.push(`oldest ${MOST_ROWS} shown`);
    setText(this.#aside, parts.join(" · "));
    this.#list.classList.toggle("empty", requests.length === 0);
  }

  // Gives each row the colour that its request has in the map.
  paint(colours) {
    for (const [id, row] of this.#rows) row.paint(colours.of(id));
  }
}

class Row {
  #swatch = element("span", { className: "swatch", ariaHidden: "true" });
  #status = element("span", { className: "request-status" });
  #age = element("span", { className: "request-age" });
  #tokens = element("span", { className: "request-tokens" });
  #progress;

  constructor({ id, tenant, endpoint, replica }) {
    this.#progress = element("progress", { ariaLabel: `Progress of request ${id}` });
    this.element = element(
      "li",
      {},
      element("span", { className: "request-name" }, this.#swatch, element("code", { className: "request-id" }, id)),
      this.#status,
      this.#age,
      this.#progress,
      element("span", { className: "request-from" }, `${endpoint} · ${tenant} · replica ${replica}`),
      this.#tokens,
    );
  }

  paint(place) {
    this.#swatch.className = place === null ? "swatch" : `swatch request-${place}`;
  }

  show({ status, prompt_tokens: prompt, output_tokens: output, max_tokens: most, age_seconds: seconds }) {
    setText(this.#status, status);
    this.#status.dataset.status = status;
    setText(this.#age, age(seconds));
    setText(this.#tokens, `${count(prompt)} in, ${count(output)}${most ? ` of ${count(most)}` : ""} out`);
    this.#progress.max = most || Math.max(output, 1);
    this.#progress.value = output;
  }
}
