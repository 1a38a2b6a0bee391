// JSON schemas in words, and a small value that fits one.

const BOUNDS = [
  ["minimum", "maximum", ""],
  ["minLength", "maxLength", "characters"],
  ["minItems", "maxItems", "items"],
  ["minProperties", "maxProperties", "entries"],
];

export class Schemas {
  #document;

  constructor(document) {
    this.#document = document;
  }

  // A schema, or what its $ref points to in this document.
  resolve(schema = {}) {
    if (!schema.$ref?.startsWith("#/")) return schema;
    const steps = schema.$ref.slice(2).split("/").map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
    return steps.reduce((value, step) => value?.[step], this.#document) ?? {};
  }

  // The kind of value in a few words: "array of string or null".
  kind(schema) {
    const known = this.resolve(schema);
    if ("const" in known) return JSON.stringify(known.const);
    if (known.enum) return known.enum.map((value) => JSON.stringify(value)).join(" or ");
    const choices = known.anyOf ?? known.oneOf;
    if (choices) return [...new Set(choices.map((choice) => this.kind(choice)))].join(" or ");
    const types = [known.type ?? (known.properties ? "object" : "any value")].flat();
    return types.map((type) => (type === "array" && known.items ? `array of ${this.kind(known.items)}` : type)).join(" or ");
  }

  // Its bounds and default: "0 to 2", "at most 16 items", "default 1".
  limits(schema) {
    const known = this.resolve(schema);
    const parts = BOUNDS.flatMap(([low, high, unit]) => range(known[low], known[high], unit) ?? []);
    if (known.exclusiveMinimum !== undefined) parts.push(`above ${known.exclusiveMinimum}`);
    if (known.exclusiveMaximum !== undefined) parts.push(`below ${known.exclusiveMaximum}`);
    if (known.default !== undefined && known.default !== null) parts.push(`default ${JSON.stringify(known.default)}`);
    return parts.join(", ");
  }

  // The schemas below this one whose fields are worth a table of their own: of an object, an array's items, a choice.
  objects(schema) {
    const known = this.resolve(schema);
    if (known.properties) return [known];
    return [...(known.anyOf ?? known.oneOf ?? []), ...(known.items ? [known.items] : [])].flatMap((inner) => this.objects(inner));
  }

  // The least that can be sent, with something in it.
  example(schema, name = "") {
    const known = this.resolve(schema);
    const given = known.example ?? known.examples?.[0] ?? known.const;
    if (given !== undefined) return given;
    if (known.enum) return known.enum.includes("user") ? "user" : known.enum[0];
    const choices = known.anyOf ?? known.oneOf;
    if (choices) return this.example(choices[0], name);
    const type = [known.type ?? (known.properties ? "object" : "string")].flat()[0];
    if (type === "object") {
      const required = known.required ?? [];
      return Object.fromEntries(required.map((field) => [field, this.example(known.properties?.[field], field)]));
    }
    if (type === "array") return [this.example(known.items)];
    if (type === "integer" || type === "number") return known.default ?? known.minimum ?? 1;
    if (type === "boolean") return known.default ?? false;
    return known.default ?? "Hello";
  }
}

// Bounds of 64-bit integers are written as powers: JavaScript's numbers cannot hold them to the last digit.
function written(bound) {
  if (bound === undefined) return "";
  if (Math.abs(bound) <= Number.MAX_SAFE_INTEGER) return bound.toLocaleString("en", { maximumFractionDigits: 6 });
  return `${bound < 0 ? "-" : ""}2^${Math.round(Math.log2(Math.abs(bound)))}`;
}

function range(low, high, unit) {
  if (low === undefined && high === undefined) return null;
  const [least, most] = [low, high].map(written);
  const bounds = low === undefined ? `at most ${most}` : high === undefined ? `at least ${least}` : `${least} to ${most}`;
  return unit ? `${bounds} ${unit}` : bounds;
}
