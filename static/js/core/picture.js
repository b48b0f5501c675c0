// The base of all canvas charts: size, theme, a pointer layer and a tooltip.
import { coloursOf, onTheme, sizeCanvas } from "#js/core/colours.js";
import { h } from "#js/core/dom.js";

export class Picture {
  /**
   * `names` are the colours it uses, `attributes` those of its canvas. A subclass implements picture(ctx) and
   * drawPointer(), and calls `start` when it is ready.
   */
  constructor(box, names, attributes) {
    Object.assign(this, { box, names, frame: 0 });
    this.canvas = h("canvas", { class: "picture", ...attributes });
    this.overlay = h("canvas", { class: "pointer", "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    box.append(this.canvas, this.overlay, this.tip);
  }

  start() {
    this.recolour();
    onTheme(() => {
      this.recolour();
      this.draw();
    });
    new ResizeObserver(() => this.resize()).observe(this.room());
    this.resize();
  }

  recolour() {
    this.colours = coloursOf(this.box, this.names);
  }

  resize() {
    const [width, height] = [this.room().clientWidth, this.heightOf(this.room())];
    if (!width || (width === this.width && height === this.height && devicePixelRatio === this.ratio)) return;
    Object.assign(this, { width, height, ratio: devicePixelRatio });
    for (const canvas of [this.canvas, this.overlay]) sizeCanvas(canvas, width, height);
    this.paint();
  }

  /** Returns the element that the chart fills. */
  room() {
    return this.box;
  }

  heightOf(room) {
    return room.clientHeight;
  }

  /** Schedules one redraw for all changes until then. */
  draw() {
    this.frame ||= requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.width) return;
    const ctx = this.canvas.getContext("2d");
    ctx.clearRect(0, 0, this.width, this.height);
    ctx.font = `11px ${this.colours.font}`;
    ctx.textBaseline = "middle";
    this.picture(ctx);
    this.drawPointer();
  }

  /** Fills the tooltip with `lines`, which are texts or [name, text] pairs. */
  fillTip(lines) {
    const row = (line, place) => {
      const [name, text] = Array.isArray(line) ? line : ["", line];
      return h(place ? "div" : "strong", {}, name ? h("span", { class: "label" }, /\w$/.test(name) ? `${name}: ` : `${name} `) : null, text);
    };
    this.tip.replaceChildren(...lines.map(row));
  }

  moveTip(left, top) {
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${top}px)`;
  }
}
