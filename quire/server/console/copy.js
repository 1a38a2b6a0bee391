// Buttons that copy a text.
import { element } from "./dom.js";

const TOLD = 1500; // milliseconds

export function copyButton(source, label = "Copy") {
  const button = element("button", { type: "button", className: "quiet copy", ariaLabel: label }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copy(source())) ? "Copied" : "Not allowed";
    setTimeout(() => (button.textContent = "Copy"), TOLD);
  });
  return button;
}

// Says whether it was allowed. Browsers offer the clipboard to pages over HTTPS and on this machine only.
async function copy(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const field = element("textarea", { value: text, className: "visually-hidden" });
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  return isCopied;
}
