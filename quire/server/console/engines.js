// The engine processes, the memory they and the front hold, and what was done since the start.
import { byId, element, setText } from "./dom.js";
import { bytes, count, duration, share } from "./format.js";

export class Engines {
  #body = byId("engines");
  #memory = byId("memory");
  #totals = byId("totals");

  show({ engines, memory, totals }) {
    while (this.#body.rows.length > engines.length) this.#body.deleteRow(-1);
    engines.forEach((engine, index) => {
      const row = this.#body.rows[index] ?? this.#addRow();
      row.dataset.state = engine.state;
      cellsOf(engine).forEach((text, column) => setText(row.cells[column], text));
    });
    setText(this.#memory, memoryLine(memory));
    const errors = totals.errors ? ` · ${count(totals.errors)} errors` : "";
    setText(this.#totals, `${count(totals.requests)} requests · ${count(totals.generation_tokens)} tokens since the start${errors}`);
  }

  #addRow() {
    const cells = Array.from({ length: 7 }, () => element("td"));
    const row = element("tr", {}, element("th", { scope: "row" }), ...cells);
    const names = this.#body.parentElement.tHead.rows[0].cells;
    for (const cell of row.cells) cell.dataset.name = names[cell.cellIndex].textContent; // shown beside it on narrow pages
    this.#body.append(row);
    return row;
  }
}

function cellsOf({ replica, state, pid, restarts, running, waiting, utilisation, step, step_seconds: seconds }) {
  const steps = `${count(step)} · ${duration(seconds)}`;
  return [String(replica), state, String(pid), count(restarts), count(running), count(waiting), share(utilisation), steps];
}

function memoryLine({ front_bytes: front, engine_bytes: engine, device_bytes: device, device_total: total }) {
  const parts = [`front ${bytes(front)}`, `engines ${bytes(engine)}`];
  if (total) parts.push(`device ${bytes(device)} of ${bytes(total)}`);
  return parts.join(" · ");
}
