// A form that sends one operation to this server and shows what comes back, as it comes.
import { element } from "./dom.js";

const LONGEST_SHOWN = 200_000; // characters of an answer

export function tryForm(operation, schemas, api, model) {
  const inputs = operation.parameters.map((parameter) => parameterInput(parameter, schemas));
  const body = operation.body ? bodyInput(operation.body, schemas, model) : null;
  const send = element("button", { type: "submit", className: "primary" }, "Send");
  const stop = element("button", { type: "button", className: "primary stop", hidden: true }, "Stop");
  const status = element("p", { className: "answer-status", role: "status" });
  const output = element("pre", { className: "answer-body", tabIndex: 0, hidden: true, ariaLabel: "Answer" });
  const form = element("form", {}, ...inputs.map(({ label }) => label), ...(body?.labels ?? []));
  form.append(element("div", { className: "buttons" }, send, stop, status), output);
  let abort = null;
  stop.addEventListener("click", () => abort?.abort());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    abort = new AbortController();
    send.hidden = true;
    stop.hidden = false;
    try {
      const options = { method: operation.method.toUpperCase(), body: body?.value(), signal: abort.signal };
      await show(await api.send(address(operation.path, inputs), options), status, output);
    } catch (error) {
      status.textContent = abort.signal.aborted ? "Stopped" : error.message;
    }
    send.hidden = false;
    stop.hidden = true;
  });
  return element("details", { className: "try" }, element("summary", {}, "Try it"), form);
}

function parameterInput({ name, in: place, required, schema }, schemas) {
  const input = element("input", { required: Boolean(required), placeholder: schemas.kind(schema) });
  return { name, place, input, label: element("label", { className: "field" }, name, input) };
}

function address(path, inputs) {
  const query = new URLSearchParams();
  let filled = path;
  for (const { name, place, input } of inputs) {
    if (place === "path") filled = filled.replace(`{${name}}`, encodeURIComponent(input.value));
    else if (place === "query" && input.value) query.set(name, input.value);
  }
  return query.size ? `${filled}?${query}` : filled;
}

// Labels to show and a function that gives what is sent: text for JSON, FormData for a form of files.
function bodyInput({ type, schema }, schemas, model) {
  if (type.startsWith("multipart/")) return filesInput(schemas.resolve(schema));
  const example = schemas.example(schema);
  if (model && typeof example === "object" && "model" in example) example.model = model;
  const text = JSON.stringify(example, null, 2);
  const area = element("textarea", { rows: text.split("\n").length + 1, spellcheck: false, value: text });
  return { labels: [element("label", { className: "field" }, "Body", area)], value: () => area.value };
}

function filesInput({ properties = {}, required = [] }) {
  const inputs = Object.entries(properties).map(([name, schema]) => {
    const isFile = schema.format === "binary" || schema.contentMediaType !== undefined;
    return element("input", { name, type: isFile ? "file" : "text", required: required.includes(name) });
  });
  const value = () => {
    const data = new FormData();
    for (const input of inputs) {
      const content = input.type === "file" ? input.files[0] : input.value;
      if (content) data.set(input.name, content);
    }
    return data;
  };
  return { labels: inputs.map((input) => element("label", { className: "field" }, input.name, input)), value };
}

async function show(response, status, output) {
  status.textContent = `${response.status} ${response.statusText}`;
  output.hidden = false;
  output.textContent = "";
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (reader && text.length < LONGEST_SHOWN) {
    const { done, value } = await reader.read();
    if (done) break;
    text += value;
    output.textContent = text;
  }
  reader?.cancel().catch(() => {}); // whatever is beyond the limit is not read
  if (response.headers.get("content-type")?.startsWith("application/json")) output.textContent = indented(text);
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // cut at the limit
  }
}
