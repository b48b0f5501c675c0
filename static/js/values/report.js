// The plots of values in a report.
import { mountPlot } from "#js/values/plots.js";

export function mount(page, route, data, leads) {
  for (const box of page.querySelectorAll("[data-plot]:empty")) mountPlot(box, data.plots[route.page], { root: "#", leads });
}
