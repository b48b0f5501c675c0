// Sorting, sums and CSV of tables, independent of the DOM.

const UNITS = { ns: ["ns", 1], us: ["ns", 1e3], ms: ["ns", 1e6], s: ["ns", 1e9], B: ["bytes", 1], kB: ["bytes", 1e3], MB: ["bytes", 1e6], GB: ["bytes", 1e9], TB: ["bytes", 1e12], "%": ["%", 1] };
const NUMBER = /^[≥≤~+]*\s*(-?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?|-?inf(?:inity)?)(?:\s*(ns|us|ms|s|B|kB|MB|GB|TB|%)(?!\w))?/i;

/** Returns {value, unit, isAll} of the number at the beginning of a text, or null; `isAll` if the text is nothing else. */
export function numberOf(text) {
  const found = NUMBER.exec(text.trim());
  if (!found) return null;
  const [unit, factor] = UNITS[found[2]] ?? ["", 1];
  const digits = found[1].replaceAll(",", "").replace(/inf(inity)?/i, "Infinity");
  return { value: Number(digits) * factor, unit, isAll: found[0].length === text.trim().length };
}

const texts = new Intl.Collator("en", { numeric: true });

/** Returns the order of rows by `keys`, which are numbers, texts or null; unknown keys come last in both directions. */
export function orderOf(keys, isDown) {
  const sign = isDown ? -1 : 1;
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? (a < b ? -1 : a > b ? 1 : 0) : texts.compare(String(a), String(b)));
  return keys
    .map((key, index) => index)
    .sort((a, b) => (keys[a] === null) - (keys[b] === null) || (keys[a] === null ? 0 : sign * compare(keys[a], keys[b])) || a - b);
}

/** Returns the rows in sorted order within each group; `groups` holds a number per row that grows from group to group. */
export function orderWithin(groups, keys, isDown) {
  const place = orderOf(keys, isDown);
  return place.sort((a, b) => groups[a] - groups[b]);
}

/** Returns the sum, the mean and the share of each value, or null if none is known. */
export function totalsOf(values) {
  const known = values.filter((value) => Number.isFinite(value));
  if (!known.length) return null;
  const sum = known.reduce((all, value) => all + value, 0);
  return { sum, mean: sum / known.length, shares: values.map((value) => (Number.isFinite(value) && sum > 0 ? value / sum : null)) };
}

/** Returns whether each word of `wanted` is in `text`. */
export function matches(text, wanted) {
  const lower = text.toLowerCase();
  return wanted.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
}

/** Returns rows of cells as CSV. */
export function csvOf(rows) {
  const quoted = (cell) => {
    const text = cell === null ? "" : String(cell);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(quoted).join(",")}\n`).join("");
}

/** Returns the state of a sorted table as a parameter of the address, such as `0.3.down`. */
export function stateText({ table, column, isDown }) {
  return `${table}.${column}.${isDown ? "down" : "up"}`;
}

export function stateOf(text) {
  const found = /^(\d{1,3})\.(\d{1,3})\.(up|down)$/.exec(text ?? "");
  return found && { table: Number(found[1]), column: Number(found[2]), isDown: found[3] === "down" };
}
