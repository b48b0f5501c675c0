// The timeline on the page: sizes, pointer, wheel, and windows fetched when the picture needs finer data.
import { onTheme } from "#js/core/colours.js";
import { debounce, h } from "#js/core/dom.js";
import { formatNs, formatTick, plural } from "#js/core/format.js";
import { NAMES } from "#js/core/health.js";
import { GUTTER, drawPointer, drawTimeline, nsOf, themeColours } from "#js/steps/timeline_draw.js";
import { LiveLane } from "#js/steps/timeline_live.js";
import { MINIMAP, clamp, intervalsOf, layout, missingWindow, pan, pick, prepare, reveal, zoom } from "#js/steps/timeline_model.js";

const CLICK_SLACK_PX = 4;

export class TimelineView {
  /**
   * `options`: onSelect(launch), onView(view), fetchWindow(start, end, width) or null when all data is here; live: bytes
   * over the same time or null, fetchLive like fetchWindow.
   */
  constructor(box, timeline, options = {}) {
    this.box = box;
    this.options = options;
    this.origin = timeline.start_ns;
    this.bounds = { start: 0, end: Math.max(timeline.end_ns - timeline.start_ns, 1) };
    this.view = { ...this.bounds };
    this.whole = prepare(timeline);
    this.data = this.whole;
    this.live = options.live ? new LiveLane(options.live, this.origin, this.bounds) : null;
    Object.assign(this, layout(timeline, this.live !== null));
    this.selected = null;
    this.matches = null;
    this.pointer = null;
    this.frame = 0;
    this.fetching = 0;
    this.fetchSoon = debounce(() => this.fetchDetail(), 60);
    this.mount();
  }

  mount() {
    this.box.querySelector(".spacer")?.setAttribute("height", this.height);
    this.canvas = h("canvas", { class: "picture", role: "img", "aria-label": "Timeline. Its launches are listed below." });
    this.overlay = h("canvas", { class: "pointer", "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.box.append(this.canvas, this.overlay, this.tip);
    this.colours = themeColours(this.box);
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.box);
    this.resize();
  }

  listen() {
    onTheme(() => {
      this.colours = themeColours(this.box);
      this.draw();
    });
    const target = this.overlay;
    target.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    target.addEventListener("pointerdown", (event) => this.onDown(event));
    target.addEventListener("pointermove", (event) => this.onMove(event));
    target.addEventListener("pointerup", (event) => this.onUp(event));
    target.addEventListener("pointerleave", () => this.leave());
    target.addEventListener("dblclick", (event) => {
      const found = this.under(event.offsetX, event.offsetY);
      if (found) this.fitTo(found.interval.start, found.interval.end);
    });
  }

  resize() {
    const width = this.box.clientWidth;
    const ratio = devicePixelRatio || 1;
    if (!width || (width === this.width && ratio === this.ratio)) return;
    Object.assign(this, { width, ratio });
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(this.height * ratio);
      canvas.style.height = `${this.height}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.paint();
  }

  draw() {
    this.frame ||= requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.width) return;
    drawTimeline(this.canvas.getContext("2d"), this);
    this.drawPointer();
  }

  setView(view) {
    this.view = clamp(view, this.bounds);
    if (this.data !== this.whole && missingWindow(this.data, this.view, this.bounds)) this.data = this.whole;
    this.draw();
    this.fetchSoon();
    this.options.onView?.(this.view);
  }

  /** Show finer data than was there for the whole step. */
  replace(timeline) {
    this.whole = this.data = prepare(timeline);
    this.draw();
    this.options.onView?.(this.view);
  }

  async fetchLive() {
    const wanted = this.options.fetchLive && this.live?.missing(this.view);
    if (!wanted) return;
    const ticket = (this.fetchingLive = (this.fetchingLive ?? 0) + 1);
    const curve = await this.options.fetchLive(
      Math.floor(this.origin + wanted.start), Math.ceil(this.origin + wanted.end), Math.round(this.width * this.ratio),
    );
    if (ticket !== this.fetchingLive || !curve) return;
    this.live.show(curve);
    this.draw();
  }

  async fetchDetail() {
    this.fetchLive();
    const wanted = this.options.fetchWindow && missingWindow(this.data, this.view, this.bounds);
    if (!wanted) return;
    const ticket = ++this.fetching;
    const timeline = await this.options.fetchWindow(
      Math.floor(this.origin + wanted.start), Math.ceil(this.origin + wanted.end), Math.round(this.width * this.ratio * 1.5),
    );
    if (ticket !== this.fetching || !timeline) return;
    this.data = prepare(timeline);
    this.draw();
    this.options.onView?.(this.view);
  }

  zoomBy(factor, at = (this.view.start + this.view.end) / 2) {
    this.setView(zoom(this.view, this.bounds, factor, at));
  }

  panBy(share) {
    this.setView(pan(this.view, this.bounds, share * (this.view.end - this.view.start)));
  }

  fitTo(start, end) {
    const margin = Math.max((end - start) * 0.08, 50);
    this.setView({ start: start - margin, end: end + margin });
  }

  fit() {
    this.setView(this.bounds);
  }

  /** Mark a launch and, if it is out of sight or too small to see, move to it. */
  select(selected) {
    this.selected = selected;
    if (selected) this.setView(reveal(this.view, this.bounds, selected.start, selected.end));
    else this.draw();
  }

  filter(matches) {
    this.matches = matches;
    this.draw();
  }

  under(x, y) {
    if (x < GUTTER) return null;
    const lane = this.lanes.find((lane) => y >= lane.y && y < lane.y + lane.height);
    if (!lane) return null;
    const slack = (CLICK_SLACK_PX * (this.view.end - this.view.start)) / (this.width - GUTTER);
    const interval = pick(intervalsOf(this.data, lane), nsOf(x, this.view, this.width), slack);
    return interval && { lane, interval };
  }

  onWheel(event) {
    event.preventDefault();
    const delta = event.deltaMode === 1 ? 16 : 1;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.panBy((sideways * delta) / this.width);
    else this.zoomBy(1.0015 ** (event.deltaY * delta), nsOf(Math.max(event.offsetX, GUTTER), this.view, this.width));
  }

  onDown(event) {
    if (event.button !== 0) return;
    this.overlay.setPointerCapture(event.pointerId);
    this.drag = { x: event.offsetX, from: event.offsetX, moved: false, minimap: event.offsetY < MINIMAP - 4 };
    if (this.drag.minimap) this.centre(event.offsetX);
  }

  onMove(event) {
    this.pointer = { x: event.offsetX, y: event.offsetY };
    if (this.drag) {
      if (Math.abs(event.offsetX - this.drag.from) > 3) this.drag.moved = true;
      if (this.drag.minimap) this.centre(event.offsetX);
      else if (this.drag.moved) this.panBy((this.drag.x - event.offsetX) / (this.width - GUTTER));
      this.drag.x = event.offsetX;
    }
    this.drawPointer();
  }

  onUp(event) {
    const drag = this.drag;
    this.drag = null;
    if (!drag || drag.moved || drag.minimap) return;
    const found = this.under(event.offsetX, event.offsetY);
    if (found && hasLaunches(found.lane)) this.options.onSelect?.(found.interval.launch);
  }

  leave() {
    this.pointer = null;
    this.drawPointer();
  }

  centre(x) {
    const at = nsOf(x, this.bounds, this.width);
    const half = (this.view.end - this.view.start) / 2;
    this.setView({ start: at - half, end: at + half });
  }

  drawPointer() {
    const { pointer } = this;
    const time = pointer ? nsOf(pointer.x, this.view, this.width) : 0;
    const label = this.data.untimed ? "" : formatTick(Math.max(0, Math.round(time)), (this.view.end - this.view.start) / this.width);
    drawPointer(this.overlay.getContext("2d"), { ...this.geometry(), x: pointer?.x ?? null, label });
    const found = pointer && !this.drag?.moved && this.under(pointer.x, pointer.y);
    const bytes = !found && pointer && !this.drag?.moved && this.liveLines(time);
    this.tip.hidden = !found && !bytes;
    this.overlay.classList.toggle("pointing", Boolean(found) && hasLaunches(found.lane));
    if (found) this.showTip(found);
    else if (bytes) this.fillTip(bytes);
  }

  /** What the curve of live bytes says under the pointer; null outside of it. */
  liveLines(ns) {
    const { x, y } = this.pointer;
    const lane = this.lanes.find(({ kind }) => kind === "memory");
    return lane && x >= GUTTER && y >= lane.y && y < lane.y + lane.height ? this.live.lines(ns) : null;
  }

  geometry() {
    return { width: this.width, height: this.height, colours: this.colours };
  }

  showTip({ lane, interval }) {
    const lines = hasLaunches(lane) ? launchLines(interval) : spanLines(interval);
    if (lane.kind === "health") lines.push(`worst output: ${NAMES[interval.health]}`);
    this.fillTip(lines);
  }

  fillTip(lines) {
    this.tip.replaceChildren(...lines.map((line, index) => h(index ? "div" : "strong", {}, line)));
    const { x, y } = this.pointer;
    const left = Math.min(x + 14, this.width - this.tip.offsetWidth - 4);
    const top = y + 18 + this.tip.offsetHeight > this.height + 24 ? y - this.tip.offsetHeight - 8 : y + 18;
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${top}px)`;
  }
}

function hasLaunches({ kind }) {
  return kind === "launches" || kind === "health";
}

function launchLines({ launch, kernel, kind, start, end, returned, timed, count }) {
  if (returned && !timed) return [kernel, `launch ${launch} · ${kind} · time not recorded`];
  const time = returned ? formatNs(end - start) : "did not return";
  const at = `at ${formatNs(start)}`;
  if (count > 1) return [`${plural(count, "launch")} in ${time}`, at, `the longest: ${kernel}; zoom in for the others`];
  return [kernel, `launch ${launch} · ${kind} · ${time} · ${at}`];
}

function spanLines({ item, start, end }) {
  const lines = [item.graph_label ?? item.name, item.duration_ns === null ? "time not recorded" : `${formatNs(end - start)} · at ${formatNs(start)}`];
  if (item.launches !== undefined) lines.push(`${item.function} · ${plural(item.launches, "launch")} · ${item.state}`);
  else if (item.compile_id) lines.push(`compile ${item.compile_id}`);
  return lines;
}
