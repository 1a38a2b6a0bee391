// Tells that an engine is being replaced, and that no answer is lost by it.
import { byId, setText } from "./dom.js";

const LINGER = 8000; // milliseconds for which a replacement that is over is still told: it may take less than a look

export const isReplaced = ({ state, restarts }) => state !== "ready" && restarts > 0;

export class Banner {
  #element = byId("banner");
  #restarts = null; // of all engines, when last heard
  #until = -Infinity;

  show(engines, now = performance.now()) {
    const restarts = engines.reduce((sum, engine) => sum + engine.restarts, 0);
    if (this.#restarts !== null && restarts > this.#restarts) this.#until = now + LINGER;
    this.#restarts = restarts;
    const text = textFor(engines) || (now < this.#until ? "The engine was restarted. Your answer continues." : "");
    setText(this.#element, text);
    this.#element.hidden = !text;
  }
}

function textFor(engines) {
  const replaced = engines.filter(isReplaced);
  if (!replaced.length) return "";
  if (replaced.some(({ state }) => state === "lost")) return "An engine fails again and again. It is still being restarted; the server's log says why.";
  if (replaced.length < engines.length) return `Engine ${replaced[0].replica} is restarting. Your answer continues on another.`;
  return "The engine is restarting. Your answer continues when it is back.";
}
