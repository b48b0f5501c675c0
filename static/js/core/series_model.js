// Several series over points that have names, without a screen: the part in view, its range, where labels go.
import { extent, linearTicks } from "#js/core/plot_model.js";

/** First and last point in view; at least two of them where there are two. */
export function clampView(view, count) {
  if (!view || count < 2) return [0, Math.max(0, count - 1)];
  const [low, high] = [Math.min(...view), Math.max(...view)].map((place) => Math.min(count - 1, Math.max(0, Math.round(place))));
  return low < high ? [low, high] : [Math.max(0, low - 1), Math.min(count - 1, low + 1)];
}

/** The view made `factor` times as wide around a point that keeps its place. */
export function zoomed([first, last], factor, around, count) {
  const place = Math.min(last, Math.max(first, around));
  return clampView([place - (place - first) * factor, place + (last - place) * factor], count);
}

/** Range of all series in view, with some room above; from zero unless something is negative. */
export function rangeInView(series, [first, last], least = null) {
  const known = series.flatMap(({ values }) => values.slice(first, last + 1)).filter((value) => Number.isFinite(value));
  const [low, most] = known.length ? extent(known) : [0, 1];
  const high = Math.max(most, least ?? most);
  const bottom = Math.min(0, low);
  return { low: bottom, high: high > bottom ? high + (high - bottom) * 0.06 : bottom + 1 };
}

export function ticksOf({ low, high }, size) {
  return linearTicks(low, high, size / 36);
}

/** Where a point stands on `width` pixels. */
export function placeX(index, [first, last], width) {
  return last > first ? ((index - first) / (last - first)) * width : width / 2;
}

export function pointAt(x, [first, last], width) {
  return Math.min(last, Math.max(first, Math.round(first + (x / Math.max(width, 1)) * (last - first))));
}

/** Points whose label is written: evenly spaced, none over another. */
export function labelled(view, width, least) {
  const [first, last] = view;
  const every = Math.max(1, Math.ceil(((last - first) * least) / Math.max(width, 1)));
  const found = [];
  for (let index = first; index <= last; index += every) found.push(index);
  return found;
}
