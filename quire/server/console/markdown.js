// The little Markdown that models write: paragraphs, headings, lists, code, bold and italic, made of DOM nodes.
// Links stay text: what a model writes is not to be trusted with an address.
import { copyButton } from "./copy.js";
import { element } from "./dom.js";

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|\*(?!\s)([^*]+?)\*/gs;
const LONGEST_INLINE = 20_000; // the pattern's time grows with the square of an unbroken paragraph

const sources = new WeakMap(); // which text each block on the page was made of

// Shows `text` in `container`; blocks that did not change keep their nodes, so a growing answer costs its last block.
export function renderMarkdown(container, text) {
  const blocks = splitBlocks(text);
  blocks.forEach((source, index) => {
    const current = container.children[index];
    if (current && sources.get(current) === source) return;
    const block = renderBlock(source);
    sources.set(block, source);
    if (current) current.replaceWith(block);
    else container.append(block);
  });
  while (container.children.length > blocks.length) container.lastElementChild.remove();
}

function splitBlocks(text) {
  const blocks = [];
  let lines = [];
  let fence = null;
  const close = () => {
    if (lines.length) blocks.push(lines.join("\n"));
    lines = [];
  };
  for (const line of text.split("\n")) {
    if (fence) {
      lines.push(line);
      if (line.trim().startsWith(fence) && !line.trim().slice(fence.length).trim()) {
        fence = null;
        close();
      }
    } else if (FENCE.test(line)) {
      close();
      fence = FENCE.exec(line)[1];
      lines.push(line);
    } else if (!line.trim()) {
      close();
    } else if (HEADING.test(line)) {
      close();
      blocks.push(line);
    } else {
      if (ITEM.test(line) && lines.length && !ITEM.test(lines[0])) close();
      lines.push(line);
    }
  }
  close();
  return blocks;
}

function renderBlock(source) {
  if (FENCE.test(source)) return renderCode(source);
  const heading = HEADING.exec(source);
  if (heading) return withInline(element("h4"), heading[2]);
  const lines = source.split("\n");
  if (ITEM.test(lines[0])) return renderList(lines);
  return withInline(element("p"), source);
}

function renderCode(source) {
  const [, fence, language] = FENCE.exec(source);
  const lines = source.split("\n").slice(1);
  if (lines.length && lines.at(-1).trim().startsWith(fence)) lines.pop();
  const name = language || "code";
  const pre = element("pre", { tabIndex: 0, ariaLabel: name }, element("code", {}, lines.join("\n")));
  const caption = element("figcaption", {}, element("span", {}, name), copyButton(() => lines.join("\n"), "Copy code"));
  return element("figure", { className: "code" }, caption, pre);
}

function renderList(lines) {
  const [, indent, marker] = ITEM.exec(lines[0]);
  const list = element(/\d/.test(marker) ? "ol" : "ul");
  if (list.tagName === "OL") list.start = Number.parseInt(marker, 10);
  let at = 0;
  while (at < lines.length) {
    const item = element("li");
    const text = [ITEM.exec(lines[at])[3]];
    const inner = [];
    for (at += 1; at < lines.length; at += 1) {
      const next = ITEM.exec(lines[at]);
      if (next && next[1].length <= indent.length) break;
      if (next || inner.length) inner.push(lines[at]);
      else text.push(lines[at].trim());
    }
    withInline(item, text.join("\n"));
    if (inner.length) item.append(renderList(inner));
    list.append(item);
  }
  return list;
}

function withInline(parent, text) {
  if (text.length > LONGEST_INLINE) {
    parent.append(text);
    return parent;
  }
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    parent.append(text.slice(last, match.index));
    const [whole, , code, bold, italic] = match;
    if (code !== undefined) parent.append(element("code", {}, code));
    else if (bold !== undefined) parent.append(withInline(element("strong"), bold));
    else parent.append(withInline(element("em"), italic));
    last = match.index + whole.length;
  }
  parent.append(text.slice(last));
  return parent;
}
