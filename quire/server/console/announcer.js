// Speaks a growing answer to screen readers in sentences, not tokens.

const PAUSE = 2500; // milliseconds between two announcements: about as long as a sentence takes to speak
const SENTENCE_END = /[.!?:;\n]\s/g;

export class Announcer {
  #region;
  #spoken = 0;
  #last = 0;

  constructor(region) {
    this.#region = region;
  }

  say(text) {
    this.#region.textContent = text;
  }

  begin() {
    this.#spoken = 0;
    this.#last = performance.now();
    this.say("The answer begins.");
  }

  // `text` is the whole answer so far.
  grow(text) {
    if (performance.now() - this.#last < PAUSE) return;
    const ends = [...text.slice(this.#spoken).matchAll(SENTENCE_END)];
    if (ends.length) this.#speakTo(text, this.#spoken + ends.at(-1).index + 1);
  }

  end(text, remark) {
    this.#speakTo(text, text.length);
    if (remark) this.#region.append(` ${remark}`);
  }

  #speakTo(text, end) {
    this.say(text.slice(this.#spoken, end).trim());
    this.#spoken = end;
    this.#last = performance.now();
  }
}
