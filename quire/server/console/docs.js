// The API reference: reads /openapi.json and lays it out. Nothing is known here of any particular operation.
import { Api } from "./api.js";
import { byId, element } from "./dom.js";
import { keyDialog } from "./key.js";
import { operationView } from "./operation.js";
import { Schemas } from "./schema.js";

const METHODS = ["get", "post", "put", "patch", "delete"];

function operationsOf({ paths }, schemas) {
  return Object.entries(paths).flatMap(([path, item]) =>
    METHODS.filter((method) => method in item).map((method) => {
      const { requestBody, parameters = [], responses = {}, tags, ...rest } = item[method];
      const [type, media] = Object.entries(schemas.resolve(requestBody).content ?? {})[0] ?? [];
      return {
        ...rest,
        id: `${method}${path.replace(/[^\w]+/g, "-")}`,
        method,
        path,
        group: tags?.[0] ?? (path.startsWith("/v1/") ? "API" : "Server"),
        parameters: [...(item.parameters ?? []), ...parameters].map((parameter) => schemas.resolve(parameter)),
        responses,
        body: type ? { type, schema: media.schema } : null,
      };
    }),
  );
}

function contentsView(operations) {
  const links = operations.map(({ id, method, path, summary }) => {
    const name = element("span", { className: `method ${method}` }, method);
    return element("a", { href: `#${id}`, title: summary ?? "" }, name, breakable(path));
  });
  return element("ul", {}, ...links.map((link) => element("li", {}, link)));
}

// A long path may be broken before a slash, and nowhere else.
function breakable(path) {
  const steps = path.split("/").slice(1);
  return element("span", {}, ...steps.flatMap((step) => [element("wbr"), `/${step}`]));
}

async function show(api) {
  const document = await api.json("openapi.json");
  const model = await api.json("v1/models").then(({ data }) => data[0]?.id, () => null);
  const schemas = new Schemas(document);
  const operations = operationsOf(document, schemas);
  byId("version").textContent = document.info.version;
  byId("introduction").textContent = document.info.description ?? document.info.title;
  byId("contents").replaceChildren();
  for (const old of byId("content").querySelectorAll(".group")) old.remove();
  for (const group of new Set(operations.map((operation) => operation.group))) {
    const members = operations.filter((operation) => operation.group === group);
    byId("contents").append(element("h2", {}, group), contentsView(members));
    const views = members.map((operation) => operationView(operation, schemas, api, model));
    byId("content").append(element("div", { className: "group" }, element("h2", {}, group), ...views));
  }
  window.document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

const api = new Api();
keyDialog(api);
const load = () => show(api).catch((error) => (byId("introduction").textContent = error.message));
api.addEventListener("key", load);
load();
