// The scale of colours of a map of magnitudes, independent of the DOM.

export const STOPS = ["heat-1", "heat-2", "heat-3", "heat-4", "heat-5"];
export const LEVELS = 24;
/** Least ratio of the ends of a scale: smaller differences must not look like large ones. */
const LEAST_RATIO = 10;
/** Share of the numbers that may lie beyond each end, if the others would look alike without this. */
const CUT_SHARE = 0.01, CUT_RATIO = 1e9;

/** Returns the data of a map in the form of the heat map of launch sites: one row for each tensor. */
export function rowsOfMap(map) {
  const isOutputs = map.kind === "outputs";
  return {
    ...map,
    sites: map.rows.map(({ site }) => site),
    kernels: map.rows.map(({ name }) => name),
    graph_of: map.rows.map(({ graph }) => (isOutputs ? graph : null)),
    joined_sites: map.rows.map(() => 1),
    first_site: map.first_row,
  };
}

/** Returns the ends of a scale for numbers above zero, or null if there are none. `isCut`: some lie beyond the ends. */
export function rangeOf(numbers) {
  const found = numbers.filter((number) => number > 0).sort((a, b) => a - b);
  if (!found.length) return null;
  const cut = found.at(-1) / found[0] > CUT_RATIO ? Math.floor(found.length * CUT_SHARE) : 0;
  const [low, high] = [found[cut], found[found.length - 1 - cut]];
  return { low: Math.min(low, high / LEAST_RATIO), high, isCut: cut > 0 };
}

/** Returns a number with three digits at most, as in 0.017, 123 or 1.2e13. */
export function shortNumber(number) {
  const isPlain = number === 0 || (number >= 0.001 && number < 1e5);
  return isPlain ? String(Number(number.toPrecision(3))) : number.toExponential(1).replace("e+", "e");
}

/** Returns the level of a number above zero on a logarithmic scale, from 0 to LEVELS - 1. */
export function levelOf(number, { low, high }) {
  const share = Math.log(number / low) / Math.log(high / low);
  return Math.min(LEVELS - 1, Math.max(0, Math.floor(share * LEVELS)));
}

/** Returns the colour of each level between the stops, which are written like `rgb(1, 2, 3)`. */
export function rampOf(stops) {
  const parts = stops.map((stop) => stop.match(/[\d.]+/g).slice(0, 3).map(Number));
  return Array.from({ length: LEVELS }, (_, level) => {
    const at = (level / (LEVELS - 1)) * (parts.length - 1);
    const from = Math.min(Math.floor(at), parts.length - 2);
    const mixed = parts[from].map((value, place) => Math.round(value + (at - from) * (parts[from + 1][place] - value)));
    return `rgb(${mixed.join(", ")})`;
  });
}
