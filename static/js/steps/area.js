// The table of what was launched in a selected span of time.
import { h, known } from "#js/core/dom.js";
import { formatNs, formatShare, plural, slugOf, thousands } from "#js/core/format.js";
import { grouped } from "#js/steps/area_model.js";

const MOST_ROWS = 100;
const GROUPINGS = { kernel: "kernel", kind: "kind", line: "model line" };
const SEVERAL = "A kernel that computes several lines counts for each of them, so the shares add up to more than 100 %.";

/** `context`: root, sums(area) -> sites or null, onBy(by), onZoom(area), onClose(), note. */
export function areaTable(box, context) {
  let asked = 0;
  let shown = null;

  function fill() {
    const { area, by, sites } = shown;
    const { rows, total } = grouped(sites, by);
    box.replaceChildren(
      h("div", { class: "area-head" }, h("h2", {}, `Selected ${formatNs(area.end - area.start)}`, h("span", { class: "aside" }, `from ${formatNs(area.start)} to ${formatNs(area.end)} · ${summary(total)}`)), buttons(by)),
      rows.length ? table(rows.slice(0, MOST_ROWS), by, total, context.root) : h("p", { class: "note" }, "No launch is in this span of time."),
      ...notes(rows, by).map((text) => h("p", { class: "note" }, text)),
    );
    box.hidden = false;
  }

  function notes(rows, by) {
    const isShared = by === "line" && sites().some(({ lines }) => lines.length > 1);
    const partly = "A launch that lies partly in the selection counts with the part of its time that is inside.";
    const more = rows.length > MOST_ROWS ? `${plural(rows.length - MOST_ROWS, "more row")} with less time.` : null;
    return [rows.length ? partly : null, isShared ? SEVERAL : null, more, context.note].filter(Boolean);
  }

  const sites = () => shown.sites;

  function buttons(by) {
    const choice = ([name, text]) => h("button", { type: "button", "aria-pressed": String(name === by), onclick: () => context.onBy(name) }, text);
    return h(
      "div",
      { class: "area-tools" },
      h("div", { class: "choices", role: "group", "aria-label": "Add up by" }, ...Object.entries(GROUPINGS).map(choice)),
      h("button", { type: "button", onclick: () => context.onZoom(shown.area) }, "Zoom in"),
      h("button", { type: "button", class: "icon", title: "Remove the selection (Esc)", "aria-label": "Remove the selection", onclick: () => context.onClose() }, "×"),
    );
  }

  return {
    async show(area, by) {
      const turn = ++asked;
      const sites = shown && sameArea(shown.area, area) ? shown.sites : await context.sums(area);
      if (turn !== asked) return;
      shown = { area, by, sites: sites ?? [] };
      fill();
    },
    hide() {
      asked++;
      shown = null;
      box.hidden = true;
      box.replaceChildren();
    },
  };
}

const sameArea = (one, other) => one.start === other.start && one.end === other.end;

function summary({ launches, timed, duration, device }) {
  const parts = [plural(launches, "launch")];
  if (timed) parts.push(`${formatNs(duration)} host time`);
  if (device !== null) parts.push(`${formatNs(device)} device time`);
  return parts.join(" · ");
}

function table(rows, by, total, root) {
  const isOnDevice = total.device !== null;
  const head = [["launches", "num"], ["host time", "num"], ["mean", "num"], ["share", "num share"], ...(isOnDevice ? [["device time", "num"]] : []), [GROUPINGS[by], "rest"]];
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "sums" },
      h("thead", {}, h("tr", {}, ...head.map(([text, name]) => h("th", { class: name }, text)))),
      h("tbody", {}, ...rows.map((row) => rowOf(row, by, isOnDevice, root))),
    ),
  );
}

function rowOf(row, by, isOnDevice, root) {
  const time = (ns) => known(row.timed ? ns : null, "The log has no times of these launches.", formatNs);
  return h(
    "tr",
    {},
    h("td", { class: "num" }, thousands(row.launches)),
    h("td", { class: "num" }, time(row.duration)),
    h("td", { class: "num" }, time(row.mean)),
    h("td", { class: "num share" }, known(row.share, "The log has no times of these launches.", formatShare), bar(row.share)),
    isOnDevice && h("td", { class: "num" }, known(row.device, "not measured", formatNs)),
    h("td", { class: "rest", title: row.title ?? row.name }, nameOf(row, by, root)),
  );
}

function bar(share) {
  const part = h("span", { class: "share-bar", "aria-hidden": "true" });
  part.style.width = `${Math.round(100 * Math.min(1, share ?? 0))}%`;
  return part;
}

function nameOf({ name, kind, code }, by, root) {
  if (name === null) return h("span", { class: "dim" }, "no line of the model is recorded");
  if (by === "kind") return h("span", { class: `kind kind-${kind}` }, kind);
  if (by === "line") return [h("span", { class: "place" }, name), " ", h("code", {}, code)];
  return [h("span", { class: `kind kind-${kind}`, title: kind }), h("a", { class: "mono", href: `${root}/kernels/${slugOf(name)}` }, name)];
}
