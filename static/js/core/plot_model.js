// The model of plots, independent of the DOM: view, ranges, ticks, scales and hit tests.
import { formatValue } from "#js/core/format.js";
import { roundStep } from "#js/core/numbers.js";

/** Returns round ticks between two values, at most about `most`. */
export function linearTicks(low, high, most) {
  const step = roundStep((high - low) / Math.max(most, 1));
  const values = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) values.push(Number((n * step).toPrecision(12)));
  return values;
}

/** Returns powers of ten as ticks, thinned out if there are many, with multiples by 2 and 5 if there are few. */
export function logTicks(low, high, most) {
  const [first, last] = [Math.floor(Math.log10(low) + 1e-9), Math.ceil(Math.log10(high) - 1e-9)];
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(most, 1)));
  const factors = high / low <= 200 ? [1, 2, 5] : [1];
  const values = [];
  for (let power = Math.floor(first / every) * every; power <= last; power += every) {
    for (const factor of factors) values.push(Number(`${factor}e${power}`));
  }
  const inside = (found) => found.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
  const round = inside(values);
  return round.length < 3 && high / low < 10 ? inside(linearTicks(low, high, most)) : round;
}

const finite = (values) => values.filter((value) => value !== null && value !== undefined && Number.isFinite(value));

/** Returns whether a logarithmic axis can show these values, and whether it is the better default. */
export function logFits(values) {
  const known = finite(values);
  const positive = known.filter((value) => value > 0);
  const can = positive.length > 0 && known.every((value) => value >= 0);
  return { can, better: can && Math.max(...extent(positive)) / Math.min(...extent(positive)) > 50 };
}

export function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

const FAR = 1e6;
const END = 8e307;
const inside = (value) => Math.min(END, Math.max(-END, value));

/**
 * Returns the range of an axis with some room. It includes the limit unless that would flatten the curve; `limitAbove`
 * is then true.
 */
export function rangeOf(values, { log = false, limit = null } = {}) {
  const known = finite(values).filter((value) => !log || value > 0);
  let [low, high] = known.length ? extent(known) : [log ? 1 : 0, log ? 10 : 1];
  const near = limit !== null && (log ? limit <= high * FAR : limit <= Math.max(Math.abs(high), Math.abs(low)) * 4);
  if (near) high = Math.max(high, limit);
  if (log) {
    const room = Math.max((high / low) ** 0.05, 1.3);
    return { low: Math.max(low / room, Number.MIN_VALUE), high: Math.min(high * room, Number.MAX_VALUE), limitAbove: limit !== null && !near };
  }
  [low, high] = [inside(low), inside(high)];
  if (low > 0 && low < high * 0.6) low = 0;
  if (low === high) [low, high] = low === 0 ? [0, 1] : [inside(low - Math.abs(low) / 2), inside(high + Math.abs(high) / 2)];
  const room = (high - low) * 0.06;
  return { low: low === 0 ? 0 : inside(low - room), high: inside(high + room), limitAbove: limit !== null && !near };
}

/** Returns the range of all series in view with some room above, from `from` unless a value is lower. */
export function rangeInView(series, [first, last], least = null, from = 0) {
  const known = series.flatMap(({ values }) => values.slice(first, last + 1)).filter((value) => Number.isFinite(value));
  const [low, most] = known.length ? extent(known) : [0, 1];
  const high = Math.max(most, least ?? most);
  const bottom = Math.min(from, low);
  return { low: bottom, high: high > bottom ? high + (high - bottom) * 0.06 : bottom + 1 };
}

/** Returns a sentence about an axis that leaves out zero, or null. */
export function axisStart({ low, high }, format) {
  if (low > 0) return `The axis starts at ${format(low)}.`;
  return high < 0 ? `The axis ends at ${format(high)}.` : null;
}

/** Returns a vertical axis of `size` pixels; `at(value)` counts from the top, with zeros of a log axis at the bottom. */
export function scaleOf({ low, high }, size, log = false, format = formatValue) {
  const place = log ? Math.log10 : (value) => value;
  const [bottom, span] = [place(low), place(high) - place(low)];
  return {
    at: (value) => (log && value <= 0 ? size : size - ((place(value) - bottom) / span) * size),
    ticks: (log ? logTicks(low, high, size / 26) : linearTicks(low, high, size / 36)).map((value) => ({ value, label: format(value) })),
  };
}

/** Returns the first and last point in view, which differ if there are at least two points. */
export function clampView(view, count) {
  if (!view || count < 2) return [0, Math.max(0, count - 1)];
  const [low, high] = [Math.min(...view), Math.max(...view)].map((place) => Math.min(count - 1, Math.max(0, Math.round(place))));
  return low < high ? [low, high] : [Math.max(0, low - 1), Math.min(count - 1, low + 1)];
}

/** Returns the view widened by `factor` around a point that keeps its place. */
export function zoomed([first, last], factor, around, count) {
  const place = Math.min(last, Math.max(first, around));
  return clampView([place - (place - first) * factor, place + (last - place) * factor], count);
}

/** Returns the position of a point on `width` pixels. */
export function placeX(index, [first, last], width) {
  return last > first ? ((index - first) / (last - first)) * width : width / 2;
}

export function pointAt(x, [first, last], width) {
  return Math.min(last, Math.max(first, Math.round(first + (x / Math.max(width, 1)) * (last - first))));
}

/** Returns the smallest of 1, 2, 5, 10, 20, ... that is at least `least`. */
export function roundUp(least) {
  return roundStep(Math.max(least, 1));
}

/** Returns the points with labels: the first of each step, or only of round steps if labels would overlap. */
export function stepLabels(steps, width, least) {
  const firsts = steps.map((step, index) => ({ step, index, x: placeX(index, [0, steps.length - 1], width) })).filter(({ step, index }) => step !== steps[index - 1]);
  const every = roundUp((firsts.length * least) / Math.max(width, 1));
  const span = firsts.length ? firsts.at(-1).step - firsts[0].step : 0;
  const round = roundUp((span * least) / Math.max(width, 1));
  const found = firsts.filter(({ step }) => step % round === 0);
  const chosen = every > 1 && found.length > 1 ? found : firsts;
  let right = -Infinity;
  return chosen.filter(({ x }) => x - right >= least && ((right = x), true));
}

/** Returns evenly spaced points whose labels do not overlap. */
export function labelled(view, width, least) {
  const [first, last] = view;
  const every = Math.max(1, Math.ceil(((last - first) * least) / Math.max(width, 1)));
  const found = [];
  for (let index = first; index <= last; index += every) found.push(index);
  return found;
}

/** Returns the signs along the top, keeping the worst of overlapping ones; `order` lists names from the worst on. */
export function thinned(marks, view, width, least, order) {
  const found = [];
  for (const { index, name } of marks) {
    const x = placeX(index, view, width);
    const last = found.at(-1);
    if (!last || x - last.x >= least) found.push({ x, index, name });
    else if (order.indexOf(name) < order.indexOf(last.name)) Object.assign(last, { index, name });
  }
  return found;
}
