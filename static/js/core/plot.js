// A plot of values in order of time: axes, a limit, signs for what cannot be drawn, a cursor that reads exactly.
import { coloursOf, onTheme, sizeCanvas } from "#js/core/colours.js";
import { h } from "#js/core/dom.js";
import { formatValue } from "#js/core/format.js";
import { HEALTH } from "#js/core/health.js";
import { drawClass, HEALTH_COLOURS } from "#js/core/health_draw.js";
import { indexAt, rangeOf, scaleOf, stepLabels, thinned, xOf } from "#js/core/plot_model.js";

const GUTTER = 72, RIGHT = 16, SIGNS = 22, FLOOR = 26, SIGN = 11;
const COLOURS = ["bg", "line", "line-2", "text", "muted", "accent", "critical", "info", ...HEALTH_COLOURS];
const MOST_DOTS = 300;

/**
 * `data`: values, log, limit {value, label} or null, steps (one per point), marks [{index, name}],
 * label. `options`: lines(index) -> [[name, text]] of the tip, open(index).
 */
export class Plot {
  constructor(box, data, options) {
    Object.assign(this, { box, data, options, cursor: null });
    this.canvas = h("canvas", { class: "picture", tabindex: "0", role: "application" });
    this.overlay = h("canvas", { class: "pointer", "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.said = h("p", { class: "visually-hidden", "aria-live": "polite" });
    box.append(this.canvas, this.overlay, this.tip, this.said);
    this.colours = coloursOf(box, COLOURS);
    onTheme(() => {
      this.colours = coloursOf(this.box, COLOURS);
      this.draw();
    });
    this.listen();
    new ResizeObserver(() => this.resize()).observe(box);
    this.resize();
  }

  show(data) {
    this.data = data;
    this.draw();
  }

  listen() {
    this.overlay.addEventListener("pointermove", ({ offsetX }) => this.moveTo(indexAt(offsetX - GUTTER, this.count, this.inner)));
    this.overlay.addEventListener("pointerleave", () => this.moveTo(null));
    this.overlay.addEventListener("click", () => this.cursor !== null && this.options.open(this.cursor));
    this.canvas.addEventListener("blur", () => this.moveTo(null));
    this.canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const here = this.cursor ?? -1;
      const jump = event.shiftKey ? 10 : 1;
      const to = { ArrowRight: here + jump, ArrowLeft: here - jump, Home: 0, End: this.count - 1 }[event.key];
      if (to !== undefined) this.moveTo(Math.min(this.count - 1, Math.max(0, to)), true);
      else if (event.key === "Enter" && here >= 0) this.options.open(here);
      else if (event.key === "Escape") this.moveTo(null);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  get count() {
    return this.data.values.length;
  }

  get inner() {
    return this.width - GUTTER - RIGHT;
  }

  resize() {
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    if (!width || (width === this.width && height === this.height && devicePixelRatio === this.ratio)) return;
    Object.assign(this, { width, height, ratio: devicePixelRatio });
    sizeCanvas(this.canvas, width, height);
    sizeCanvas(this.overlay, width, height);
    this.draw();
  }

  draw() {
    if (!this.width) return;
    const { values, log, limit } = this.data;
    this.canvas.setAttribute("aria-label", `${this.data.label}, ${this.count} points. Arrow keys read them, Enter opens the launch.`);
    const range = rangeOf(values, { log, limit: limit?.value ?? null });
    this.scale = scaleOf(range, this.height - SIGNS - FLOOR, log);
    const ctx = this.canvas.getContext("2d");
    ctx.clearRect(0, 0, this.width, this.height);
    ctx.font = `11px ${this.colours.font}`;
    ctx.textBaseline = "middle";
    this.drawAxes(ctx);
    const label = limit && this.drawLimit(ctx, limit, range);
    this.drawLine(ctx);
    if (label) this.drawLimitLabel(ctx, label);
    this.drawSigns(ctx);
    this.drawCursor();
  }

  drawAxes(ctx) {
    const { colours, width, height } = this;
    const bottom = height - FLOOR;
    for (const { value, label } of this.scale.ticks) {
      const y = Math.round(SIGNS + this.scale.at(value));
      ctx.fillStyle = colours["line-2"];
      ctx.fillRect(GUTTER, y, width - GUTTER - RIGHT, 1);
      ctx.fillStyle = colours.muted;
      ctx.textAlign = "right";
      ctx.fillText(label, GUTTER - 8, y);
    }
    ctx.fillStyle = colours.line;
    ctx.fillRect(GUTTER, SIGNS, 1, bottom - SIGNS);
    ctx.fillRect(GUTTER, bottom, width - GUTTER - RIGHT, 1);
    ctx.fillStyle = colours.muted;
    if (this.data.log && this.data.values.includes(0)) {
      ctx.textAlign = "right";
      ctx.fillText("0", GUTTER - 8, bottom);
    }
    for (const { x, step } of stepLabels(this.data.steps, this.inner, 68)) {
      ctx.fillRect(Math.round(GUTTER + x), bottom, 1, 4);
      const name = `step ${step}`;
      const wide = ctx.measureText(name).width;
      ctx.textAlign = "left";
      ctx.fillText(name, Math.min(GUTTER + x - wide / 2, width - wide - 2), bottom + 14);
    }
  }

  drawLimit(ctx, { value, label }, { limitAbove }) {
    const { colours, width } = this;
    const y = limitAbove ? SIGNS : Math.round(SIGNS + this.scale.at(value)) + 0.5;
    ctx.strokeStyle = colours.critical;
    ctx.setLineDash(limitAbove ? [2, 5] : [6, 4]);
    ctx.beginPath();
    ctx.moveTo(GUTTER, y);
    ctx.lineTo(width - RIGHT, y);
    ctx.stroke();
    ctx.setLineDash([]);
    const text = limitAbove ? `↑ ${label}, far above` : label;
    return { text, y: y + 9 };
  }

  /** Last of all and on a ground of its own: the line may run behind it. */
  drawLimitLabel(ctx, { text, y }) {
    const { colours, width } = this;
    const wide = ctx.measureText(text).width;
    ctx.globalAlpha = 0.85;
    ctx.fillStyle = colours.bg;
    ctx.fillRect(width - RIGHT - wide - 4, y - 7, wide + 4, 14);
    ctx.globalAlpha = 1;
    ctx.fillStyle = colours.critical;
    ctx.textAlign = "right";
    ctx.fillText(text, width - RIGHT, y);
  }

  drawLine(ctx) {
    const { colours } = this;
    ctx.strokeStyle = ctx.fillStyle = colours.accent;
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    let gap = true;
    this.data.values.forEach((value, index) => {
      if (value === null) {
        gap = true;
        return;
      }
      const [x, y] = this.place(index, value);
      if (gap) ctx.moveTo(x, y);
      else ctx.lineTo(x, y);
      gap = false;
    });
    ctx.stroke();
    ctx.lineWidth = 1;
    // Where there are many, only points that no line leads to.
    const { values } = this.data;
    const few = this.count <= MOST_DOTS;
    const alone = (index) => (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null;
    values.forEach((value, index) => value !== null && (few || alone(index)) && this.dot(ctx, index, value, 2.5));
  }

  place(index, value) {
    return [GUTTER + xOf(index, this.count, this.inner), SIGNS + this.scale.at(value)];
  }

  dot(ctx, index, value, radius) {
    const [x, y] = this.place(index, value);
    ctx.beginPath();
    ctx.arc(x, y, radius, 0, 7);
    ctx.fill();
  }

  drawSigns(ctx) {
    for (const { x, name } of thinned(this.data.marks, this.count, this.inner, SIGN + 2, HEALTH)) {
      drawClass(ctx, name, GUTTER + x - SIGN / 2, 2, SIGN, SIGN + 2, this.colours);
    }
  }

  moveTo(index, aloud = false) {
    this.cursor = this.count ? index : null;
    this.drawCursor();
    if (aloud && index !== null) this.said.textContent = this.options.lines(index).map((line) => line.join(" ")).join(", ");
  }

  drawCursor() {
    const ctx = this.overlay.getContext("2d");
    ctx.clearRect(0, 0, this.width, this.height);
    const { cursor } = this;
    this.tip.hidden = cursor === null;
    if (cursor === null) return;
    const value = this.data.values[cursor];
    const x = GUTTER + xOf(cursor, this.count, this.inner);
    ctx.fillStyle = this.colours.muted;
    ctx.fillRect(Math.round(x), SIGNS, 1, this.height - SIGNS - FLOOR);
    ctx.fillStyle = this.colours.text;
    if (value !== null) this.dot(ctx, cursor, value, 4);
    this.tip.replaceChildren(...this.options.lines(cursor).map(([name, text], place) => h(place ? "div" : "strong", {}, name ? h("span", { class: "label" }, `${name} `) : null, text)));
    const left = x + 14 + this.tip.offsetWidth > this.width ? x - 14 - this.tip.offsetWidth : x + 14;
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${SIGNS + 6}px)`;
  }
}

/** The value as shown, and in full where that says more. */
export function exact(value, reason) {
  if (value === null || value === undefined) return `– (${reason})`;
  const shown = formatValue(value);
  return Number.isInteger(value) || shown === String(value) ? shown : `${shown} (${value})`;
}
