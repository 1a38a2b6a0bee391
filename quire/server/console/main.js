// Puts the console together.
import { Api } from "./api.js";
import { Chat } from "./chat.js";
import { keyDialog } from "./key.js";
import { Monitor } from "./monitor.js";

const api = new Api();
keyDialog(api);
const chat = new Chat(api);
const monitor = new Monitor(api);

// Models are asked for again after the server was away or a key was given: they may be others.
const loadModels = () => chat.loadModels().catch(() => {});
monitor.addEventListener("reachable", loadModels);
api.addEventListener("key", () => {
  loadModels();
  monitor.poll();
});
monitor.start();
