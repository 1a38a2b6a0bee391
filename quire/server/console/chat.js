// The chat: asks, streams, stops, asks again. Owns the order of things; how a turn looks is message.js.
import { byId, element } from "./dom.js";
import { Announcer } from "./announcer.js";
import { Completion } from "./completion.js";
import { Conversation } from "./conversation.js";
import { AnswerView, questionView } from "./message.js";
import { Settings } from "./settings.js";

const NEAR_END = 80; // pixels from the end of the conversation within which a reader follows the answer

export class Chat {
  #api;
  #conversation = new Conversation();
  #settings = new Settings(byId("composer"), byId("settings"), byId("settings-summary"));
  #announcer = new Announcer(byId("announcer"));
  #messages = byId("messages");
  #blank = byId("blank");
  #prompt = byId("prompt");
  #model = byId("model");
  #abort = null; // an AbortController while an answer is on its way
  #following = true; // until the reader scrolls back

  constructor(api) {
    this.#api = api;
    byId("composer").addEventListener("submit", (event) => this.#submit(event));
    byId("stop").addEventListener("click", () => this.#stop());
    byId("clear").addEventListener("click", () => this.#clear());
    byId("starters").addEventListener("click", (event) => this.#start(event.target));
    this.#prompt.addEventListener("keydown", (event) => this.#key(event));
    this.#prompt.addEventListener("input", () => this.#fit());
    document.addEventListener("keydown", (event) => event.key === "Escape" && !byId("key-dialog").open && this.#stop());
    for (const turn of this.#conversation.turns) this.#show(turn);
    this.#showState();
    this.#messages.addEventListener("scroll", () => (this.#following = this.#isNearEnd()));
    // the wheel is heard before the page has scrolled: text that comes in between must not pull the reader back
    this.#messages.addEventListener("wheel", (event) => event.deltaY < 0 && (this.#following = false), { passive: true });
    new ResizeObserver(() => this.#follow()).observe(this.#messages);
  }

  async loadModels() {
    const { data } = await this.#api.json("v1/models");
    const chosen = this.#model.value;
    this.#model.replaceChildren(...data.map(({ id }) => element("option", { value: id }, id)));
    if (data.some(({ id }) => id === chosen)) this.#model.value = chosen;
  }

  #key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("composer").requestSubmit();
  }

  #start(button) {
    if (button.tagName !== "BUTTON") return;
    this.#prompt.value = button.textContent;
    byId("composer").requestSubmit();
  }

  #submit(event) {
    event.preventDefault();
    const text = this.#prompt.value.trim();
    const fields = this.#settings.fields();
    if (!text || this.#abort || !fields) return;
    this.#prompt.value = "";
    this.#fit();
    this.#prompt.focus();
    this.#conversation.ask(text);
    this.#show(this.#conversation.turns.at(-1));
    this.#answer(fields);
  }

  #regenerate() {
    const fields = this.#settings.fields();
    if (this.#abort || !fields) return;
    this.#conversation.retract();
    this.#messages.querySelector(".turn.answer:last-child")?.remove();
    this.#prompt.focus();
    this.#answer(fields);
  }

  async #answer(fields) {
    const model = this.#model.value;
    const completion = new Completion();
    const view = this.#addAnswer(model);
    const abort = (this.#abort = new AbortController());
    this.#showState();
    this.#announcer.begin();
    this.#following = true;
    view.grow(completion, () => this.#follow());
    const body = { model, messages: this.#conversation.messages(this.#settings.system), ...fields };
    const turn = { model };
    try {
      await completion.run(this.#api, body, abort.signal, () => {
        view.grow(completion, () => this.#follow());
        this.#announcer.grow(completion.text);
      });
      turn.ending = completion.finish;
    } catch (error) {
      if (abort.signal.aborted) turn.ending = "stopped";
      else turn.error = { message: error.message, requestId: error.requestId ?? null };
    }
    if (this.#abort === abort) this.#abort = null;
    this.#finish(view, Object.assign(turn, { text: completion.text, reasoning: completion.reasoning, figures: completion.figures }));
  }

  #finish(view, turn) {
    if (!view.element.isConnected) return; // cleared meanwhile
    this.#conversation.answer(turn);
    view.end(turn);
    this.#announcer.end(turn.text, turn.ending === "stopped" ? "Stopped." : "");
    this.#showState();
    this.#follow();
  }

  #stop() {
    this.#abort?.abort();
  }

  #clear() {
    this.#stop();
    this.#conversation.clear();
    for (const turn of this.#messages.querySelectorAll(".turn")) turn.remove();
    this.#abort = null;
    this.#announcer.say("The conversation is cleared.");
    this.#showState();
    this.#prompt.focus();
  }

  #show(turn) {
    if (turn.role === "user") this.#messages.append(questionView(turn.text));
    else this.#addAnswer(turn.model).end(turn);
  }

  #addAnswer(model) {
    const view = new AnswerView(model, () => this.#regenerate());
    this.#messages.append(view.element);
    return view;
  }

  #showState() {
    const busy = this.#abort !== null;
    const stopHadFocus = document.activeElement === byId("stop");
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
    byId("clear").disabled = !busy && !this.#conversation.turns.length;
    this.#blank.hidden = busy || this.#conversation.turns.length > 0;
    this.#messages.classList.toggle("busy", busy);
    if (stopHadFocus && !busy) this.#prompt.focus();
  }

  #isNearEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.#messages;
    return scrollHeight - scrollTop - clientHeight < NEAR_END;
  }

  #follow() {
    if (this.#following) this.#messages.scrollTop = this.#messages.scrollHeight;
  }

  #fit() {
    this.#prompt.style.height = "auto";
    this.#prompt.style.height = `${this.#prompt.scrollHeight}px`;
  }
}
