// Calls of tools as an answer shows them, and a form for what the tools gave back.
import { copyButton } from "./copy.js";
import { element } from "./dom.js";

export class ToolCalls {
  element = element("div", { className: "calls", hidden: true });
  #onResults;
  #shown = [];

  // `onResults` is called with what the reader wrote as the results: [{id, name, text}].
  constructor(onResults) {
    this.#onResults = onResults;
  }

  // `calls` is [{id, name, arguments}]; the last may still grow.
  show(calls) {
    this.element.hidden = !calls.length;
    calls.forEach((call, index) => {
      if (!this.#shown[index]) {
        this.#shown[index] = new CallView();
        this.element.append(this.#shown[index].element);
      }
      this.#shown[index].show(call);
    });
  }

  // Asks for results: the model waits for them.
  ask(calls) {
    const field = (name) => element("textarea", { rows: 1, required: true, placeholder: `What ${name} gave back`, ariaLabel: `Result of ${name}` });
    const fields = calls.map(({ name }) => field(name));
    const send = element("button", { type: "submit", className: "quiet" }, calls.length > 1 ? "Send results" : "Send result");
    const form = element("form", { className: "results" }, ...fields, send);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      form.remove();
      this.#onResults(calls.map(({ id, name }, index) => ({ id, name, text: fields[index].value })));
    });
    this.element.append(form);
  }

  // Results can no longer be given: the conversation has gone on.
  close() {
    this.element.querySelector(".results")?.remove();
  }
}

class CallView {
  #name = element("span");
  #arguments = element("code");

  constructor() {
    const caption = element("figcaption", {}, this.#name, copyButton(() => this.#arguments.textContent, "Copy arguments"));
    this.element = element("figure", { className: "code call" }, caption, element("pre", { tabIndex: 0, ariaLabel: "arguments" }, this.#arguments));
  }

  show({ name, arguments: text }) {
    this.#name.textContent = `Call of ${name}`;
    this.#arguments.textContent = indented(text);
  }
}

export function resultView({ name, text }) {
  return element(
    "article",
    { className: "turn result", ariaLabel: `Result of ${name}` },
    element("h3", { className: "who" }, `Result of ${name}`),
    element("div", { className: "text" }, element("p", {}, text)),
  );
}

// JSON over lines once it is whole; as it is until then.
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
