// Served pages with a plot. The page contains the data, and the address the chosen statistic.
import { mountPlot } from "#js/values/plots.js";

const data = JSON.parse(document.getElementById("page-data").textContent);
const box = document.querySelector("[data-plot]");

function remember(statistic) {
  const url = new URL(location.href);
  url.searchParams.set("statistic", statistic);
  history.replaceState(null, "", url);
}

if (box) mountPlot(box, data, { root: "", remember });
