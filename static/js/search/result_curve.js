// The result of a statement as a curve; buttons choose the column.
import { h } from "#js/core/dom.js";
import { formatBytes, formatNs, formatValue } from "#js/core/format.js";
import { Plot } from "#js/core/plot.js";
import { rangeOf } from "#js/core/plot_model.js";
import { setState } from "#js/core/address.js";

const formatOf = (name) => (/_ns$/.test(name) ? formatNs : /bytes$/.test(name) ? formatBytes : formatValue);
const exact = (value) => (value === null ? "– (NULL)" : String(value));

export function mountCurve(box, { along, x, series, row }, open) {
  const names = Object.keys(series);
  const asked = new URL(location.href).searchParams.get("column");
  let chosen = names.includes(asked) ? asked : names[0];
  const dataOf = () => ({ label: `${chosen} over ${along}`, names: x.map((value) => `${along} ${value}`), series: [{ name: chosen, values: series[chosen], dots: x.length < 400 }], range: rangeOf(series[chosen]) });
  const buttons = names.map((name) => h("button", { type: "button", onclick: () => choose(name) }, name));
  const picture = h("div", { class: "plot" });
  box.replaceChildren(h("div", { class: "plot-tools" }, h("div", { class: "choices", role: "group", "aria-label": "Column" }, ...buttons), h("span", { class: "plot-hint dim" }, "drag to zoom · double-click to show all")), picture);
  const options = { format: (value) => formatOf(chosen)(value), exact, open: (index) => open(row[index]), lines: (index) => [["", `${along} ${x[index]}`], ...names.map((name) => [name, exact(series[name][index])])] };
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
