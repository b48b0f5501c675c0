// Plots over ordered points, such as launches or scheduler nodes; the cursor reads exact values, a drag zooms.
import { h } from "#js/core/dom.js";
import { formatValue } from "#js/core/format.js";
import { HEALTH_COLOURS } from "#js/core/health_draw.js";
import { Picture } from "#js/core/picture.js";
import { FLOOR, GUTTER, LABEL, RIGHT, TOP, drawAxes, drawCursor, drawDrag, drawLabels, drawLimit, drawMarked, drawMarker, drawRemark, drawSeries, drawSigns } from "#js/core/plot_draw.js";
import { axisStart, clampView, labelled, placeX, pointAt, rangeInView, scaleOf, zoomed } from "#js/core/plot_model.js";

const CLICK = 4;
const COLOURS = ["estimated", "bg", "line", "line-2", "text", "muted", "accent", "critical", "warning", "info", "good", "chosen", ...HEALTH_COLOURS];

/**
 * `data`: label; names (one per point); series [{name, values, colour, dash: solid|dashed|dotted, stepped, filled, dots,
 * silent}], with null for unknown values and silent if the tooltip omits it; markers [{index, series, name, sign, severity}] with the
 * index of a series; marks [{index, name}] of value classes; log if the axis is logarithmic; limit {value, label} or null;
 * range {low, high, limitAbove}, by default that of the view from zero, or `from`, to at least the value `least`.
 * `options`: format(value) and exact(value) return texts; lines(index) or more(index) return all or further lines of the
 * tooltip; open(index) runs on a click; labelOf(index) and labelsIn(view, width, least) label the axis; view [first, last]
 * is the initial view, remember(view or null) runs when it changes; isFixed if the plot always shows all points.
 */
export class Plot extends Picture {
  cursor = null;
  drag = null;
  marked = null;

  constructor(box, data, options) {
    super(box, COLOURS, { tabindex: "0", role: "application" });
    Object.assign(this, { data, options, view: clampView(options.view, data.names.length) });
    this.said = h("p", { class: "visually-hidden", "aria-live": "polite" });
    box.append(this.said);
    this.x = (index) => GUTTER + placeX(index, this.view, this.inner);
    this.y = (value) => TOP + this.scale.at(value);
    this.listen();
    this.start();
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
    this.view = clampView(this.options.isFixed ? null : view, this.count);
    const all = this.view[0] === 0 && this.view[1] >= this.count - 1;
    this.options.remember?.(all ? null : this.view);
    this.paint();
  }

  /** Marks the point that the page is about. */
  mark(index) {
    this.marked = index;
    this.drawPointer();
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
      if (isDragged({ ...drag, to: offsetX }) && !this.options.isFixed) this.look([this.at(drag.from), this.at(offsetX)]);
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
    const factor = this.options.isFixed ? undefined : { "+": 0.5, "=": 0.5, "-": 2, 0: Infinity }[event.key];
    if (to !== undefined) this.moveTo(Math.min(this.count - 1, Math.max(0, to)), true);
    else if (factor) this.look(factor === Infinity ? null : zoomed(this.view, factor, Math.max(here, this.view[0]), this.count));
    else if (event.key === "Enter" && this.cursor !== null) this.options.open?.(this.cursor);
    else if (event.key === "Escape" && this.cursor !== null) this.moveTo(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  at(offsetX) {
    return pointAt(offsetX - GUTTER, this.view, this.inner);
  }

  picture(ctx) {
    const { data, view, options } = this;
    const keys = options.isFixed ? "Enter opens the launch." : "Enter opens, plus and minus zoom, 0 shows all.";
    this.canvas.setAttribute("aria-label", `${data.label}, ${this.count} points. Arrow keys read them, ${keys}`);
    const range = data.range ?? rangeInView(data.series, view, data.least, data.from);
    this.scale = scaleOf(range, this.height - TOP - FLOOR, data.log, options.format ?? formatValue);
    drawAxes(ctx, this);
    const start = data.log ? null : axisStart(range, options.format ?? formatValue);
    const asked = options.labelsIn?.(view, this.inner, LABEL);
    const labels = (asked ?? labelled(view, this.inner, LABEL)).map((index) => ({ index, text: options.labelOf?.(index) ?? data.names[index] }));
    drawLabels(ctx, this, labels, asked ? Infinity : LABEL - 12);
    const drawLimitLabel = data.limit && drawLimit(ctx, this, data.limit, range.limitAbove);
    ctx.save();
    ctx.beginPath();
    if (options.isFixed) ctx.rect(0, 0, this.width, this.height);
    else ctx.rect(GUTTER, 0, this.inner + RIGHT, this.height - FLOOR + 1);
    ctx.clip();
    for (const series of data.series) drawSeries(ctx, this, series);
    ctx.restore();
    drawLimitLabel?.();
    if (start) drawRemark(ctx, this, start);
    drawSigns(ctx, this, data.marks ?? []);
    for (const marker of data.markers ?? []) drawMarker(ctx, this, marker);
  }

  moveTo(index, aloud = false) {
    this.cursor = this.count ? index : null;
    if (index !== null && (index < this.view[0] || index > this.view[1])) {
      const size = this.view[1] - this.view[0];
      const first = Math.min(this.count - 1 - size, Math.max(0, index < this.view[0] ? index : index - size));
      this.look([first, first + size]);
    }
    this.drawPointer();
    if (aloud && index !== null) this.said.textContent = this.lines(index).map((line) => line.join(" ")).join(", ");
  }

  /** Returns the lines of the tooltip: the name of the point, its values and its markers, or those of `options`. */
  lines(index) {
    const { data: { names, series, markers = [] }, options } = this;
    if (options.lines) return options.lines(index);
    return [
      ["", names[index]],
      ...(options.more?.(index) ?? []),
      ...series
        .filter(({ silent }) => !silent)
        .map(({ name, values }) => [name, (values[index] ?? null) === null ? "– (not recorded)" : options.exact(values[index])]),
      ...markers.filter((marker) => marker.index === index && marker.name).map(({ name }) => ["▼", name]),
    ];
  }

  drawPointer() {
    if (!this.width) return;
    const ctx = this.overlay.getContext("2d");
    const { cursor, drag } = this;
    ctx.clearRect(0, 0, this.width, this.height);
    if (drag && isDragged(drag) && !this.options.isFixed) drawDrag(ctx, this, drag);
    drawMarked(ctx, this, this.marked);
    this.tip.hidden = cursor === null;
    if (cursor === null) return;
    drawCursor(ctx, this, cursor);
    this.fillTip(this.lines(cursor));
    const x = this.x(cursor);
    this.moveTip(x + 14 + this.tip.offsetWidth > this.width ? x - 14 - this.tip.offsetWidth : x + 14, TOP + 6);
  }
}

const isDragged = ({ from, to }) => Math.abs(from - to) > CLICK;
