// The result of a statement as a curve, with one line for each rank; buttons choose the column.
import { h, svg } from "#js/core/dom.js";
import { formatBytes, formatNs, formatValue } from "#js/core/format.js";
import { Plot } from "#js/core/plot.js";
import { rangeOf } from "#js/core/plot_model.js";
import { setState } from "#js/core/address.js";
import { linesOf } from "#js/search/result_model.js";

const COLOURS = ["accent", "estimated", "good", "critical", "muted"];
const DASHES = { solid: null, dashed: "6 4", dotted: "2 3" };
const formatOf = (name) => (/_ns$/.test(name) ? formatNs : /bytes$/.test(name) ? formatBytes : formatValue);
const exact = (value) => (value === null ? "– (NULL)" : String(value));

export function mountCurve(box, curve, open) {
  const { along, series } = curve;
  const { x, names: lines, rows, valuesOf } = linesOf(curve);
  const names = Object.keys(series);
  const asked = new URL(location.href).searchParams.get("column");
  let chosen = names.includes(asked) ? asked : names[0];
  const styled = lines.map((name, place) => ({ name, colour: COLOURS[place % COLOURS.length], dash: Object.keys(DASHES)[Math.floor(place / COLOURS.length) % 3] }));
  const seriesOf = () => valuesOf(chosen).map((values, place) => ({ ...styled[place], name: lines[place] || chosen, values, dots: x.length < 400 && lines.length === 1 }));
  const dataOf = () => ({ label: `${chosen} over ${along}`, names: x.map((value) => `${along} ${value}`), series: seriesOf(), range: rangeOf(series[chosen]) });
  const buttons = names.map((name) => h("button", { type: "button", onclick: () => choose(name) }, name));
  const picture = h("div", { class: "plot" });
  const legend = lines.length > 1 && h("div", { class: "choices series-legend" }, ...styled.map(keyOf));
  box.replaceChildren(h("div", { class: "plot-tools" }, h("div", { class: "choices", role: "group", "aria-label": "Column" }, ...buttons), legend || "", h("span", { class: "plot-hint dim" }, "drag to zoom · double-click to show all")), picture);
  const told = (index) => (lines.length > 1 ? valuesOf(chosen).map((values, place) => [lines[place], exact(values[index])]) : names.map((name) => [name, exact(valuesOf(name)[0][index])]));
  const options = { format: (value) => formatOf(chosen)(value), exact, open: (index) => open(rows[index]), lines: (index) => [["", `${along} ${x[index]}`], ...told(index)] };
  const plot = new Plot(picture, dataOf(), options);
  press();

  function choose(name) {
    chosen = name;
    plot.show(dataOf());
    press();
    setState({ column: name });
  }

  function press() {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(names[index] === chosen)));
  }
}

function keyOf({ name, colour, dash }) {
  const line = svg("path", { d: "M1 4h20", class: `key-${colour}`, "stroke-dasharray": DASHES[dash] });
  return h("span", { class: "series-key" }, svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, line), name);
}
