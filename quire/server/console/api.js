// The server's API: addresses, the key, and errors with the server's own words.
import { load, save } from "./storage.js";

const ROOT = new URL("../", import.meta.url); // this file is in <root>/console/

export class ApiError extends Error {
  constructor(message, { status = null, requestId = null } = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.requestId = requestId;
  }
}

// Sends "unauthorized" when any call is answered with 401, and "key" when there is a new key.
export class Api extends EventTarget {
  #key = load("key", "");

  get key() {
    return this.#key;
  }

  set key(value) {
    this.#key = value;
    save("key", value);
    this.dispatchEvent(new Event("key"));
  }

  // The answer as it is, whatever its status; fails only where there is none.
  async send(path, { method = "GET", body, headers = {}, signal } = {}) {
    const all = { ...headers };
    if (this.#key) all.Authorization = `Bearer ${this.#key}`;
    if (typeof body === "string") all["Content-Type"] ??= "application/json";
    try {
      return await fetch(new URL(path.replace(/^\//, ""), ROOT), { method, body, headers: all, signal, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The server cannot be reached. Is it still running?");
    }
  }

  // A good answer, or an ApiError.
  async fetch(path, options) {
    const response = await this.send(path, options);
    if (response.ok) return response;
    if (response.status === 401) this.dispatchEvent(new Event("unauthorized"));
    throw new ApiError(await messageOf(response), { status: response.status, requestId: requestIdOf(response) });
  }

  async json(path, options) {
    return (await this.fetch(path, options)).json();
  }
}

export function requestIdOf(response) {
  return response.headers.get("x-request-id");
}

async function messageOf(response) {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    if (error?.message) return String(error.message);
  } catch {
    // Not the API's shape: perhaps a proxy's page, of which the status says enough.
  }
  return `The server answered ${response.status} ${response.statusText}`.trim() + ".";
}
