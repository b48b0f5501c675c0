// Plots and treemaps of the memory pages in a report, which contains all of their data.
import { mountGraphMemory, mountLeaks, mountRecompute, mountRun } from "#js/memory/plots.js";
import { mountTreemap } from "#js/memory/treemap.js";

export function mount(page, route, { memory, curve_marks: marks }, leads) {
  const data = memory[route.page];
  for (const box of page.querySelectorAll(".treemap:empty")) mountTreemap(box, { root: "#" });
  if (!data) return;
  const empty = (name) => page.querySelector(`[${name}]:empty`);
  if (data.left && empty("data-memory")) {
    const [plot] = mountGraphMemory([empty("data-memory")], data);
    const snode = page.querySelector(".node-memory")?.dataset.snode;
    if (snode !== undefined && data.left.nodes) plot.mark(Number(snode));
  }
  if (data.recompute && empty("data-recompute")) mountRecompute(empty("data-recompute"), data.recompute);
  const go = (step, log) => {
    const href = `#/steps/${step}?log=${log}`;
    if (leads(href)) location.href = href;
  };
  if (data.leaks) mountLeaks(page.querySelectorAll("[data-leak]:empty"), data.leaks, go);
  if (data.run && empty("data-run-memory")) {
    mountRun(empty("data-run-memory"), data.run, { marks: marks[data.run.log], open: (step) => go(step, data.run.log) });
  }
}
