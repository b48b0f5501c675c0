// The timeline, list and panel of a step. The served page and the report differ only in their `source`.
import { debounce, h, onKeys } from "#js/core/dom.js";
import { formatNs } from "#js/core/format.js";
import { HEALTH } from "#js/core/health.js";
import { panelFocus } from "#js/core/panel_focus.js";
import { launchList } from "#js/steps/launch_list.js";
import { launchPanel, missingPanel } from "#js/steps/panel.js";
import { TimelineView } from "#js/steps/timeline.js";
import { kindsOf } from "#js/steps/timeline_draw.js";
import { isUntimed, kernelMatcher } from "#js/steps/timeline_model.js";
import { healthBadge } from "#js/values/lines.js";

/**
 * `source`: root, window(start, end, width), launch(id), hrefOf(launch), remember({launch, from, to, kernels}, push),
 * live (live bytes of the step, or null), liveWindow(start, end, width), missing (the text if a launch is not available).
 * Returns the actions for states of the address.
 */
export function mountStep(view, panel, timeline, source) {
  const find = (name) => view.querySelector(name);
  const total = timeline.total_launches;
  let opened = null;
  let wanted = null;
  let matches = null;
  const span = (start, end) => (isUntimed(timeline) ? "" : formatNs(Math.round(end - start)));

  const refresh = debounce(() => list.show(chart.data, chart.view, matches, total), 80);
  const rememberView = debounce((isWhole) => source.remember(viewState(chart.view, isWhole), false), 250);
  const list = launchList(find(".launch-list"), find(".list-count"), { hrefOf: source.hrefOf, go: (launch) => open(launch), withHealth: Boolean(timeline.launches.health?.length) });
  const focus = panelFocus(panel, () => list.link());
  const chart = new TimelineView(find(".timeline-box"), timeline, {
    fetchWindow: source.window,
    live: source.live ?? null,
    fetchLive: source.liveWindow,
    onOpen: ({ launch }) => open(launch),
    onView: ({ start, end }, isWhole) => {
      find(".view-span").textContent = span(start, end);
      refresh();
      rememberView(isWhole);
    },
  });
  list.show(chart.data, chart.view, null, total);
  find(".view-span").textContent = span(0, chart.bounds.end);
  find(".legend").replaceChildren(...legend(timeline));

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
    arrowleft: () => open(opened ? opened.previous : firstInView(chart)),
    arrowright: () => open(opened ? opened.next : firstInView(chart)),
    escape: () => !panel.hidden && close(),
  };
  onKeys(keys, () => view.checkVisibility());

  return {
    open,
    close,
    show,
    sharpen: (finer) => chart.replace(finer),
    isBinned: () => chart.whole.binned,
    setView: (start, end) => chart.setView({ start, end }),
    setFilter(text) {
      filter.value = text;
      filterBy(text);
    },
  };
}

function viewState({ start, end }, isWhole) {
  return { from: isWhole ? null : Math.floor(start), to: isWhole ? null : Math.ceil(end) };
}

function firstInView({ data, view }) {
  const rows = [...data.launches.values()].flat().filter(({ end }) => end >= view.start);
  return rows.sort((a, b) => a.start - b.start)[0]?.launch ?? null;
}

function legend({ sites, launches }) {
  const present = new Set(Object.values(sites).map(({ kind }) => kind));
  const kinds = kindsOf(document.documentElement).filter((kind) => present.has(kind)).map((kind) => h("li", {}, h("span", { class: `kind kind-${kind}` }, kind)));
  const classes = new Set(launches.health ?? []);
  return [...kinds, ...HEALTH.filter((_, index) => classes.has(index)).map((name) => h("li", {}, healthBadge(name)))];
}
