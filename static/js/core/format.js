// Formats numbers by the same rules as viewer/text/formats.py, tested with the same cases.

const TIME_UNITS = [[1, "ns"], [1e3, "us"], [1e6, "ms"], [1e9, "s"]];

export function thousands(value) {
  const [whole, fraction] = String(value).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

export function formatNs(value) {
  if (value === null || value === undefined) return "–";
  let scaled = value;
  let unit = "ns";
  for (const [size, name] of TIME_UNITS) {
    scaled = value / size;
    unit = name;
    if (Math.abs(scaled) < 999.5) break;
  }
  const size = Math.abs(scaled);
  if (unit === "ns" || size >= 99.95) return `${thousands(scaled.toFixed(0))} ${unit}`;
  return `${scaled.toFixed(size < 9.995 ? 2 : 1)} ${unit}`;
}

const LONG_UNITS = [[86400e9, "d"], [3600e9, "h"], [60e9, "min"]];

/** Formats times of at least two minutes in minutes, hours or days. */
export function formatLong(ns) {
  const [size, unit] = LONG_UNITS.find(([size]) => ns >= 2 * size) ?? [];
  return unit ? `${thousands((ns / size).toFixed(ns < 10 * size ? 1 : 0))} ${unit}` : formatNs(ns);
}

export function formatBytes(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 1000) return `${value} B`;
  let scaled = value / 1000;
  for (const unit of ["kB", "MB", "GB"]) {
    if (Math.abs(scaled) < 999.95) return `${scaled.toFixed(1)} ${unit}`;
    scaled /= 1000;
  }
  return `${thousands(scaled.toFixed(1))} TB`;
}

export function formatCount(value) {
  return value === null || value === undefined ? "–" : thousands(value);
}

/** Formats a share: "4.5 %", "< 0.1 %". */
export function formatShare(value) {
  const percent = 100 * value;
  if (percent > 0 && percent < 0.05) return "< 0.1 %";
  return `${percent >= 99.95 ? thousands(percent.toFixed(0)) : percent.toFixed(1)} %`;
}

/** Formats the exact bytes, with a larger unit in parentheses if there is one. */
export function exactBytes(value) {
  return value < 1000 ? `${formatCount(value)} B` : `${formatCount(value)} B (${formatBytes(value)})`;
}

/** Formats a tensor element: integers with thousands separators, others with four digits. */
export function formatValue(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size < 1e12 && Number.isInteger(value)) return thousands(value);
  const [digits, power] = value.toExponential(3).split("e").map(Number);
  if (size < 1e-3 || size >= 1e7) return `${digits}e${power}`;
  const text = value.toFixed(Math.max(0, 3 - power));
  return thousands(text.includes(".") ? text.replace(/\.?0+$/, "") : text);
}

/** Encodes a name as one part of a path, like viewer/web/addresses.py. */
export function slugOf(name) {
  const quoted = encodeURIComponent(name).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
  const text = quoted.replaceAll("~", "~7E").replaceAll("%", "~");
  if (name.endsWith(".json") || /^\.+$/.test(name)) return text.replaceAll(".", "~2E");
  return text || "~";
}

export function plural(value, noun) {
  const ending = /(ch|sh|s|x)$/.test(noun) ? "es" : "s";
  return value === 1 ? `1 ${noun}` : `${thousands(value)} ${noun}${ending}`;
}

export function nth(value) {
  const ending = [11, 12, 13].includes(value % 100) ? "th" : { 1: "st", 2: "nd", 3: "rd" }[value % 10] ?? "th";
  return `${thousands(value)}${ending}`;
}

/** Formats a launch and its step: "launch 61 of step 2". */
export function launchText(launch, step = null, ordinal = null) {
  let name = `launch ${launch}`;
  if (launch === null) name = ordinal === null || step === null ? "a launch" : `the ${nth(ordinal)} launch`;
  return step === null ? name : `${name} of step ${step}`;
}

export function formatShape(sizes) {
  if (sizes === null || sizes === undefined) return "–";
  return Array.isArray(sizes) ? `[${sizes.join(", ")}]` : String(sizes);
}

/** Formats a time on an axis with ticks `step` apart, with enough digits to distinguish them. */
export function formatTick(ns, step) {
  if (ns === 0) return "0";
  const [size, unit] = TIME_UNITS.findLast(([size]) => Math.abs(ns) >= size) ?? TIME_UNITS[0];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${thousands((ns / size).toFixed(digits))} ${unit}`;
}

export function basename(path) {
  return path.replaceAll("\\", "/").split("/").pop();
}
