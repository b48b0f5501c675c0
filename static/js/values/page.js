// The served pages with a plot: data stands in the page, the chosen statistic in the address.
import { mountPlot } from "#js/values/plots.js";

const data = JSON.parse(document.getElementById("page-data").textContent);
const box = document.querySelector("[data-plot]");

function remember(statistic) {
  const url = new URL(location.href);
  url.searchParams.set("statistic", statistic);
  history.replaceState(null, "", url);
}

if (box) mountPlot(box, data, { root: "", remember });
