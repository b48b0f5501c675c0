// The timeline, list and panel of a step. The served page and the report differ only in their `source`.
import { debounce, h, onKeys } from "#js/core/dom.js";
import { formatNs } from "#js/core/format.js";
import { HEALTH } from "#js/core/health.js";
import { panelFocus } from "#js/core/panel_focus.js";
import { say } from "#js/core/say.js";
import { goTo } from "#js/core/server.js";
import { VERDICTS, verdictBadge } from "#js/judged/badge.js";
import { areaTable } from "#js/steps/area.js";
import { areaText, parseArea } from "#js/steps/area_model.js";
import { comparison } from "#js/steps/comparison.js";
import { launchList } from "#js/steps/launch_list.js";
import { launchPanel, missingPanel } from "#js/steps/panel.js";
import { TimelineView } from "#js/steps/timeline.js";
import { kindsOf } from "#js/steps/timeline_draw.js";
import { BANDS } from "#js/steps/timeline_live.js";
import { isUntimed, kernelMatcher } from "#js/steps/timeline_model.js";
import { healthBadge } from "#js/values/lines.js";

const STILL_MS = 250;
// How long the view stands still before the list, whose rows take longer to lay out than finer data to arrive, follows it.

/**
 * `source`: root, launch(id), sums(step, area), timeline(step), hrefOf(launch), hrefOfStep(step, launch),
 * remember(changes, push), marks (findings of the step), live (live bytes of the step, or null), missing (the text if a
 * launch is not available), note (a remark on sums, or null), and, if finer data can be fetched, window(start, end, width),
 * liveWindow(start, end, width) and otherWindow(step). Returns the actions for states of the address.
 */
export function mountStep(view, panel, timeline, source) {
  const find = (name) => view.querySelector(name);
  const total = timeline.total_launches;
  const state = { area: null, by: "kernel" };
  let opened = null;
  let wanted = null;
  let matches = null;
  const span = (start, end) => (isUntimed(timeline) ? "" : formatNs(Math.round(end - start)));

  const refresh = debounce(() => list.show(chart.data, chart.view, matches, total), STILL_MS);
  const rememberView = debounce((isWhole) => source.remember(viewState(chart.view, isWhole), false), STILL_MS);
  const list = launchList(find(".launch-list"), find(".list-count"), { hrefOf: source.hrefOf, go: (launch) => open(launch), withHealth: Boolean(timeline.launches.health?.length), withVerdict: Boolean(timeline.launches.verdict?.length), marks: source.marks, root: source.root });
  const focus = panelFocus(panel, () => list.link());
  const chart = new TimelineView(find(".timeline-box"), timeline, {
    fetchWindow: source.window,
    live: source.live ?? null,
    fetchLive: source.liveWindow,
    marks: source.marks.filter(({ start_ns: start }) => start !== null).map((mark) => ({ ...mark, start: mark.start_ns - timeline.start_ns })),
    onOpen: openFound,
    onArea: (area) => select(area),
    onPin: (key) => {
      chart.pin(chart.pins.includes(key) ? chart.pins.filter((other) => other !== key) : [...chart.pins, key]);
      source.remember({ pin: chart.pins.join(",") || null }, true);
    },
    onView: ({ start, end }, isWhole) => {
      find(".view-span").textContent = span(start, end);
      refresh();
      rememberView(isWhole);
    },
  });
  list.show(chart.data, chart.view, null, total);
  find(".view-span").textContent = span(0, chart.bounds.end);
  find(".legend").replaceChildren(...legend(timeline, chart.live));

  const area = areaTable(find(".area"), {
    root: source.root,
    note: source.note,
    sums: (span) => source.sums(timeline.step, span),
    onBy: (by) => {
      state.by = by;
      area.show(state.area, by);
      source.remember({ by: by === "kernel" ? null : by }, false);
    },
    onZoom: ({ start, end }) => chart.fitTo(start, end),
    onClose: () => select(null),
  });
  const compared = comparison(view, chart, timeline, source, (over) => {
    compared.show(over);
    source.remember({ over }, true);
  });

  function showArea(span) {
    state.area = span;
    chart.setArea(span);
    if (span) area.show(span, state.by);
    else area.hide();
  }

  function select(span) {
    showArea(span);
    source.remember({ area: areaText(span), ...(span ? {} : { by: null }) }, true);
  }

  function openFound({ lane, launch, marks }) {
    if (lane.kind === "other") goTo(source.hrefOfStep(chart.other.step, launch));
    else open(lane.kind === "mark" ? marks[0].launch : launch);
  }

  async function open(launch, { push = true } = {}) {
    if (launch === null || launch === undefined) return;
    wanted = launch;
    const detail = await source.launch(launch);
    if (wanted !== launch) return;
    if (detail) show(detail, push);
    else {
      panel.replaceChildren(...missingPanel(source.missing, close));
      panel.hidden = false;
      list.select(launch);
    }
  }

  function show(detail, push) {
    const row = (opened = detail.launch);
    panel.replaceChildren(...launchPanel(detail, { root: source.root, go: open, close }));
    panel.hidden = false;
    panel.scrollTop = 0;
    if (push) focus.take();
    const start = row.step_offset_ns;
    chart.select({ start, end: row.duration_ns === null ? chart.bounds.end : start + row.duration_ns, thread: row.thread });
    list.select(row.launch);
    if (push) source.remember({ launch: row.launch }, true);
  }

  function close({ push = true } = {}) {
    focus.giveBack(() => {
      wanted = opened = null;
      panel.hidden = true;
      panel.replaceChildren();
    });
    chart.select(null);
    list.select(null);
    if (push !== false) source.remember({ launch: null }, true);
  }

  /** Opens the previous or next launch of the same kernel; without an open launch, the keys lead to other steps. */
  function openSame(name) {
    if (!opened) return false;
    if (opened[name] !== null && opened[name] !== undefined) return open(opened[name]);
    return say(`This is the ${name === "next_same" ? "last" : "first"} launch of ${opened.site.kernel} in this step.`);
  }

  /** Opens the next launch that the judge found wrong, after the last one the first. */
  function openWrong() {
    if (!timeline.launches.verdict?.length) return false;
    const wrong = [...chart.data.launches.values()].flat().filter(({ verdict }) => verdict === "wrong").sort((a, b) => a.start - b.start);
    if (!wrong.length) return say("The judge found no wrong launch in this step.");
    const next = wrong.find(({ start }) => opened && start > opened.step_offset_ns) ?? wrong[0];
    return next.count > 1 ? chart.fitTo(next.start, next.end) : open(next.launch);
  }

  function filterBy(text) {
    matches = kernelMatcher(text);
    chart.filter(matches);
    refresh();
  }

  const filter = find(".kernel-filter");
  filter.addEventListener("input", () => {
    filterBy(filter.value);
    source.remember({ kernels: filter.value || null }, false);
  });
  chart.listenTo(view);
  const keys = {
    ...chart.keys(),
    m: () => select({ start: Math.floor(chart.view.start), end: Math.ceil(chart.view.end) }),
    ",": () => openSame("previous_same"),
    ".": () => openSame("next_same"),
    arrowleft: () => open(opened ? opened.previous : firstInView(chart)),
    arrowright: () => open(opened ? opened.next : firstInView(chart)),
    j: openWrong,
    escape: () => {
      if (!panel.hidden) return close();
      return state.area ? select(null) : false;
    },
  };
  onKeys(keys, () => view.checkVisibility());

  /** Shows the state of an address, except for its launch. */
  function follow(asked) {
    filter.value = asked.get("kernels") ?? "";
    filterBy(filter.value);
    state.by = ["kind", "line"].includes(asked.get("by")) ? asked.get("by") : "kernel";
    const pins = asked.get("pin")?.split(",") ?? [];
    if (pins.join() !== chart.pins.join()) chart.pin(pins);
    showArea(parseArea(asked.get("area"), chart.bounds));
    compared.show(asked.get("over"));
    const [start, end] = ["from", "to"].map((name) => Number(asked.get(name) ?? NaN));
    chart.setView(start < end ? { start, end } : chart.bounds);
  }

  return {
    open,
    close,
    show,
    sharpen: (finer) => chart.replace(finer),
    isBinned: () => chart.whole.binned,
    follow,
  };
}

function viewState({ start, end }, isWhole) {
  return { from: isWhole ? null : Math.floor(start), to: isWhole ? null : Math.ceil(end) };
}

function firstInView({ data, view }) {
  const rows = [...data.launches.values()].flat().filter(({ end }) => end >= view.start);
  return rows.sort((a, b) => a.start - b.start)[0]?.launch ?? null;
}

function legend({ sites, launches }, live) {
  const present = new Set(Object.values(sites).map(({ kind }) => kind));
  const kinds = kindsOf(document.documentElement).filter((kind) => present.has(kind)).map((kind) => h("li", {}, h("span", { class: `kind kind-${kind}` }, kind)));
  const classes = new Set(launches.health ?? []);
  const verdicts = new Set((launches.verdict ?? []).filter((index) => index >= 0));
  const bands = BANDS.filter(({ name }) => live?.whole.bands[name].some((bytes) => bytes > 0));
  return [
    ...kinds,
    ...HEALTH.filter((_, index) => classes.has(index)).map((name) => h("li", {}, healthBadge(name))),
    ...(verdicts.size ? [h("li", { class: "legend-of" }, "judge:")] : []),
    ...VERDICTS.filter((_, index) => verdicts.has(index)).map((name) => h("li", {}, verdictBadge(name))),
    ...(bands.length ? [h("li", { class: "legend-of" }, "memory:")] : []),
    ...bands.map(({ name, text }) => h("li", {}, h("span", { class: `band band-${name}`, "aria-hidden": "true" }), text)),
  ];
}
