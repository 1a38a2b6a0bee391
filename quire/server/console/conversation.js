// The turns of the conversation, kept over a reload of the tab. Knows nothing of how they look.
import { load, save } from "./storage.js";

// A question is {role: "user", text}; an answer {role: "assistant", model, text, reasoning, ending, figures, error}.
export class Conversation {
  turns = load("conversation", []);

  ask(text) {
    this.turns.push({ role: "user", text });
    this.#save();
  }

  answer(turn) {
    this.turns.push({ role: "assistant", ...turn });
    this.#save();
  }

  // Takes the last answer back, so that its question can be asked again.
  retract() {
    if (this.turns.at(-1)?.role === "assistant") this.turns.pop();
    this.#save();
  }

  clear() {
    this.turns = [];
    this.#save();
  }

  // The messages a request carries; answers that failed before their first word are left out.
  messages(system) {
    const said = this.turns.filter(({ role, text }) => role === "user" || text);
    const messages = said.map(({ role, text }) => ({ role, content: text }));
    return system ? [{ role: "system", content: system }, ...messages] : messages;
  }

  #save() {
    save("conversation", this.turns);
  }
}
