// Numbers as people read them. Null and undefined are a dash.

const NONE = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  return isNumber(value) ? whole.format(value) : NONE;
}

// Three digits, or all the whole ones: 0.42, 7.31, 42.6, 1,204.
export function rate(value) {
  if (!isNumber(value)) return NONE;
  return Math.abs(value) >= 100 ? whole.format(value) : precise.format(value);
}

export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (seconds < 0.001) return seconds === 0 ? "0 ms" : `${precise.format(seconds * 1000)} ms`;
  if (seconds < 1) return `${rate(seconds * 1000)} ms`;
  if (seconds < 60) return `${precise.format(seconds)} s`;
  return age(seconds);
}

// Two units at most: 42 s, 3 min 5 s, 2 h 10 min, 4 d 3 h.
export function age(seconds) {
  if (!isNumber(seconds)) return NONE;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const at = units.findIndex(([, size]) => seconds >= size);
  if (at === -1) return "0 s";
  const [unit, size] = units[at];
  const text = `${Math.floor(seconds / size)} ${unit}`;
  const next = units[at + 1];
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return rest ? `${text} ${rest} ${next[0]}` : text;
}

export function share(value) {
  return isNumber(value) ? `${precise.format(value * 100)} %` : NONE;
}

export function bytes(value) {
  if (!isNumber(value)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const at = value < 1 ? 0 : Math.min(Math.floor(Math.log2(value) / 10), units.length - 1);
  return `${rate(value / 1024 ** at)} ${units[at]}`;
}
