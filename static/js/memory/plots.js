// Plots of the memory pages with a legend that toggles series. The served page and the report differ in `context`.
import { h, svg } from "#js/core/dom.js";
import { exactBytes, formatBytes } from "#js/core/format.js";
import { Plot } from "#js/core/plot.js";
import { graphPlot, hiddenAtFirst, leakPlot, nameOf, recomputePlot, runPlot, sharedAxis, shownPlot, valueLines } from "#js/memory/model.js";

const DASH = { solid: "", dashed: "5 3", dotted: "1.5 2.5" };

function key({ colour, dash = "solid", filled = false }) {
  const line = filled
    ? svg("rect", { x: 1, y: 0, width: 20, height: 8, class: `key-${colour} key-filled` })
    : svg("path", { d: "M1 4h20", class: `key-${colour}`, "stroke-dasharray": DASH[dash] });
  return svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, line);
}

/** Mounts a plot with its legend; `context`: hide (keys, default null), view, open(index), remember({view, hide}), axis(hidden), hint. */
function mount(box, full, context = {}) {
  const hidden = new Set(context.hide ?? hiddenAtFirst(full.series));
  let shown = null;
  const dataOf = () => (shown = { ...shownPlot(full, hidden), ...context.axis?.(hidden) });
  const legend = h("div", { class: "choices series-legend", role: "group", "aria-label": "Series" });
  const picture = h("div", { class: "plot" });
  const tools = h("span", { class: "plot-hint dim" }, context.hint ?? "drag to zoom · double-click to show all");
  const all = h("button", { type: "button", class: "show-all", hidden: !context.view, onclick: () => plot.look(null) }, "All");
  box.replaceChildren(h("div", { class: "plot-tools" }, legend, tools, all), picture);
  const plot = new Plot(picture, dataOf(), {
    format: formatBytes,
    exact: exactBytes,
    open: context.open,
    view: context.view,
    remember(view) {
      all.hidden = view === null;
      context.remember?.({ view });
    },
    lines: (index) => [
      ["", full.names[index]],
      ...full.more(index),
      ...valueLines(shown, index, exactBytes),
      ...shown.markers.filter((marker) => marker.index === index && marker.name).map(({ name, sign }) => [sign ?? "▼", name]),
    ],
    labelOf: (index) => full.labelOf?.(index) ?? null,
    labelsIn: (...asked) => full.labelsIn?.(...asked) ?? null,
  });
  const said = new Map();
  const fill = () => legend.replaceChildren(...full.series.filter(({ silent }) => !silent).map(item));
  const item = (series) => {
    const toggle = h("input", { type: "checkbox", checked: !hidden.has(series.key), onchange: () => {
      if (toggle.checked) hidden.delete(series.key);
      else hidden.add(series.key);
      const line = { live: "line", held: "held line" }[series.key];
      if (line) toggle.checked ? hidden.delete(line) : hidden.add(line);
      if (series.key === "base") for (const [one, name] of said) name.textContent = nameOf(one, hidden);
      plot.show(dataOf());
      context.remember?.({ hide: [...hidden] });
    } });
    const name = h("span", {}, nameOf(series, hidden));
    said.set(series, name);
    return h("label", { class: "series-key" }, toggle, key(series), name);
  };
  fill();
  return {
    plot,
    all,
    replace(next) {
      full = next;
      plot.data = dataOf();
      fill();
    },
  };
}

/** Draws one graph, or two with a shared x zoom, and returns the plots. */
export function mountGraphMemory(boxes, { left, right = null, places, same = false, marks = [] }, context = {}) {
  const plots = [left, right].map((memory, index) => memory && graphPlot(memory, places, index ? [] : marks));
  const axis = right ? (hidden) => sharedAxis(plots, hidden) : undefined;
  const made = [];
  let moving = false;
  const follow = (from, view) => {
    const other = made[1 - from]?.plot;
    if (!other || moving) return;
    moving = true;
    other.look(view && viewOn(view, made[from].plot.count, other.count, same));
    moving = false;
  };
  boxes.forEach((box, index) => {
    made[index] = mount(box, plots[index], {
      ...context,
      axis,
      open: index === 0 && left.nodes ? context.open : undefined,
      hint: index === 0 && left.nodes && context.open ? "drag to zoom · click for live storages" : undefined,
      remember: (change) => {
        if ("view" in change) follow(index, change.view);
        if (index === 0) context.remember?.(change);
      },
    });
  });
  if (context.view && made[1]) follow(0, made[0].plot.view);
  return made.map(({ plot }) => plot);
}

/** Returns the matching range of another graph: the same nodes if the graphs are equal, else in proportion. */
export function viewOn([first, last], count, otherCount, same) {
  if (same) return [first, last];
  const scale = (otherCount - 1) / Math.max(count - 1, 1);
  return [Math.round(first * scale), Math.round(last * scale)];
}

export function mountRecompute(box, detail, context = {}) {
  return mount(box, recomputePlot(detail), { ...context, hide: context.hide ?? ["carried_free", "recomputed_free"] }).plot;
}

/** Mounts the staircases of leaks, one in each box; `open(step, log)` runs on a click. */
export function mountLeaks(boxes, leaks, open) {
  for (const box of boxes) {
    const leak = leaks[Number(box.dataset.leak)];
    mount(box, leakPlot(leak), { open: open && ((index) => open(leak.steps[index], leak.log)), hint: open ? "drag to zoom · click to open the step" : undefined });
  }
}

/**
 * Mounts live bytes over the steps; `context`: marks (findings by step), open(step), fetch(first, last) for a finer curve or null, remember({steps}).
 * After a drag, the server sends the selected range at the resolution of the plot.
 */
export function mountRun(box, curve, context = {}) {
  let now = curve;
  let asked = 0;
  let model = runPlot(curve, context.marks);
  const whole = () => now.steps.length === now.all_steps;

  async function look(first, last) {
    const ticket = ++asked;
    const found = await context.fetch?.(first, last);
    if (ticket !== asked || !found) return;
    now = found;
    model = runPlot(found, context.marks);
    made.replace(model);
    made.plot.view = [0, made.plot.count - 1];
    made.plot.draw();
    made.all.hidden = whole();
    context.remember?.({ steps: whole() ? null : [now.steps[0], now.steps.at(-1)] });
  }

  const made = mount(box, model, {
    hide: ["low"],
    hint: context.fetch ? "drag to zoom · click to open the step" : undefined,
    open: context.open && ((index) => context.open(model.stepAt(index))),
    remember({ view }) {
      if (!context.fetch) return;
      if (view === null) {
        if (!whole()) look(null, null);
      } else if (model.stepAt(view[0]) !== now.steps[0] || model.stepAt(view[1]) !== now.steps.at(-1)) {
        look(model.stepAt(view[0]), model.stepAt(view[1]));
      }
    },
  });
  made.all.hidden = whole();
  return made.plot;
}
