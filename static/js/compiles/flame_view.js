// The chart of compile-time spans on the page: sizes, pointer, wheel, keys, and windows fetched when they hold more.
import { onTheme, sizeCanvas } from "#js/core/colours.js";
import { debounce, h, isTyping } from "#js/core/dom.js";
import { drawFlame, flameColours } from "#js/compiles/flame_draw.js";
import { endOf, found, gapAt, inPart, layout, missing, partsOf, prepare } from "#js/compiles/flame_model.js";
import { formatLong, formatNs, formatTick, plural, thousands } from "#js/core/format.js";
import { GUTTER, drawPointer, nsOf } from "#js/steps/timeline_draw.js";
import { MINIMAP, clamp, pan, zoom } from "#js/steps/timeline_model.js";

const SLACK_PX = 4;

export class FlameView {
  /** `options`: fetchWindow(start, end, width), onView(view, isWhole), onOpen(compile, log). */
  constructor(box, flame, options) {
    Object.assign(this, { box, options, bounds: { start: 0, end: endOf(flame) }, gaps: flame.gaps, parts: partsOf(flame) }, layout(flame));
    this.data = this.whole = prepare(flame);
    this.view = clamp({ start: this.data.start, end: this.data.end }, this.bounds);
    this.fetching = 0;
    this.frame = 0;
    this.fetchSoon = debounce(() => this.fetchDetail(), 60);
    box.querySelector(".spacer")?.setAttribute("height", this.height);
    this.canvas = h("canvas", { class: "picture", role: "img", "aria-label": "Compile-time spans. Their sums by name are in the table below." });
    this.overlay = h("canvas", { class: "pointer", "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    box.append(this.canvas, this.overlay, this.tip);
    this.listen();
    new ResizeObserver(() => this.resize()).observe(box);
    this.resize();
  }

  listen() {
    onTheme(() => this.draw());
    const target = this.overlay;
    target.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    target.addEventListener("pointerdown", (event) => this.onDown(event));
    target.addEventListener("pointermove", (event) => this.onMove(event));
    target.addEventListener("pointerup", (event) => this.onUp(event));
    target.addEventListener("pointerleave", () => this.point(null));
    target.addEventListener("dblclick", (event) => {
      const one = this.under(event.offsetX, event.offsetY);
      if (one?.end) this.fitTo(one.start, one.end);
    });
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
      const act = { w: () => this.zoomBy(0.7), s: () => this.zoomBy(1 / 0.7), a: () => this.panBy(-0.15), d: () => this.panBy(0.15), f: () => this.fit() }[event.key.toLowerCase()];
      act?.();
    });
  }

  resize() {
    const width = this.box.clientWidth;
    if (!width || (width === this.width && devicePixelRatio === this.ratio)) return;
    Object.assign(this, { width, ratio: devicePixelRatio });
    for (const canvas of [this.canvas, this.overlay]) sizeCanvas(canvas, width, this.height);
    this.paint();
  }

  draw() {
    this.frame ||= requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.width) return;
    this.colours = flameColours(this.box);
    drawFlame(this.canvas.getContext("2d"), this);
    this.point(this.pointer);
  }

  setView(view) {
    this.view = clamp(view, this.bounds);
    if (this.data.start > this.view.start || this.data.end < this.view.end) this.data = this.whole;
    this.draw();
    this.fetchSoon();
    this.options.onView(this.view, this.view.end - this.view.start >= this.bounds.end);
  }

  /** What the whole run looks like: the page began with a window of it. */
  setWhole(flame) {
    this.whole = prepare(flame);
    this.bounds.end = endOf(flame);
    this.draw();
  }

  async fetchDetail() {
    const wanted = missing(this.data, this.view, this.bounds);
    if (!wanted) return;
    const ticket = ++this.fetching;
    const flame = await this.options.fetchWindow(Math.floor(wanted.start), Math.ceil(wanted.end), Math.round(this.width * 1.5));
    if (ticket !== this.fetching || !flame) return;
    this.data = prepare(flame);
    this.draw();
  }

  zoomBy(factor, at = (this.view.start + this.view.end) / 2) {
    this.setView(zoom(this.view, this.bounds, factor, at));
  }

  panBy(share) {
    this.setView(pan(this.view, this.bounds, share * (this.view.end - this.view.start)));
  }

  fitTo(start, end) {
    const margin = Math.max((end - start) * 0.05, 50);
    this.setView({ start: start - margin, end: end + margin });
  }

  fit() {
    this.setView(this.bounds);
  }

  under(x, y) {
    const row = this.rows.find((one) => y >= one.y && y < one.y + one.height);
    if (x < GUTTER || !row) return null;
    const gap = gapAt(this.gaps, nsOf(x, this.view, this.width));
    if (gap) return { ...gap, kind: "gap" };
    const slack = (SLACK_PX * (this.view.end - this.view.start)) / (this.width - GUTTER);
    return found(this.data, row, nsOf(x, this.view, this.width), slack);
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
    if (this.drag) {
      this.drag.moved ||= Math.abs(event.offsetX - this.drag.from) > 3;
      if (this.drag.minimap) this.centre(event.offsetX);
      else if (this.drag.moved) this.panBy((this.drag.x - event.offsetX) / (this.width - GUTTER));
      this.drag.x = event.offsetX;
    }
    this.point({ x: event.offsetX, y: event.offsetY });
  }

  onUp(event) {
    const drag = this.drag;
    this.drag = null;
    if (!drag || drag.moved || drag.minimap) return;
    const one = this.under(event.offsetX, event.offsetY);
    if (one?.compile) this.options.onOpen(one.compile, one.log);
  }

  centre(x) {
    const at = nsOf(x, this.bounds, this.width);
    const half = (this.view.end - this.view.start) / 2;
    this.setView({ start: at - half, end: at + half });
  }

  point(pointer) {
    this.pointer = pointer;
    const time = pointer ? nsOf(pointer.x, this.view, this.width) : 0;
    const label = formatTick(Math.max(0, Math.round(inPart(this.parts, time))), (this.view.end - this.view.start) / this.width);
    drawPointer(this.overlay.getContext("2d"), { width: this.width, height: this.height, colours: this.colours, x: pointer?.x ?? null, label });
    const one = pointer && !this.drag?.moved && this.under(pointer.x, pointer.y);
    this.tip.hidden = !one;
    this.overlay.classList.toggle("pointing", Boolean(one?.compile));
    if (!one) return;
    this.tip.replaceChildren(...linesOf(one, this.parts).map((line, index) => h(index ? "div" : "strong", {}, line)));
    const left = Math.min(pointer.x + 14, this.width - this.tip.offsetWidth - 4);
    const top = pointer.y + 18 + this.tip.offsetHeight > this.height + 24 ? pointer.y - this.tip.offsetHeight - 8 : pointer.y + 18;
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${top}px)`;
  }
}

/** What is said of a span or a mark. */
export function linesOf(one, parts) {
  if (one.kind === "gap") return [`${formatLong(one.length_ns)} without a span`, "this stretch is folded; time starts anew behind it"];
  const of = one.compile ? [`compile ${one.compile} – click to open`] : ["outside of compiles"];
  if (one.kind === "instant") {
    const said = Object.entries(one.arguments).filter(([name]) => name !== "compile_id").map(([name, value]) => `${name}: ${value}`);
    return [one.name, `event at ${placeText(parts, one.ns)}`, ...said.slice(0, 8), ...of];
  }
  if (one.kind === "unfinished") return [one.name, `began at ${placeText(parts, one.ns)}; its end is not in the log`, ...of];
  const time = one.end - one.start;
  if (one.count > 1) return [`${plural(one.count, "span")} within ${formatNs(time)}`, `the longest: ${one.name}; zoom in for the others`];
  return [one.name, `${formatNs(time)} (${thousands(time)} ns)`, `at ${placeText(parts, one.start)}`, ...of];
}

function placeText(parts, ns) {
  const at = inPart(parts, ns);
  return `${formatNs(at)} (${thousands(at)} ns)`;
}
