// Pictures, sound and films as a conversation keeps them, {kind, name, url}: how they look, and the parts of a message that they become.
import { element } from "./dom.js";

export const KINDS = ["image", "audio", "video"];
const SHOWN_AS = { image: "img", audio: "audio", video: "video" };

// What a file is, by the type that the browser gives it; null for what is none of them.
export function kindOf(type) {
  return KINDS.find((kind) => type.startsWith(`${kind}/`)) ?? null;
}

// Reads a file into what the conversation keeps.
export function readMedia(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve({ kind: kindOf(file.type), name: file.name, url: reader.result });
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

// What the tab had no room to keep over a reload has no URL left: it is named, and not sent again.
export function mediaView({ kind, name, url }) {
  if (!url) return element("p", { className: "medium gone" }, `${name} is no longer here`);
  const view = element(SHOWN_AS[kind], { className: "medium", src: url });
  if (kind === "image") view.alt = name;
  else Object.assign(view, { controls: true, ariaLabel: name });
  return view;
}

export function partsOf(media) {
  return media.filter(({ url }) => url).map(({ kind, url }) => ({ type: `${kind}_url`, [`${kind}_url`]: { url } }));
}
