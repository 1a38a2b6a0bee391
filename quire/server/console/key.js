// The field for the API key. Opens itself when the server asks for one.
import { byId } from "./dom.js";

const KEPT = "Kept in this tab only, and forgotten when it closes.";

export function keyDialog(api) {
  const dialog = byId("key-dialog");
  const field = byId("key");
  let declined = false; // asked once for each key: a page that polls must not ask each second

  const open = (reason) => {
    if (dialog.open) return;
    byId("key-reason").textContent = reason;
    field.value = api.key;
    dialog.returnValue = "";
    dialog.showModal();
    field.select();
  };

  api.addEventListener("unauthorized", () => {
    if (!declined) open(`${api.key ? "The server does not know this key." : "This server asks for a key."} ${KEPT}`);
  });
  byId("key-open").addEventListener("click", () => open(KEPT));
  byId("key-cancel").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => (declined = dialog.returnValue !== "used"));
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close("used");
    api.key = field.value.trim();
  });
}
