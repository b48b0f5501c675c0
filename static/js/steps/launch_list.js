// The launches in view as a table, for keyboards, screen readers and text search.
import { h, known, middle } from "#js/core/dom.js";
import { formatNs, formatTick, plural, thousands } from "#js/core/format.js";
import { verdictBadge } from "#js/judged/badge.js";
import { launchesIn } from "#js/steps/timeline_model.js";
import { healthBadge } from "#js/values/lines.js";

const MOST = 500;

/**
 * `hrefOf(launch)` is the link of a row, `go(launch)` opens it on this page, `withHealth` if values were recorded, `withVerdict` if
 * the step was judged, `marks` are the findings of the step, whose pages are below `root`.
 */
export function launchList(box, tally, { hrefOf, go, withHealth = false, withVerdict = false, marks = [], root = "" }) {
  let selected = null;
  let shown = null;
  const body = h("tbody");
  const note = h("p", { class: "note" });
  const head = ["launch", "start", "host time", "kind", ...(withHealth ? ["worst output"] : []), ...(withVerdict ? ["judge"] : []), "kernel"].map((name, index) => h("th", { class: index < 3 ? "num" : name === "judge" ? "of-judge" : null }, name));
  box.replaceChildren(h("div", { class: "scroll" }, h("table", { "data-filtered": true, class: withHealth ? "launches with-health" : "launches" }, h("thead", {}, h("tr", {}, ...head)), body)), note);
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (!row || event.target.closest(".launch-mark") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(Number(row.dataset.launch));
  });

  const rowOf = ({ launch, start, end, returned, timed, kind, kernel, count, health, verdict }, digits) =>
    h(
      "tr",
      { "data-launch": launch, class: launch === selected ? "chosen" : null },
      h("td", { class: "num" }, launch),
      h("td", { class: "num" }, returned && !timed ? known(null, "not recorded") : formatTick(Math.max(0, start), digits)),
      h("td", { class: "num" }, hostTime(returned, timed, end - start, count)),
      h("td", {}, h("span", { class: `kind kind-${kind}` }, kind)),
      withHealth && h("td", {}, healthBadge(health)),
      withVerdict && h("td", {}, verdict ? verdictBadge(verdict) : known(null, "the judge has no verdict on this launch")),
      h(
        "td",
        { class: "mono" },
        h("a", { href: hrefOf(launch), title: kernel }, middle(kernel)),
        marks.filter((mark) => mark.launch === launch).map(({ severity, sign, title, page }) =>
          h("a", { class: `quiet launch-mark ${severity}-sign`, href: root + page, title, "aria-label": `${severity} finding: ${title}` }, ` ${sign}`)),
        count > 1 && h("span", { class: "dim" }, ` and ${plural(count - 1, "shorter launch")} within ${formatNs(end - start)}`),
      ),
    );

  /** Replaces the rows if they changed: a click is lost if its row is replaced. */
  function showRows(rows, digits) {
    const before = shown;
    shown = JSON.stringify([rows, digits]);
    if (shown === before) return;
    const focused = body.contains(document.activeElement) ? document.activeElement.closest("tr").dataset.launch : null;
    body.replaceChildren(...rows.map((row) => rowOf(row, digits)));
    if (focused !== null) linkOf(focused)?.focus({ preventScroll: true });
  }

  const linkOf = (launch) => body.querySelector(`tr[data-launch="${launch}"] a`);
  return {
    /** Returns the link of the selected launch if it is in the list. */
    link: () => linkOf(selected),
    show(data, view, matches, whole) {
      const { rows, total, left } = launchesIn(data, view, matches, MOST);
      const digits = 10 ** Math.floor(Math.log10((view.end - view.start) / 1000));
      showRows(rows, digits);
      tally.textContent = total === whole ? thousands(whole) : `${thousands(total)} of ${thousands(whole)}${matches ? " match" : " in view"}`;
      note.textContent = left ? `${plural(left, "more launch")} in view: zoom in or filter by kernel.` : rows.length ? "" : "No launches in view.";
    },
    select(launch) {
      selected = launch;
      for (const row of body.children) row.classList.toggle("chosen", Number(row.dataset.launch) === launch);
    },
  };
}

function hostTime(returned, timed, duration, count) {
  if (returned && !timed) return known(null, "not recorded");
  if (!returned) return h("span", { class: "critical-text" }, "✖ no return");
  return count === 1 ? formatNs(duration) : known(null, "zoom in to show these short launches separately");
}
