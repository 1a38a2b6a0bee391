// What is put to the next message: pasted, dropped or chosen, as far as the model takes it.
import { element } from "./dom.js";
import { KINDS, kindOf, mediaView, readMedia } from "./media.js";

const NAMES = { text: "text", image: "images", audio: "sound", video: "video" };

export class Attachments {
  #shelf;
  #note;
  #chooser;
  #button;
  #media = [];
  #model = "";
  #takes = null; // kinds that the model takes; null where the server does not say, and is asked

  constructor({ target, shelf, note, chooser, button }) {
    this.#shelf = shelf;
    this.#note = note;
    this.#chooser = chooser;
    this.#button = button;
    button.addEventListener("click", () => chooser.click());
    chooser.addEventListener("change", () => this.#choose());
    target.addEventListener("paste", (event) => this.#take(event, event.clipboardData));
    target.addEventListener("dragover", (event) => this.#invite(event));
    target.addEventListener("dragleave", () => target.classList.remove("inviting"));
    target.addEventListener("drop", (event) => {
      target.classList.remove("inviting");
      this.#take(event, event.dataTransfer);
    });
  }

  // `modalities` as the model's card has them.
  useModel(model, modalities) {
    this.#model = model;
    this.#takes = modalities ?? null;
    const kinds = KINDS.filter((kind) => this.#isTaken(kind));
    this.#button.hidden = !kinds.length;
    this.#chooser.accept = kinds.map((kind) => `${kind}/*`).join();
    this.#say("");
  }

  get isEmpty() {
    return !this.#media.length;
  }

  // Whether all of them go to the model; where not, the page says so.
  check() {
    const refused = this.#media.find(({ kind }) => !this.#isTaken(kind));
    if (refused) this.#refuse(refused.name);
    return !refused;
  }

  // Hands them over, and is empty.
  give() {
    const media = this.#media;
    this.#media = [];
    this.#show();
    this.#say("");
    return media;
  }

  #isTaken(kind) {
    return this.#takes === null || this.#takes.includes(kind);
  }

  #choose() {
    this.#add([...this.#chooser.files]);
    this.#chooser.value = "";
  }

  #invite(event) {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    event.currentTarget.classList.add("inviting");
  }

  // A clipboard may hold a picture beside the text that it was copied with: then the text is meant.
  #take(event, { files, types }) {
    if (!files.length || (event.type === "paste" && types.includes("text/plain"))) return;
    event.preventDefault();
    this.#add([...files]);
  }

  async #add(files) {
    this.#say("");
    for (const file of files) {
      const kind = kindOf(file.type);
      if (!kind || !this.#isTaken(kind)) {
        this.#refuse(file.name);
        continue;
      }
      try {
        this.#media.push(await readMedia(file));
      } catch (error) {
        this.#say(error.message);
      }
    }
    this.#show();
  }

  #show() {
    const items = this.#media.map((medium) => {
      const remove = element("button", { type: "button", className: "quiet", ariaLabel: `Remove ${medium.name}` }, "×");
      remove.addEventListener("click", () => {
        this.#media = this.#media.filter((each) => each !== medium);
        this.#show();
      });
      return element("li", {}, mediaView(medium), remove);
    });
    this.#shelf.replaceChildren(...items);
    this.#shelf.hidden = !items.length;
  }

  #refuse(name) {
    const taken = (this.#takes ?? ["text", ...KINDS]).map((kind) => NAMES[kind] ?? kind).join(", ");
    this.#say(`${name} is not sent: ${this.#model} reads ${taken} and nothing else.`);
  }

  #say(text) {
    this.#note.textContent = text;
    this.#note.hidden = !text;
  }
}
