// The steps of a report, whose timelines and panels need no server.
import { makeResizable } from "#js/steps/panel_width.js";
import { sumsOf } from "#js/steps/area_model.js";
import { launchOf, linesOf } from "#js/steps/report_launch.js";
import { prepare } from "#js/steps/timeline_model.js";
import { mountStep } from "#js/steps/view.js";

const panel = document.getElementById("panel");
const mounted = new Map();
makeResizable(panel);

export function mount(page, route, data) {
  const view = page.querySelector(".step-view");
  if (!view) {
    panel.hidden = true;
    return;
  }
  const step = mounted.get(route.page) ?? mountStep(view, panel, timelineOf(data, view.dataset), sourceOf(data, view, route));
  mounted.set(route.page, step);
  step.follow(stateOf(location.hash));
  if (route.launch === null) step.close({ push: false });
  else step.open(route.launch, { push: false });
}

function timelineOf(data, { log, step }) {
  return data.steps.find((timeline) => timeline.log === Number(log) && timeline.step === Number(step));
}

/** Returns the parameters of a fragment such as "#/steps/3?log=0&launch=7". */
const stateOf = (hash) => new URLSearchParams(hash.split("?")[1]?.split("#")[0] ?? "");

function sourceOf(data, view, route) {
  const { log, step: own } = view.dataset;
  const timeline = timelineOf(data, { log, step: own });
  const prepared = new Map();
  const dataOf = (step) => {
    if (!prepared.has(step)) prepared.set(step, prepare(timelineOf(data, { log, step })));
    return prepared.get(step);
  };
  const hrefOfStep = (step, launch = null) => `#/steps/${step}?log=${log}${launch === null ? "" : `&launch=${launch}`}`;
  return {
    root: "#",
    window: null,
    live: data.live?.[`${log} ${own}`] ?? null,
    marks: data.marks[`${log} ${own}`] ?? [],
    missing: "Arguments and code of this launch are in the trace but left out to keep the report small.",
    note: dataOf(timeline.step).binned ? "Short launches are joined in this report, and count as launches of the longest kernel among them." : null,
    launch: (id) => launchOf(data, timeline, id),
    timeline: (step) => timelineOf(data, { log, step }) ?? null,
    sums: (step, area = null) => sumsOf(dataOf(step), area ?? { start: -Infinity, end: Infinity }, linesOf(data)),
    hrefOf: (id) => hrefOfStep(own, id),
    hrefOfStep,
    remember(changes, push) {
      if (!view.checkVisibility()) return; // The user has left this page.
      const state = stateOf(location.hash);
      state.set("log", log);
      for (const [name, value] of Object.entries(changes)) {
        if (value === null) state.delete(name);
        else state.set(name, value);
      }
      const hash = `#${route.page.split("?")[0]}?${state}`;
      if (hash !== location.hash) history[push ? "pushState" : "replaceState"](null, "", hash);
    },
  };
}
