// One streamed chat completion: its text so far, how it ended and how fast it came.
import { ApiError, requestIdOf } from "./api.js";
import { serverSentEvents } from "./stream.js";

const SHORTEST = 0.05; // seconds

// Null for an answer that came all at once: such a time says how fast pieces were read, not how fast tokens were made.
export function tokensPerSecond(tokens, seconds) {
  return tokens > 1 && seconds >= SHORTEST ? (tokens - 1) / seconds : null;
}

export class Completion {
  text = "";
  reasoning = "";
  calls = []; // of tools: {id, name, arguments}
  finish = null; // "stop", "length", …; null while it runs or when it broke off
  tokens = null; // as the server counted them
  requestId = null;
  #pieces = 0;
  #sent = performance.now();
  #first = null;
  #last = null;
  #thought = null; // when the thinking part ended

  // Runs to the end, calling `onChange` after each piece. Throws ApiError, or AbortError when `signal` aborts.
  async run(api, body, signal, onChange) {
    const response = await api.fetch("v1/chat/completions", {
      method: "POST",
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
      signal,
    });
    this.requestId = requestIdOf(response);
    for await (const data of serverSentEvents(response.body)) {
      if (data === "[DONE]") return;
      if (this.#take(JSON.parse(data))) onChange();
    }
    if (this.finish === null) throw new ApiError("The stream broke off.", { requestId: this.requestId });
  }

  // Adds one chunk; says whether there is something new to show.
  #take(chunk) {
    if (chunk.error) throw new ApiError(String(chunk.error.message), { requestId: this.requestId });
    if (chunk.usage) this.tokens = chunk.usage.completion_tokens;
    const choice = chunk.choices?.[0];
    if (!choice) return false;
    this.finish = choice.finish_reason ?? this.finish;
    const text = choice.delta?.content ?? "";
    const reasoning = choice.delta?.reasoning_content ?? choice.delta?.reasoning ?? "";
    const calls = choice.delta?.tool_calls ?? [];
    if (!text && !reasoning && !calls.length) return false;
    this.text += text;
    this.reasoning += reasoning;
    for (const call of calls) this.#takeCall(call);
    this.#pieces += 1;
    this.#last = performance.now();
    this.#first ??= this.#last;
    if (reasoning) this.#thought = this.#last;
    return true;
  }

  #takeCall({ index = this.calls.length, id, function: part }) {
    const call = (this.calls[index] ??= { id: "", name: "", arguments: "" });
    call.id = id ?? call.id;
    call.name += part?.name ?? "";
    call.arguments += part?.arguments ?? "";
  }

  // Whether nothing but thoughts have come.
  get isThinking() {
    return Boolean(this.reasoning) && !this.text && !this.calls.length;
  }

  // Null where the model did not think aloud.
  get thoughtSeconds() {
    return this.#thought === null ? null : (this.#thought - this.#first) / 1000;
  }

  // What the line under the answer says. Without the server's count, pieces stand for tokens.
  get figures() {
    const tokens = this.tokens ?? this.#pieces;
    const seconds = this.#first === null ? 0 : (this.#last - this.#first) / 1000;
    return {
      tokens,
      exact: this.tokens !== null,
      rate: tokensPerSecond(tokens, seconds),
      firstToken: this.#first === null ? null : (this.#first - this.#sent) / 1000,
    };
  }
}
