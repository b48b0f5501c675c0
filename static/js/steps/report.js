// The steps of a report, whose timelines and panels need no server.
import { makeResizable } from "#js/steps/panel_width.js";
import { launchOf } from "#js/steps/report_launch.js";
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
  let step = mounted.get(route.page);
  if (!step) {
    const timeline = data.steps.find(({ log, step }) => log === Number(view.dataset.log) && step === Number(view.dataset.step));
    step = mountStep(view, panel, timeline, {
      root: "#",
      window: null,
      live: data.live?.[`${timeline.log} ${timeline.step}`] ?? null,
      missing: "Arguments and code of this launch are in the trace but left out to keep the report small.",
      launch: (id) => launchOf(data, timeline, id),
      hrefOf: (id) => `#${route.page}&launch=${id}`,
      remember({ launch }, push) {
        if (launch === undefined) return;
        const hash = `#${route.page}${launch === null ? "" : `&launch=${launch}`}`;
        if (hash !== location.hash) history[push ? "pushState" : "replaceState"](null, "", hash);
      },
    });
    mounted.set(route.page, step);
  }
  if (route.launch === null) step.close({ push: false });
  else step.open(route.launch, { push: false });
}
