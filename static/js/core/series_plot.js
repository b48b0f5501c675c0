// Several series over points that have names, such as scheduler nodes: a drag looks closer, the cursor reads exactly.
import { coloursOf, onTheme, sizeCanvas } from "#js/core/colours.js";
import { h } from "#js/core/dom.js";
import { drawRun, short, thinner, tipLines, triangle } from "#js/core/series_draw.js";
import { clampView, labelled, placeX, pointAt, rangeInView, ticksOf, zoomed } from "#js/core/series_model.js";

const GUTTER = 72, RIGHT = 16, TOP = 22, FLOOR = 26, LABEL = 76, CLICK = 4;
const COLOURS = ["estimated", "bg", "line", "line-2", "text", "muted", "accent", "critical", "warning", "info", "good", "chosen"];
const DASHES = { solid: [], dashed: [6, 4], dotted: [1.5, 3] };

/**
 * `data`: label; names (one per point); series [{name, values, colour, dash: solid|dashed|dotted, stepped, filled}], null
 * where a value is not known; markers [{index, series, name}], `series` an index, each a ▼ over that point.
 * where a marker is `wrong` it is a ✖ on the axis. `least`: a value that the axis always reaches.
 * `options`: format(value) and exact(value) -> text; open(index) on a click; view [first, last] to begin with;
 * remember(view or null) when it changes; more(index) -> further lines of the tip; labelOf(index) on the axis, labelsIn(view, width, least) where.
 */
export class SeriesPlot {
  constructor(box, data, options) {
    Object.assign(this, { box, data, options, cursor: null, drag: null, marked: null });
    this.canvas = h("canvas", { class: "picture", tabindex: "0", role: "application", "aria-label": `${data.label}, ${data.names.length} points. Arrow keys read them, Enter opens, plus and minus zoom, 0 shows all.` });
    this.overlay = h("canvas", { class: "pointer", "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.said = h("p", { class: "visually-hidden", "aria-live": "polite" });
    box.append(this.canvas, this.overlay, this.tip, this.said);
    this.view = clampView(options.view, this.count);
    this.colours = coloursOf(box, COLOURS);
    onTheme(() => {
      this.colours = coloursOf(this.box, COLOURS);
      this.draw();
    });
    this.listen();
    new ResizeObserver(() => this.resize()).observe(box);
    this.resize();
  }

  get count() {
    return this.data.names.length;
  }

  get inner() {
    return this.width - GUTTER - RIGHT;
  }

  show(data) {
    this.data = data;
    this.look(this.view);
  }

  look(view) {
    this.view = clampView(view, this.count);
    const all = this.view[0] === 0 && this.view[1] >= this.count - 1;
    this.options.remember?.(all ? null : this.view);
    this.draw();
  }

  /** Marks a point for good: the one that the page is about. */
  mark(index) {
    this.marked = index;
    this.drawCursor();
  }

  listen() {
    const { overlay } = this;
    overlay.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      overlay.setPointerCapture(event.pointerId);
      this.drag = { from: event.offsetX, to: event.offsetX };
    });
    overlay.addEventListener("pointermove", ({ offsetX }) => {
      if (this.drag) this.drag.to = offsetX;
      this.moveTo(this.at(offsetX));
    });
    overlay.addEventListener("pointerup", ({ offsetX }) => {
      const { drag } = this;
      this.drag = null;
      if (!drag) return;
      if (Math.abs(drag.from - offsetX) > CLICK) this.look([this.at(drag.from), this.at(offsetX)]);
      else if (this.count) this.options.open?.(this.at(offsetX));
    });
    overlay.addEventListener("pointercancel", () => (this.drag = null));
    overlay.addEventListener("pointerleave", () => !this.drag && this.moveTo(null));
    overlay.addEventListener("dblclick", () => this.look(null));
    this.canvas.addEventListener("blur", () => this.moveTo(null));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.count) return;
    const here = this.cursor ?? this.view[0] - 1;
    const jump = event.shiftKey ? 10 : 1;
    const to = { ArrowRight: here + jump, ArrowLeft: here - jump, Home: 0, End: this.count - 1 }[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (to !== undefined) this.moveTo(Math.min(this.count - 1, Math.max(0, to)), true);
    else if (factor) this.look(zoomed(this.view, factor, Math.max(here, this.view[0]), this.count));
    else if (event.key === "0") this.look(null);
    else if (event.key === "Enter" && this.cursor !== null) this.options.open?.(this.cursor);
    else if (event.key === "Escape" && this.cursor !== null) this.moveTo(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  at(offsetX) {
    return pointAt(offsetX - GUTTER, this.view, this.inner);
  }

  resize() {
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    if (!width || (width === this.width && height === this.height && devicePixelRatio === this.ratio)) return;
    Object.assign(this, { width, height, ratio: devicePixelRatio });
    sizeCanvas(this.canvas, width, height);
    sizeCanvas(this.overlay, width, height);
    this.draw();
  }

  x(index) {
    return GUTTER + placeX(index, this.view, this.inner);
  }

  y(value) {
    const { low, high } = this.range;
    return this.height - FLOOR - ((value - low) / (high - low)) * (this.height - TOP - FLOOR);
  }

  draw() {
    if (!this.width) return;
    const { data, view } = this;
    const ctx = this.canvas.getContext("2d");
    this.range = rangeInView(data.series, view, data.least);
    ctx.clearRect(0, 0, this.width, this.height);
    ctx.font = `11px ${this.colours.font}`;
    ctx.textBaseline = "middle";
    this.drawAxes(ctx);
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER, 0, this.inner + RIGHT, this.height - FLOOR + 1);
    ctx.clip();
    for (const series of data.series) this.drawSeries(ctx, series);
    ctx.restore();
    for (const { index, series, wrong } of data.markers ?? []) {
      if (wrong) this.drawWrong(ctx, index);
      else this.drawMarker(ctx, index, data.series[series]);
    }
    this.drawCursor();
  }

  drawAxes(ctx) {
    const { colours, height, inner } = this;
    const bottom = height - FLOOR;
    for (const value of ticksOf(this.range, bottom - TOP)) {
      const y = Math.round(this.y(value));
      ctx.fillStyle = colours["line-2"];
      ctx.fillRect(GUTTER, y, inner, 1);
      ctx.fillStyle = colours.muted;
      ctx.textAlign = "right";
      ctx.fillText(this.options.format(value), GUTTER - 8, y);
    }
    ctx.fillStyle = colours.line;
    ctx.fillRect(GUTTER, TOP, 1, bottom - TOP);
    ctx.fillRect(GUTTER, bottom, inner, 1);
    ctx.fillStyle = colours.muted;
    ctx.textAlign = "left";
    const places = this.options.labelsIn?.(this.view, inner, LABEL) ?? labelled(this.view, inner, LABEL);
    for (const index of places) {
      const name = short(ctx, this.options.labelOf?.(index) ?? this.data.names[index], LABEL - 12);
      const wide = ctx.measureText(name).width;
      ctx.fillRect(Math.round(this.x(index)), bottom, 1, 4);
      ctx.fillText(name, Math.min(this.x(index) - wide / 2, this.width - wide - 2), bottom + 14);
    }
  }

  drawSeries(ctx, { values, colour = "accent", dash = "solid", stepped = false, filled = false }) {
    const [first, last] = [Math.max(0, this.view[0] - 1), Math.min(this.count - 1, this.view[1] + 1)];
    ctx.strokeStyle = ctx.fillStyle = this.colours[colour];
    ctx.lineWidth = 1.5;
    ctx.setLineDash(DASHES[dash]);
    const every = thinner(this.inner, last - first);
    let run = [];
    const finish = () => {
      if (run.length) drawRun(ctx, run, filled ? this.y(this.range.low) : null);
      run = [];
    };
    for (let index = first; index <= last; index++) {
      if (every && run.length && index + every <= last) {
        if (!this.addPixel(run, values, index, every)) finish();
        index += every - 1;
        continue;
      }
      const value = values[index] ?? null;
      if (value === null) {
        finish();
        continue;
      }
      if (stepped && run.length) run.push([this.x(index), run.at(-1)[1]]);
      run.push([this.x(index), this.y(value)]);
      // A step has a width, the last one too.
      if (stepped && index === this.count - 1) run.push([this.x(index) + Math.min(RIGHT - 4, this.x(index) - this.x(index - 1) || 0), this.y(value)]);
    }
    finish();
    ctx.setLineDash([]);
    ctx.lineWidth = 1;
  }

  /** Points that share a pixel: the line goes through their least and their most. */
  addPixel(run, values, from, count) {
    let [low, high] = [Infinity, -Infinity];
    for (let index = from; index < from + count; index++) {
      const value = values[index] ?? null;
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (low > high) return false;
    const x = this.x(from);
    const ends = [[x, this.y(low)], [x, this.y(high)]];
    // From the end that is nearer: half the way for the pen.
    if (Math.abs(run.at(-1)[1] - ends[1][1]) < Math.abs(run.at(-1)[1] - ends[0][1])) ends.reverse();
    run.push(...ends);
    return true;
  }

  drawMarker(ctx, index, { values, colour = "accent" }) {
    const value = values[index] ?? null;
    if (value === null || index < this.view[0] || index > this.view[1]) return;
    const [x, y] = [this.x(index), this.y(value) - 4];
    ctx.fillStyle = this.colours[colour];
    triangle(ctx, x, y);
  }

  drawWrong(ctx, index) {
    if (index < this.view[0] || index > this.view[1]) return;
    ctx.fillStyle = this.colours.critical;
    ctx.textAlign = "center";
    ctx.fillText("✖", this.x(index), this.height - FLOOR - 7);
    ctx.textAlign = "left";
  }

  moveTo(index, aloud = false) {
    this.cursor = this.count ? index : null;
    if (index !== null && (index < this.view[0] || index > this.view[1])) {
      const size = this.view[1] - this.view[0];
      const first = Math.min(this.count - 1 - size, Math.max(0, index < this.view[0] ? index : index - size));
      this.look([first, first + size]);
    }
    this.drawCursor();
    if (aloud && index !== null) this.said.textContent = this.lines(index).map((line) => line.join(" ")).join(", ");
  }

  lines(index) {
    return tipLines(this.data, this.options, index);
  }

  drawCursor() {
    if (!this.width) return;
    const ctx = this.overlay.getContext("2d");
    ctx.clearRect(0, 0, this.width, this.height);
    const { cursor, drag } = this;
    if (drag && Math.abs(drag.from - drag.to) > CLICK) {
      ctx.globalAlpha = 0.5;
      ctx.fillStyle = this.colours.chosen;
      ctx.fillRect(Math.min(drag.from, drag.to), TOP, Math.abs(drag.from - drag.to), this.height - TOP - FLOOR);
      ctx.globalAlpha = 1;
    }
    this.drawMarked(ctx);
    this.tip.hidden = cursor === null;
    if (cursor === null) return;
    const x = this.x(cursor);
    ctx.fillStyle = this.colours.muted;
    ctx.fillRect(Math.round(x), TOP, 1, this.height - TOP - FLOOR);
    for (const { values, colour = "accent" } of this.data.series) {
      if ((values[cursor] ?? null) === null) continue;
      ctx.fillStyle = this.colours[colour];
      ctx.fillRect(x - 3, this.y(values[cursor]) - 3, 6, 6);
    }
    this.tip.replaceChildren(...this.lines(cursor).map(([name, text], place) => h(place ? "div" : "strong", {}, name ? h("span", { class: "label" }, `${name} `) : null, text)));
    const left = x + 14 + this.tip.offsetWidth > this.width ? x - 14 - this.tip.offsetWidth : x + 14;
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${TOP + 6}px)`;
  }

  drawMarked(ctx) {
    const { marked, view } = this;
    if (marked === null || marked < view[0] || marked > view[1]) return;
    ctx.fillStyle = this.colours.accent;
    ctx.globalAlpha = 0.45;
    ctx.fillRect(Math.round(this.x(marked)), TOP, 1, this.height - TOP - FLOOR);
    ctx.globalAlpha = 1;
    ctx.fillRect(this.x(marked) - 4, this.height - FLOOR, 9, 3);
  }
}
