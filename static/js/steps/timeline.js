// The timeline of a step: launches, calls and spans as rows, live bytes below them.
import { GUTTER, xOf } from "#js/core/chart_draw.js";
import { pick, reveal } from "#js/core/chart_model.js";
import { AreaChart } from "#js/core/chart_area.js";
import { debounce, h } from "#js/core/dom.js";
import { NAMES } from "#js/core/health.js";
import { nameOf } from "#js/judged/badge.js";
import { drawTimeline, timelineColours } from "#js/steps/timeline_draw.js";
import { layout } from "#js/steps/timeline_lanes.js";
import { launchLines, markLines, otherLines, spanLines, workLines } from "#js/steps/timeline_lines.js";
import { LiveLane } from "#js/steps/timeline_live.js";
import { intervalsOf, marksIn, missingWindow, prepare } from "#js/steps/timeline_model.js";

const ARRANGE_MS = 200;
const MARK_PX = 9;

export class TimelineView extends AreaChart {
  margin = 0.08;
  selected = null;
  matches = null;
  pins = [];
  other = null;

  /**
   * `options` are those of AreaChart, live (live bytes over the same time, or null), fetchLive, like fetchWindow,
   * marks (findings with start and thread, the worst first) and onPin(key).
   */
  constructor(box, timeline, options = {}) {
    super(box, options, timelineColours(box), "Timeline. Its launches are listed below.");
    this.timeline = timeline;
    this.origin = timeline.start_ns;
    this.bounds = { start: 0, end: Math.max(timeline.end_ns - timeline.start_ns, 1) };
    this.view = { ...this.bounds };
    this.whole = this.data = prepare(timeline);
    this.live = options.live ? new LiveLane(options.live, this.origin, this.bounds) : null;
    this.marks = options.marks ?? [];
    this.gutter = h("div", { class: "lane-names" });
    box.append(this.gutter);
    this.arrange();
    this.arrangeSoon = debounce(() => this.arrange(), ARRANGE_MS);
    this.start();
  }

  /** Lays out the rows for the view: rows of spans that are out of view take no room. */
  arrange() {
    const shown = (intervals) => intervals.filter(({ start, end }) => end >= this.view.start && start <= this.view.end).map(({ item }) => item);
    const { lanes, height } = layout(this.timeline, {
      spans: shown(this.data.spans), calls: shown(this.data.calls), hasMemory: this.live !== null, pins: this.pins, other: this.other,
    });
    if (JSON.stringify(lanes) === JSON.stringify(this.rows)) return;
    Object.assign(this, { rows: lanes, rowsHeight: height });
    const focused = this.gutter.contains(document.activeElement) ? document.activeElement.dataset.lane : null;
    this.gutter.replaceChildren(...lanes.filter(({ name }) => name).map((lane) => this.nameOf(lane)));
    this.gutter.querySelector(`[data-lane="${focused}"]`)?.focus({ preventScroll: true });
    this.box.querySelector(".spacer")?.setAttribute("height", height);
    if (this.width) this.resize();
    this.draw();
  }

  nameOf({ key, name, pinned, y, height }) {
    const title = pinned ? "Put this row back in its place" : "Pin this row to the top";
    const button = h("button", { type: "button", class: "lane-name", "data-lane": key, title, "aria-pressed": String(pinned), onclick: () => this.options.onPin?.(key) }, name);
    button.style.top = `${y + Math.max(0, (height - 16) / 2)}px`;
    return button;
  }

  pin(keys) {
    this.pins = keys;
    this.arrange();
  }

  /** Shows another step below this one, an OtherStep or null; `fetchWindow` fetches its windows by times of its log. */
  compare(other, fetchWindow = null) {
    this.other = other;
    this.fetchOtherWindow = other && fetchWindow && ((start, end, width, signal) => fetchWindow(start + other.offset, end + other.offset, width, signal));
    this.arrange();
    this.draw();
    this.fetchSoon();
  }

  tellView() {
    super.tellView();
    this.arrangeSoon();
  }

  prepare(timeline) {
    return prepare(timeline);
  }

  picture(ctx) {
    drawTimeline(ctx, this);
  }

  missing() {
    return missingWindow(this.data, this.view, this.bounds);
  }

  /** Shows finer data for the whole step. */
  replace(timeline) {
    this.whole = this.data = prepare(timeline);
    this.draw();
    this.tellView();
  }

  async fetchDetail() {
    this.fetchLive();
    this.fetchOther();
    await super.fetchDetail();
  }

  async fetchLive() {
    const wanted = this.options.fetchLive && this.live?.missing(this.view);
    const curve = wanted && (await this.fetched(wanted, this.options.fetchLive, 1));
    if (!curve) return;
    this.live.show(curve);
    this.draw();
  }

  async fetchOther() {
    const { other } = this;
    const wanted = this.fetchOtherWindow && other.missing(this.view);
    const found = wanted && (await this.fetched(wanted, this.fetchOtherWindow, 1.5));
    if (!found || other !== this.other) return;
    other.show(found);
    this.draw();
  }

  /** Marks a launch and moves to it if it is out of view or too small to see. */
  select(selected) {
    this.selected = selected;
    if (selected) this.setView(reveal(this.view, this.bounds, selected.start, selected.end));
    else this.draw();
  }

  filter(matches) {
    this.matches = matches;
    this.draw();
  }

  keys() {
    const fit = () => (this.selected && !this.isFitted() ? this.fitTo(this.selected.start, this.selected.end) : this.fit());
    return { ...super.keys(), f: fit };
  }

  isFitted() {
    const { view, selected } = this;
    return view.end - view.start < 1.5 * Math.max(selected.end - selected.start, 200);
  }

  timeAt(ns) {
    return this.data.untimed ? null : ns;
  }

  under(x, y) {
    const row = this.rowAt(x, y);
    const group = row?.kind === "launches" && y < row.y + 2 * MARK_PX && this.marksOf(row).find((one) => Math.abs(one.x - x) <= MARK_PX);
    return group ? { ...group, lane: { kind: "mark" } } : super.under(x, y);
  }

  /** Returns the marks of findings in a row of launches, in groups. */
  marksOf({ thread }) {
    const at = (ns) => Math.min(Math.max(xOf(ns, this.view, this.width), GUTTER + MARK_PX), this.width - MARK_PX);
    return marksIn(this.marks, this.view, at).filter((group) => group.thread === thread);
  }

  found(lane, ns, slack) {
    if (lane.kind === "memory") return { lane, ns };
    const intervals = lane.kind === "other" ? (this.other.in(this.view).launches.get(lane.thread) ?? []) : intervalsOf(this.data, lane);
    const interval = pick(intervals, ns, slack);
    return interval && { ...interval, lane };
  }

  opens({ lane, launch }) {
    return ["launches", "health", "judge", "mark", "other"].includes(lane.kind) || (lane.kind === "stream" && launch >= 0);
  }

  lines(found) {
    const { kind } = found.lane;
    if (kind === "memory") return this.live.lines(found.ns);
    if (kind === "stream") return workLines(found);
    if (kind === "mark") return markLines(found.marks);
    if (kind === "other") return otherLines(found, this.other, this.whole);
    const lines = this.opens(found) ? launchLines(found) : spanLines(found);
    if (kind === "health") lines.push(`worst output: ${NAMES[found.health]}`);
    if (kind === "judge") lines.push(`judge: ${found.verdict ? nameOf(found.verdict) : "no verdict"}`);
    return lines;
  }
}
