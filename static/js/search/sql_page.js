// The SQL page: a result with start and duration is a timeline, one with a step and numbers a curve.
import { onKeys } from "#js/core/dom.js";
import { ResultTimeline } from "#js/search/result_timeline.js";
import { mountCurve } from "#js/search/result_curve.js";

const query = document.getElementById("query");
query.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) query.form.requestSubmit();
});

const data = document.getElementById("page-data");
if (data) {
  const { view, timeline, curve } = JSON.parse(data.textContent);
  if (view === "timeline") onKeys(new ResultTimeline(document.querySelector(".timeline-box"), timeline, { fetchWindow: null, onOpen: ({ row }) => markRow(row) }).keys());
  else mountCurve(document.querySelector(".plot-box"), curve, markRow);
}

/** Shows a row of the result in the table, which may be sorted. */
function markRow(index) {
  const rows = [...document.querySelectorAll(".answer tbody tr")];
  rows.forEach((row, place) => (row.dataset.row ??= place));
  for (const row of rows) row.classList.toggle("chosen", Number(row.dataset.row) === index);
  document.querySelector(".answer tr.chosen")?.scrollIntoView({ block: "nearest" });
}
