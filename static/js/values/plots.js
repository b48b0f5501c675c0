// Plots of the pages about values. Served pages and reports differ only in `context`: root, remember(statistic).
import { h, svg } from "#js/core/dom.js";
import { formatNs, formatValue, slugOf } from "#js/core/format.js";
import { countsText } from "#js/core/health.js";
import { Plot } from "#js/core/plot.js";
import { logFits, rangeOf, stepLabels } from "#js/core/plot_model.js";
import { goTo } from "#js/core/server.js";
import { NONFINITE, STATISTICS, vocabulary } from "#js/core/vocabulary.js";
import { HeatMap } from "#js/values/heat.js";
import { MagnitudeMap, scaleLegend } from "#js/values/magnitudes.js";
import { byOwner } from "#js/values/owners.js";

const WHY = "no finite element, or not read";

/** Opens an address if it exists, because a report contains only some pages. */
function go(context, address) {
  const href = `${context.root}${address}`;
  if (context.leads?.(href) ?? true) goTo(href);
}

function openAt(context, log) {
  return (launch, step) => go(context, `/steps/${step}?log=${log}&launch=${launch}`);
}

/** Returns a switch between a linear and a logarithmic axis, disabled with the reason if the values allow only one. */
function logSwitch(log, can, change) {
  const box = h("input", { type: "checkbox", checked: log, disabled: !can, onchange: () => change(box.checked) });
  return h("label", { class: "log-switch", title: can ? null : "A logarithmic axis needs values above zero and no negative ones." }, box, " log axis");
}

function frame(box, ...tools) {
  const picture = h("div", { class: "plot" });
  box.replaceChildren(h("div", { class: "plot-tools" }, ...tools.filter(Boolean)), picture);
  return picture;
}

function marksOf(names) {
  return names.flatMap((name, index) => (NONFINITE.includes(name) ? [{ index, name }] : []));
}

/** Returns the data of a plot with one value per point, in order of time. */
function dataOf({ values, series = [{ values, dots: true }], limit, steps, marks, label }, log) {
  const range = rangeOf(values, { log, limit: limit?.value ?? null });
  return { label, names: steps.map((step) => `step ${step}`), steps, series, marks, limit, log, range };
}

function plotOf(box, data, lines, open) {
  const labelsIn = (view, width) => stepLabels(data.steps, width, 68).map(({ index }) => index);
  return new Plot(box, data, { lines, open, labelsIn, isFixed: true });
}

/** Returns the value as shown, with all digits if some are cut. */
function exact(value, reason) {
  if (value === null || value === undefined) return `– (${reason})`;
  const shown = formatValue(value);
  return Number.isInteger(value) || shown === String(value) ? shown : `${shown} (${value})`;
}

function mountBuffer(box, { buffer: detail, log }, context) {
  const { versions, steps, kernels, names, start_ns: starts, limit, row } = detail;
  const open = openAt(context, log);
  const values = versions.map((version) => version.largest);
  const fits = logFits(values);
  const series = byOwner(values, names);
  const shown = {
    values,
    series,
    limit: limit === null ? null : { value: limit, label: `${row.dtype} limit ${formatValue(limit)}` },
    steps,
    marks: marksOf(versions.map(({ health }) => health)),
    label: `Largest magnitude of ${row.buffer}`,
  };
  const lines = (index) => {
    const version = versions[index];
    const why = version.skipped ?? (version.at_least ? "unknown" : "no finite element");
    return [
      ["", `${series.length > 1 ? `${names[index]} ` : ""}${version.moment} ${kernels[index]}`],
      ["", `step ${steps[index]} · launch ${version.launch} · +${formatNs(starts[index])}`],
      ["largest", exact(version.largest, why)],
      ["min … max", `${formatValue(version.min)} … ${formatValue(version.max)}`],
      ["", version.skipped ?? countsText(version)],
    ];
  };
  const tools = logSwitch(fits.can, fits.can, (log) => plot.show(dataOf(shown, log)));
  const plot = plotOf(frame(box, ownersLegend(series, row, context), tools), dataOf(shown, fits.can), lines, (index) => open(versions[index].launch, steps[index]));
}

/** Names the buffers that had the memory in turn, each with a link; null if there was only one. */
function ownersLegend(series, { graph }, context) {
  if (series.length < 2) return null;
  const items = series.map(({ name, colour }, place) => {
    const href = `${context.root}/graphs/${graph}/buffers/${slugOf(name)}`;
    const key = svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, svg("path", { d: "M1 4h20", class: `key-${colour}` }));
    const text = context.root ? h("span", { class: "mono" }, name) : h("a", { class: "mono", href }, name);
    return h("span", { class: "series-key" }, key, place ? "then " : "", text, place ? " in the same memory" : "");
  });
  return h("div", { class: "choices series-legend" }, ...items);
}

function mountCurve(box, { curve, log }, context) {
  const open = openAt(context, log);
  const names = vocabulary.choices.filter((name) => curve.columns[name]);
  let chosen = box.dataset.statistic;
  const marks = marksOf(curve.launch.map((_, index) => markAt(curve.columns, index)));
  const shown = (log) => {
    const label = `${titleOf(chosen)} of ${curve.name}`;
    return dataOf({ values: curve.columns[chosen], limit: limitOf(curve, chosen), steps: curve.step, marks, label }, log);
  };
  const lines = (index) => [
    ["", `step ${curve.step[index]} · launch ${curve.launch[index]}`],
    [titleOf(chosen), exact(curve.columns[chosen][index], WHY)],
    ...names.filter((name) => name !== chosen && isWorthALine(name, curve.columns[name][index])).map((name) => [titleOf(name), formatValue(curve.columns[name][index])]),
  ];
  const buttons = names.map((name) => h("button", { type: "button", "data-name": name, onclick: () => choose(name, true) }, titleOf(name)));
  const tools = h("span", { class: "axis-tool" });
  const picture = frame(box, h("div", { class: "choices", role: "group", "aria-label": "Statistic" }, ...buttons), tools);
  const plot = plotOf(picture, shown(false), lines, (index) => open(curve.launch[index], curve.step[index]));

  function choose(name, push = false) {
    chosen = name;
    for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.name === name);
    const fits = logFits(curve.columns[name]);
    tools.replaceChildren(logSwitch(fits.better, fits.can, (on) => plot.show(shown(on))));
    plot.show(shown(fits.better));
    if (push) context.remember?.(name);
  }
  choose(chosen);
}

const titleOf = (name) => STATISTICS[name].title || STATISTICS[name].label;

/** Zero counts are left out of the tooltip; the table shows them. */
function isWorthALine(name, value) {
  return value !== null && !(STATISTICS[name].kind !== "number" && value === 0);
}

function limitOf({ limit, dtype }, name) {
  if (limit === null || !["largest", "max"].includes(name)) return null;
  return { value: limit, label: `${dtype ?? "dtype"} limit ${formatValue(limit)}` };
}

function markAt(columns, index) {
  return NONFINITE.find((name) => columns[name]?.[index] > 0) ?? "finite";
}

function mountHeat(box, { heat }, context) {
  const to = (path, window, place = "") => go(context, `${path}?${new URLSearchParams({ log: heat.log, ...window })}${place}`);
  const toLaunch = openAt(context, heat.log);
  const map = new HeatMap(box, heat, {
    open: (window, found) => (found ? toLaunch(found.launch, found.step) : to("/values/launch", window)),
    // A report contains no finer data.
    zoom: context.root ? null : (window, cell) => to("/values", window, `#at=${Object.values(cell)}`),
  });
  const at = context.root ? null : /^#at=(\d+),(\d+),(\d+),(\d+)$/.exec(location.hash)?.slice(1).map(Number);
  if (at) map.goTo({ first_site: at[0], last_site: at[1], first_step: at[2], last_step: at[3] });
}

function mountMagnitudes(box, { map, chosen, chosen_step: step }, context) {
  const toLaunch = openAt(context, map.log);
  const closer = ({ first_step, last_step }) => {
    const url = new URL(location.href);
    for (const [name, value] of Object.entries({ first_step, last_step })) url.searchParams.set(name, value);
    goTo(url.href);
  };
  const scale = scaleLegend();
  const byRow = h("input", { type: "checkbox", onchange: () => scale.show(heat.setScale(byRow.checked)) });
  const isEmpty = map.numbers.every((row) => row.every((number) => number === null)); // as in a redacted report
  const tools = h("div", { class: "heat-tools", hidden: isEmpty }, scale.legend, h("label", {}, byRow, "a scale for each row"));
  const picture = h("div", { class: "heat-box" });
  box.replaceChildren(tools, picture);
  const heat = new MagnitudeMap(picture, map, {
    open: (window, found) => toLaunch(found.launch, found.step),
    zoom: context.root ? null : closer,
  });
  scale.show(heat.setScale(false));
  if (chosen !== null) heat.goToRow(chosen, step);
}

const MOUNTS = { buffer: mountBuffer, curve: mountCurve, heat: mountHeat, magnitudes: mountMagnitudes };

/** Draws the plot that `data-plot` of the box names. */
export function mountPlot(box, data, context) {
  MOUNTS[box.dataset.plot](box, data, context);
}
