// How one turn of the conversation looks: a question, or an answer with its figures and what can be done with it.
import { copyButton } from "./copy.js";
import { element, setText } from "./dom.js";
import { duration, count, rate } from "./format.js";
import { renderMarkdown } from "./markdown.js";
import { mediaView } from "./media.js";
import { ToolCalls } from "./tool_calls.js";

const ENDINGS = {
  length: "cut off at the token limit",
  content_filter: "cut off by a filter",
  stopped: "stopped",
};

export function questionView({ text, media = [] }) {
  const parts = media.map(mediaView);
  if (text) parts.push(element("p", {}, text));
  return element(
    "article",
    { className: "turn question", ariaLabel: "You" },
    element("h3", { className: "who" }, "You"),
    element("div", { className: "text" }, ...parts),
  );
}

// An answer that may still grow. `onRegenerate` is called when its button is pressed, `onResults` with what tools gave back.
export class AnswerView {
  #text = element("div", { className: "text" });
  #thoughts = element("p");
  #thinking = element("summary");
  #reasoning = element("details", { className: "reasoning", hidden: true }, this.#thinking, this.#thoughts);
  #calls;
  #error = element("div", { className: "error", hidden: true });
  #figures = element("p", { className: "figures" });
  #actions = element("div", { className: "actions" });
  #frame = null;

  constructor(model, onRegenerate, onResults) {
    this.#calls = new ToolCalls(onResults);
    this.element = element(
      "article",
      { className: "turn answer", ariaLabel: model },
      element("h3", { className: "who" }, model),
      this.#reasoning,
      this.#text,
      this.#calls.element,
      this.#error,
      element("footer", {}, this.#figures, this.#actions),
    );
    const regenerate = element("button", { type: "button", className: "quiet regenerate" }, "Regenerate");
    regenerate.addEventListener("click", onRegenerate);
    this.#actions.append(copyButton(() => this.#text.dataset.source ?? "", "Copy answer"), regenerate);
  }

  // Draws at most once a frame, however fast tokens come.
  grow(turn, onDrawn) {
    this.element.classList.add("growing");
    this.element.ariaBusy = "true";
    this.#reasoning.open = turn.isThinking; // thoughts are read while they come, and folded when the answer begins
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      this.#draw(turn);
      onDrawn();
    });
  }

  // The answer as it ended: `turn` as the conversation keeps it.
  end(turn) {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#frame = null;
    this.element.classList.remove("growing");
    this.element.ariaBusy = null;
    this.#draw(turn);
    this.#reasoning.open = Boolean(turn.reasoning) && !turn.text && !turn.calls?.length;
    this.#figures.textContent = figuresLine(turn);
    if (turn.error) this.#showError(turn.error);
  }

  // The model waits for what its calls give back.
  askForResults(calls) {
    this.#calls.ask(calls);
  }

  // The conversation has gone on.
  close() {
    this.#calls.close();
  }

  #draw({ text, reasoning, calls = [], isThinking = false, thoughtSeconds = null }) {
    renderMarkdown(this.#text, text);
    this.#text.dataset.source = text;
    this.#reasoning.hidden = !reasoning;
    this.#thoughts.textContent = reasoning;
    const ended = thoughtSeconds === null ? "Thoughts" : `Thought for ${duration(thoughtSeconds)}`;
    setText(this.#thinking, isThinking ? "Thinking" : ended);
    this.#calls.show(calls);
  }

  #showError({ message, requestId }) {
    this.#error.hidden = false;
    this.#error.setAttribute("role", "alert");
    this.#error.replaceChildren(element("p", {}, message));
    if (requestId) this.#error.append(element("p", { className: "request-id" }, "Request ", element("code", {}, requestId)));
  }
}

function figuresLine({ figures, ending }) {
  const parts = [];
  if (figures?.tokens) {
    parts.push(`${figures.exact ? "" : "about "}${count(figures.tokens)} token${figures.tokens === 1 ? "" : "s"}`);
    if (figures.rate !== null) parts.push(`${rate(figures.rate)} tokens/s`);
    parts.push(`first after ${duration(figures.firstToken)}`);
  }
  if (ENDINGS[ending]) parts.push(ENDINGS[ending]);
  return parts.join(" · ");
}
