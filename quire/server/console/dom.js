// Building elements. Text is always text: nothing here, or anywhere on the page, parses HTML.

// element("p", {className: "hint"}, "text", child, …)
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  Object.assign(node, properties);
  node.append(...children);
  return node;
}

export const byId = (id) => document.getElementById(id);

// Writes only what differs, so that a page that is polled each second is not laid out each second.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
