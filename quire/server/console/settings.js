// The sampling controls: what the form holds, as fields of a request. An empty field is not sent.
import { setText } from "./dom.js";
import { load, save } from "./storage.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const NAMES = [...NUMBERS, "system", "stop", "tools"];

export class Settings {
  #details;
  #summary;

  constructor(form, details, summary) {
    this.#details = details;
    this.#summary = summary;
    const stored = load("settings", {});
    for (const name of NAMES) this.#control(name).value = stored[name] ?? "";
    details.addEventListener("input", () => this.#changed());
    form.addEventListener("reset", (event) => {
      event.preventDefault(); // the message being written is in the same form
      for (const name of NAMES) this.#control(name).value = "";
      this.#changed();
    });
    this.#changed();
  }

  get system() {
    return this.#control("system").value.trim();
  }

  // Fields for the request's body; null when one is wrong, which is then shown.
  fields() {
    const wrong = NAMES.map((name) => this.#control(name)).find((control) => !control.checkValidity());
    if (wrong) {
      this.#details.open = true;
      wrong.reportValidity();
      return null;
    }
    const fields = {};
    for (const name of NUMBERS) {
      const { value } = this.#control(name);
      if (value !== "") fields[name] = Number(value);
    }
    const stop = this.#control("stop").value.split("\n").filter(Boolean);
    if (stop.length) fields.stop = stop.map((text) => text.replaceAll("\\n", "\n"));
    const tools = toolsIn(this.#control("tools").value);
    if (tools.length) fields.tools = tools;
    return fields;
  }

  #control(name) {
    return this.#details.querySelector(`[name="${name}"]`);
  }

  #changed() {
    const values = Object.fromEntries(NAMES.map((name) => [name, this.#control(name).value]));
    save("settings", values);
    const isList = toolsIn(values.tools) !== null;
    this.#control("tools").setCustomValidity(isList ? "" : "This is no JSON list of tools: write [{…}, …].");
    const set = NUMBERS.filter((name) => values[name] !== "").map((name) => `${name.replace("_", " ")} ${values[name]}`);
    if (values.system.trim()) set.unshift("system prompt");
    if (values.stop) set.push("stop strings");
    if (values.tools.trim()) set.push("tools");
    setText(this.#summary, set.join(" · ") || "the model's defaults");
  }
}

// A list of tools, each a function's description or OpenAI's wrapping of one; null where the text is none.
export function toolsIn(text) {
  if (!text.trim()) return [];
  try {
    const tools = JSON.parse(text);
    const isTool = (tool) => typeof (tool?.function ?? tool)?.name === "string";
    if (!Array.isArray(tools) || !tools.every(isTool)) return null;
    return tools.map((tool) => (tool.function ? { type: "function", ...tool } : { type: "function", function: tool }));
  } catch {
    return null;
  }
}
