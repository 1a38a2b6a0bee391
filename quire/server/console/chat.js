// The chat: asks, streams, stops, asks again. Owns the order of things; how a turn looks is message.js.
import { byId, element } from "./dom.js";
import { Announcer } from "./announcer.js";
import { Attachments } from "./attachments.js";
import { Completion } from "./completion.js";
import { Conversation } from "./conversation.js";
import { AnswerView, questionView } from "./message.js";
import { Settings } from "./settings.js";
import { resultView } from "./tool_calls.js";

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
  #cards = new Map(); // what the server says of each model
  #attachments = new Attachments({
    target: document.querySelector(".chat"),
    shelf: byId("attachments"),
    note: byId("attachments-note"),
    chooser: byId("attach-file"),
    button: byId("attach"),
  });
  #abort = null; // an AbortController while an answer is on its way
  #last = null; // the view of the last answer
  #following = true; // until the reader scrolls back

  constructor(api) {
    this.#api = api;
    byId("composer").addEventListener("submit", (event) => this.#submit(event));
    byId("stop").addEventListener("click", () => this.#stop());
    byId("clear").addEventListener("click", () => this.#clear());
    this.#model.addEventListener("change", () => this.#useModel());
    byId("starters").addEventListener("click", (event) => this.#start(event.target));
    this.#prompt.addEventListener("keydown", (event) => this.#key(event));
    this.#prompt.addEventListener("input", () => this.#fit());
    document.addEventListener("keydown", (event) => event.key === "Escape" && !byId("key-dialog").open && this.#stop());
    for (const turn of this.#conversation.turns) this.#show(turn);
    this.#askForResults();
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
    this.#cards = new Map(data.map((card) => [card.id, card]));
    this.#useModel();
  }

  #useModel() {
    this.#attachments.useModel(this.#model.value, this.#cards.get(this.#model.value)?.input_modalities);
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
    if ((!text && this.#attachments.isEmpty) || this.#abort || !fields || !this.#attachments.check()) return;
    this.#prompt.value = "";
    this.#fit();
    this.#prompt.focus();
    this.#last?.close();
    this.#conversation.ask(text, this.#attachments.give());
    this.#show(this.#conversation.turns.at(-1));
    this.#answer(fields);
  }

  #giveBack(results) {
    const fields = this.#settings.fields();
    if (this.#abort || !fields) return;
    this.#conversation.giveBack(results);
    for (const turn of this.#conversation.turns.slice(-results.length)) this.#show(turn);
    this.#prompt.focus();
    this.#answer(fields);
  }

  // An answer that ends with calls waits for what they give back.
  #askForResults() {
    const turn = this.#conversation.turns.at(-1);
    if (turn?.calls?.length && turn.ending === "tool_calls") this.#last.askForResults(turn.calls);
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
    const { text, reasoning, calls, thoughtSeconds, figures } = completion;
    this.#finish(view, Object.assign(turn, { text, reasoning, calls, thoughtSeconds, figures }));
  }

  #finish(view, turn) {
    if (!view.element.isConnected) return; // cleared meanwhile
    this.#conversation.answer(turn);
    view.end(turn);
    this.#askForResults();
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
    this.#last = null;
    this.#announcer.say("The conversation is cleared.");
    this.#showState();
    this.#prompt.focus();
  }

  #show(turn) {
    if (turn.role === "user") this.#messages.append(questionView(turn));
    else if (turn.role === "tool") this.#messages.append(resultView(turn));
    else this.#addAnswer(turn.model).end(turn);
  }

  #addAnswer(model) {
    const view = new AnswerView(
      model,
      () => this.#regenerate(),
      (results) => this.#giveBack(results),
    );
    this.#messages.append(view.element);
    this.#last = view;
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
