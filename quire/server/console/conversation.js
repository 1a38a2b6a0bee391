// The turns of the conversation, kept over a reload of the tab. Knows nothing of how they look.
import { partsOf } from "./media.js";
import { load, save } from "./storage.js";

// A question is {role: "user", text, media}; an answer {role: "assistant", model, text, reasoning, calls, ending, figures, error};
// what a tool gave back {role: "tool", id, name, text}.
export class Conversation {
  turns = load("conversation", []);

  ask(text, media = []) {
    this.turns.push({ role: "user", text, media });
    this.#save();
  }

  answer(turn) {
    this.turns.push({ role: "assistant", ...turn });
    this.#save();
  }

  giveBack(results) {
    for (const result of results) this.turns.push({ role: "tool", ...result });
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

  // The messages a request carries. Answers that failed before their first word are left out, and calls without results.
  messages(system) {
    const given = new Set(this.turns.flatMap(({ role, id }) => (role === "tool" ? id : [])));
    const messages = this.turns.flatMap((turn) => messageOf(turn, given) ?? []);
    return system ? [{ role: "system", content: system }, ...messages] : messages;
  }

  // A tab has room for a few megabytes: where pictures are too large for it, the words are kept.
  #save() {
    if (!save("conversation", this.turns)) save("conversation", this.turns.map(withoutUrls));
  }
}

function withoutUrls(turn) {
  return turn.media ? { ...turn, media: turn.media.map(({ kind, name }) => ({ kind, name })) } : turn;
}

function messageOf({ role, text, id, calls = [], media = [] }, given) {
  if (role === "tool") return { role, tool_call_id: id, content: text };
  if (role === "assistant" && calls.length && calls.every((call) => given.has(call.id))) {
    const made = calls.map(({ id, name, arguments: written }) => ({ id, type: "function", function: { name, arguments: written } }));
    return { role, content: text || null, tool_calls: made };
  }
  const parts = partsOf(media);
  if (parts.length) return { role, content: text ? [...parts, { type: "text", text }] : parts };
  return role === "user" || text ? { role, content: text } : null;
}
