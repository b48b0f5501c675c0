// The timeline of a step: launches, calls and spans as rows, live bytes below them.
import { pick, reveal } from "#js/core/chart_model.js";
import { ChartView } from "#js/core/chart_view.js";
import { formatNs, plural } from "#js/core/format.js";
import { NAMES } from "#js/core/health.js";
import { drawTimeline, timelineColours } from "#js/steps/timeline_draw.js";
import { LiveLane } from "#js/steps/timeline_live.js";
import { intervalsOf, layout, missingWindow, prepare } from "#js/steps/timeline_model.js";

export class TimelineView extends ChartView {
  margin = 0.08;
  selected = null;
  matches = null;

  /** `options` are those of ChartView, live (live bytes over the same time, or null) and fetchLive, like fetchWindow. */
  constructor(box, timeline, options = {}) {
    super(box, options, timelineColours(box), "Timeline. Its launches are listed below.");
    this.origin = timeline.start_ns;
    this.bounds = { start: 0, end: Math.max(timeline.end_ns - timeline.start_ns, 1) };
    this.view = { ...this.bounds };
    this.whole = this.data = prepare(timeline);
    this.live = options.live ? new LiveLane(options.live, this.origin, this.bounds) : null;
    const { lanes, height } = layout(timeline, this.live !== null);
    Object.assign(this, { rows: lanes, rowsHeight: height });
    this.start();
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
    await super.fetchDetail();
  }

  async fetchLive() {
    const wanted = this.options.fetchLive && this.live?.missing(this.view);
    const curve = wanted && (await this.fetched(wanted, this.options.fetchLive, 1));
    if (!curve) return;
    this.live.show(curve);
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

  found(lane, ns, slack) {
    if (lane.kind === "memory") return { lane, ns };
    const interval = pick(intervalsOf(this.data, lane), ns, slack);
    return interval && { ...interval, lane };
  }

  opens({ lane }) {
    return lane.kind === "launches" || lane.kind === "health";
  }

  lines(found) {
    if (found.lane.kind === "memory") return this.live.lines(found.ns);
    const lines = this.opens(found) ? launchLines(found) : spanLines(found);
    if (found.lane.kind === "health") lines.push(`worst output: ${NAMES[found.health]}`);
    return lines;
  }
}

function launchLines({ launch, kernel, kind, start, end, returned, timed, count }) {
  if (returned && !timed) return [kernel, `launch ${launch} · ${kind} · time not recorded`];
  const time = returned ? formatNs(end - start) : "did not return";
  const at = `at ${formatNs(start)}`;
  if (count > 1) return [`${plural(count, "launch")} in ${time}`, at, `longest: ${kernel}; zoom in for the others`];
  return [kernel, `launch ${launch} · ${kind} · ${time} · ${at}`];
}

function spanLines({ item, start, end }) {
  const lines = [item.graph_label ?? item.name, item.duration_ns === null ? "time not recorded" : `${formatNs(end - start)} · at ${formatNs(start)}`];
  if (item.launches !== undefined) lines.push(`${item.function} · ${plural(item.launches, "launch")} · ${item.state}`);
  else if (item.compile_id) lines.push(`compile ${item.compile_id}`);
  return lines;
}
