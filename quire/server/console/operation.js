// One operation of the API as a section of the page: what it takes, what it answers, and a form to try it.
import { element } from "./dom.js";
import { tryForm } from "./try.js";

const DEEPEST = 4; // levels of fields inside fields that are shown

export function operationView(operation, schemas, api, model) {
  const { id, method, path, summary, description } = operation;
  const view = element(
    "section",
    { className: "operation", id },
    element("h3", {}, element("span", { className: `method ${method}` }, method), " ", element("code", {}, path)),
    element("p", { className: "summary" }, summary ?? ""),
  );
  if (description) view.append(element("p", {}, description));
  view.append(...parametersView(operation, schemas), ...bodyView(operation, schemas), answersView(operation));
  view.append(tryForm(operation, schemas, api, model));
  return view;
}

function parametersView({ parameters }, schemas) {
  if (!parameters.length) return [];
  const fields = parameters.map(({ name, in: place, required, schema, description }) =>
    fieldView(name, { description, ...schemas.resolve(schema) }, { required, place, schemas, depth: DEEPEST }),
  );
  return [element("h4", {}, "Parameters"), element("dl", { className: "fields" }, ...fields.flat())];
}

function bodyView({ body }, schemas) {
  if (!body) return [];
  const heading = element("h4", {}, "Body ", element("small", {}, body.type));
  return [heading, ...schemas.objects(body.schema).map((object) => fieldsView(object, schemas, 1))];
}

function fieldsView({ properties, required = [] }, schemas, depth) {
  const fields = Object.entries(properties).map(([name, schema]) =>
    fieldView(name, schema, { required: required.includes(name), schemas, depth }),
  );
  return element("dl", { className: "fields" }, ...fields.flat());
}

function fieldView(name, schema, { required, place, schemas, depth }) {
  const known = schemas.resolve(schema);
  const term = element("dt", {}, element("code", {}, name), element("span", { className: "kind" }, schemas.kind(schema)));
  if (place) term.append(element("span", { className: "kind" }, `in the ${place}`));
  if (required) term.append(element("span", { className: "required" }, "required"));
  const meaning = element("dd");
  const description = schema.description ?? known.description;
  if (description) meaning.append(element("p", {}, description));
  const limits = schemas.limits(schema);
  if (limits) meaning.append(element("p", { className: "limits" }, limits));
  const inner = depth < DEEPEST ? schemas.objects(schema) : [];
  if (inner.length) {
    const tables = inner.map((object) => fieldsView(object, schemas, depth + 1));
    meaning.append(element("details", {}, element("summary", {}, `Fields of ${name}`), ...tables));
  }
  return [term, meaning];
}

function answersView({ responses }) {
  const rows = Object.entries(responses).map(([status, { description, content = {} }]) => {
    const types = Object.keys(content).join(", ");
    return element("li", {}, element("code", {}, status), ` ${description ?? ""}`, element("span", { className: "kind" }, types));
  });
  return element("details", { className: "answers" }, element("summary", {}, "Answers"), element("ul", {}, ...rows));
}
