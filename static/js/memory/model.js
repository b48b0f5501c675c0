// Models of the memory plots, independent of the DOM: their series, markers and tooltips.
import { formatBytes, formatNs } from "#js/core/format.js";
import { roundStep } from "#js/core/numbers.js";
import { extent } from "#js/core/plot_model.js";

const FAR = 4;
const BASE = "base: inputs and parameters that stay";

/** Returns the kernel and the model line of a launch site. */
function placeOf({ kernels, lines, sites }, site) {
  const [kernel, line] = sites[site] ?? [null, null];
  return [kernel === null ? undefined : kernels[kernel], line === null ? undefined : lines[line]];
}

/** Returns the plot of a graph by scheduler node with `marks` of findings at nodes, or by launch if the schedule is unknown. */
export function graphPlot(memory, places, marks = []) {
  const at = (site) => placeOf(places, site);
  return memory.nodes ? byNode(memory, at, marks) : byLaunch(memory, at);
}

function byNode({ nodes, call, base_bytes: base, estimated_peak: estimated, measured_peak: measured, label }, at, marks) {
  const estimatedBase = nodes.snode.map(() => base);
  const floor = call ? nodes.measured_base_bytes : estimatedBase;
  const ofEstimate = call && base !== null && floor.some((value) => value !== null && value !== base) ? `base of ${formatBytes(base)}` : "base";
  const series = [
    { key: "base", name: BASE, colour: "muted", filled: true, values: floor },
    { key: "alloc", name: "estimated after alloc", colour: "estimated", values: nodes.after_alloc_bytes, on: estimatedBase, onName: ofEstimate },
    { key: "free", name: "estimated after free", colour: "estimated", dash: "dashed", values: nodes.after_free_bytes, on: estimatedBase, onName: ofEstimate },
    { key: "measured", name: "measured", colour: "accent", values: nodes.measured_bytes, on: nodes.measured_base_bytes, onName: "base" },
    ...allocator(nodes.allocated_bytes, nodes.reserved_bytes),
  ];
  const markers = [...peaks(estimated, "alloc", "estimated peak"), ...peaks(measured, "measured", "measured peak")];
  const more = (index) => {
    return [
      ...where(...at(nodes.site[index]), "no launch of this node"),
      ...(nodes.mismatches[index] ? [["✖", `${nodes.mismatches[index]} lifetime ${nodes.mismatches[index] === 1 ? "mismatch" : "mismatches"}`]] : []),
    ];
  };
  const found = atNodes(marks);
  const wrong = nodes.mismatches.flatMap((count, index) => (count && !found.has(index) ? [{ index, name: "", sign: "✖", severity: "critical" }] : []));
  return { label: `Memory of ${label} by scheduler node`, names: nodes.snode, series: known(series), markers: [...markers, ...wrong, ...found.values()], more };
}

/** Returns a marker for each node that findings name: that of the worst finding, which comes first. */
function atNodes(marks) {
  const found = new Map();
  for (const { snode_index: index, sign, severity, title } of marks.filter((mark) => mark.snode_index !== null)) {
    const others = marks.filter((mark) => mark.snode_index === index).length - 1;
    const more = others ? `, and ${others} more ${others === 1 ? "finding" : "findings"}` : "";
    if (!found.has(index)) found.set(index, { index, sign, severity, name: title + more });
  }
  return found;
}

function byLaunch({ positions, measured_peak: measured, label }, at) {
  const asked = (column) => {
    const values = positions.live_bytes.map(() => null);
    positions.allocator_position.forEach((position, index) => (values[position] = column[index]));
    return values;
  };
  const series = [
    { key: "base", name: BASE, colour: "muted", filled: true, values: positions.base_bytes },
    { key: "measured", name: "measured", colour: "accent", values: positions.live_bytes, on: positions.base_bytes, onName: "base" },
    ...allocator(asked(positions.allocated_bytes), asked(positions.reserved_bytes)),
  ];
  const last = positions.live_bytes.length - 1;
  const names = positions.live_bytes.map((_, index) => (index === last ? "end" : `launch ${positions.launch[index]}`));
  const markers = measured ? [{ index: measured.position, key: "measured", name: "measured peak" }] : [];
  const more = (index) => where(...at(positions.site[index]), "the end of the call");
  return { label: `Memory of ${label} by launch`, names, series: known(series), markers, more };
}

/** The allocator's own figures include the base and all other memory of the process. */
function allocator(allocated, reserved) {
  return [
    { key: "allocated", name: "allocator, allocated by the process", colour: "good", dash: "dotted", values: allocated },
    { key: "reserved", name: "allocator, reserved by the process", colour: "warning", dash: "dotted", values: reserved },
  ];
}

const known = (series) => series.filter(({ values }) => values.some((value) => value !== null && value !== undefined));
const peaks = (peak, key, name) => (peak?.snode_indices ?? []).map((index) => ({ index, key, name }));

function where(kernel, source, otherwise) {
  return [["", kernel ?? otherwise], ...(source ? [["", source]] : [])];
}

const highest = ({ values }) => values.reduce((most, value) => Math.max(most, value ?? 0), 0);
const isMain = ({ key }) => ["alloc", "free", "measured"].includes(key);

/** Returns the keys of series that start hidden because they would flatten the estimated and measured curves. */
export function hiddenAtFirst(series) {
  const top = Math.max(0, ...stacked(series).filter(isMain).map(highest));
  if (!top) return [];
  return series.filter((one) => ["allocated", "reserved"].includes(one.key) && highest(one) > FAR * top).map(({ key }) => key);
}

/** Returns the series with those that have a base on top of it; `own` are their values without it. */
function stacked(series) {
  return series.map((one) => (one.on ? { ...one, own: one.values, values: one.values.map((value, index) => (value === null ? null : value + (one.on[index] ?? 0))) } : one));
}

/** Returns the name of a series; a curve that stands on the base says so. */
export function nameOf({ name, onName }, hidden) {
  return onName && !hidden.has("base") ? `${name} + ${onName}` : name;
}

/** Returns the plot with the visible series only; each marker gets the new index of its series. */
export function shownPlot(plot, hidden) {
  const hasBase = plot.series.some(({ key }) => key === "base") && !hidden.has("base");
  const visible = plot.series.filter(({ key }) => !hidden.has(key)).map((one) => ({ stepped: true, ...one, name: nameOf(one, hidden) }));
  const series = hasBase ? stacked(visible) : visible;
  const place = new Map(series.map(({ key }, index) => [key, index]));
  const markers = plot.markers.filter(({ key }) => key === undefined || place.has(key)).map((marker) => ({ ...marker, series: place.get(marker.key) }));
  return { ...plot, series, markers, from: hasBase ? axisStart(series) : 0 };
}

/** Returns where the axis starts: at zero, or at a round value in a base so high that it would flatten the curves. */
function axisStart(series) {
  const floor = series.find(({ key }) => key === "base");
  const [lowest] = extent([floor?.values, ...series.map(({ on }) => on)].flatMap((values) => (values ?? []).filter((value) => value !== null)));
  const span = Math.max(...series.filter(isMain).map(highest)) - lowest;
  if (!Number.isFinite(span) || span <= 0 || lowest <= FAR * span) return 0;
  const step = roundStep(span / 2);
  return Math.max(0, Math.floor((lowest - span / 4) / step) * step);
}

/** Returns the axis that several plots share: where it starts, and the value that it reaches at least. */
export function sharedAxis(plots, hidden) {
  const shown = plots.map((plot) => shownPlot(plot, hidden));
  return { from: Math.min(...shown.map(({ from }) => from)), least: Math.max(...shown.flatMap(({ series }) => series.filter(isMain).map(highest)), 0) };
}

/** Returns the lines of the tooltip for values: a curve on the base has its own value and the sum. */
export function valueLines({ series }, index, exact) {
  return series
    .filter(({ silent }) => !silent)
    .map(({ name, values, own }) => {
      const value = values[index] ?? null;
      if (value === null) return [name, "– (not recorded)"];
      return own ? [name, `${exact(own[index])} + ${formatBytes(value - own[index])} = ${formatBytes(value)}`] : [name, exact(value)];
    });
}

export function recomputePlot(detail) {
  const series = [
    { key: "before", name: "before the swap, after alloc", colour: "muted", dash: "dotted", values: detail.before_after_alloc_bytes },
    { key: "carried", name: "updated, after alloc", colour: "estimated", values: detail.carried_after_alloc_bytes },
    { key: "carried_free", name: "updated, after free", colour: "estimated", dash: "dashed", values: detail.carried_after_free_bytes },
    { key: "recomputed", name: "recomputed, after alloc", colour: "accent", values: detail.recomputed_after_alloc_bytes },
    { key: "recomputed_free", name: "recomputed, after free", colour: "accent", dash: "dashed", values: detail.recomputed_after_free_bytes },
  ];
  const { peak_snodes: at, candidate, group } = detail.row;
  const markers = at.map((index) => ({ index, key: "recomputed", name: at.length > 1 ? `recomputed peak, one of ${at.length} nodes` : "recomputed peak" }));
  const moved = new Set(group);
  const differs = new Set(detail.differs);
  const more = (index) => [
    ...(detail.snode[index] === candidate ? [["", "moved node"]] : []),
    ...(moved.has(detail.snode[index]) ? [["", "in the group that the node moved past"]] : []),
    ...(differs.has(index) ? [["✖", "the figures differ here"]] : []),
  ];
  return { label: "Memory figures around a swap", names: detail.snode, series: known(series), markers, more };
}

/** Returns the first point of every step in view, or of every n-th step when labels would overlap. */
export function stepLabels([first, last], width, least, stepAt) {
  const firsts = [];
  for (let point = first; point <= last; point++) if (point === first || stepAt(point) !== stepAt(point - 1)) firsts.push(point);
  const every = Math.max(1, Math.ceil((firsts.length * least) / Math.max(width, 1)));
  return firsts.filter((_, index) => index % every === 0);
}

/** Returns the plot of live bytes over steps of equal width; `marks` are findings by step. */
export function runPlot(curve, marks = []) {
  const count = curve.high_bytes.length;
  const place = (point) => (point * curve.steps.length) / count;
  const stepAt = (point) => Math.min(curve.steps.length - 1, Math.floor(place(point) + 1e-9));
  const inside = (point) => {
    const step = stepAt(point);
    const end = curve.start_ns[step + 1] ?? curve.end_ns;
    return Math.round((place(point) - step) * (end - curve.start_ns[step]));
  };
  const series = [
    { key: "live", name: "live", colour: "accent", filled: true, values: curve.high_bytes },
    { key: "line", name: "", colour: "accent", values: curve.high_bytes, silent: true },
    { key: "low", name: "minimum", colour: "accent", dash: "dotted", values: curve.low_bytes },
    { key: "made", name: "allocated by compiled calls", colour: "estimated", values: curve.made_bytes },
  ];
  const top = curve.high_bytes.reduce((best, value, index) => (value > curve.high_bytes[best] ? index : best), 0);
  const names = curve.high_bytes.map((_, point) => `step ${curve.steps[stepAt(point)]} +${formatNs(inside(point))}`);
  const label = (point) => `step ${curve.steps[stepAt(point)]}`;
  const found = marks.flatMap(({ step, severity, sign, title }) => {
    const index = names.findIndex((_, point) => curve.steps[stepAt(point)] === step);
    return index < 0 ? [] : [{ index, key: "line", name: title, sign, severity }];
  });
  const markers = count ? [{ index: top, key: "line", name: "peak" }, ...found] : [];
  const labelsIn = (view, width, least) => stepLabels(view, width, least, stepAt);
  return { label: "Live bytes over the steps", labelsIn, names, series, markers, labelOf: label, stepAt: (point) => curve.steps[stepAt(point)], more: () => [] };
}

/** Returns the plot of a leak: live bytes at the end of each step, and the part that the leaking steps left. */
export function leakPlot({ steps, live_bytes: live, held_bytes: held, left_bytes: left }) {
  const names = steps.map((step) => `end of step ${step}`);
  const series = [
    { key: "live", name: "live at the end of the step", colour: "accent", values: live },
    { key: "held", name: "part of this leak", colour: "critical", filled: true, values: held },
    { key: "held line", name: "", colour: "critical", values: held, silent: true },
  ];
  const markers = left.flatMap((bytes, index) => (bytes ? [{ index, key: "held line", name: `${formatBytes(bytes)} left by this step` }] : []));
  return { label: "Live bytes at the end of each step", names, series: known(series), markers, labelOf: (index) => `step ${steps[index]}`, more: () => [] };
}
