// A chart on which a drag selects a span of time: on the ruler, or anywhere with Shift.
import { GUTTER, nsOf, xOf } from "#js/core/chart_draw.js";
import { AXIS, MINIMAP, edgeAt, spanOf } from "#js/core/chart_model.js";
import { ChartView } from "#js/core/chart_view.js";

const EDGE_PX = 5;
const MOVED_PX = 3;

/** A further option is onArea(area), where an area is {start, end}, or null if a click on the ruler removed it. */
export class AreaChart extends ChartView {
  area = null;
  marking = null;

  listen() {
    super.listen();
    this.overlay.addEventListener("pointercancel", () => (this.marking = null));
  }

  setArea(area) {
    this.area = area;
    this.draw();
  }

  onDown(event) {
    const anchor = event.button === 0 ? this.anchorOf(event) : null;
    if (anchor === null) return super.onDown(event);
    this.overlay.setPointerCapture(event.pointerId);
    this.marking = { anchor, from: event.offsetX, moved: false };
  }

  /** Returns the time at which a selection begins here, or null if a drag does not select; a drag of an edge moves it. */
  anchorOf({ offsetX: x, offsetY: y, shiftKey }) {
    if (x < GUTTER - EDGE_PX || y < MINIMAP - 4) return null;
    const isRuler = y < MINIMAP + AXIS;
    const slack = (EDGE_PX * (this.view.end - this.view.start)) / (this.width - GUTTER);
    const ns = nsOf(Math.max(x, GUTTER), this.view, this.width);
    if (isRuler) return edgeAt(this.area, ns, slack) ?? ns;
    return shiftKey ? ns : null;
  }

  onMove(event) {
    const { marking } = this;
    if (!marking) return super.onMove(event);
    marking.moved ||= Math.abs(event.offsetX - marking.from) > MOVED_PX;
    if (marking.moved) this.setArea(spanOf(marking.anchor, nsOf(Math.max(event.offsetX, GUTTER), this.view, this.width), this.bounds));
    this.point({ x: event.offsetX, y: event.offsetY });
  }

  onUp(event) {
    const { marking } = this;
    if (!marking) return super.onUp(event);
    this.marking = null;
    if (!marking.moved && (!this.area || event.shiftKey)) return;
    if (!marking.moved) this.setArea(null);
    this.options.onArea?.(this.area);
  }

  drawArea(ctx) {
    const { area, view, bounds, width, height, colours } = this;
    if (!area) return;
    ctx.fillStyle = colours.accent;
    const [first, last] = [xOf(area.start, bounds, width), xOf(area.end, bounds, width)];
    ctx.fillRect(first, MINIMAP - 8, Math.max(2, last - first), 2);
    const [left, right] = [Math.max(GUTTER, xOf(area.start, view, width)), Math.min(width, xOf(area.end, view, width))];
    if (right < GUTTER || left > width) return;
    ctx.globalAlpha = 0.12;
    ctx.fillRect(left, MINIMAP, right - left, height - MINIMAP);
    ctx.globalAlpha = 1;
    ctx.fillRect(left, MINIMAP + AXIS - 4, right - left, 4);
    for (const ns of [area.start, area.end]) {
      if (ns >= view.start && ns <= view.end) ctx.fillRect(Math.round(xOf(ns, view, width)) - (ns === area.end ? 1 : 0), MINIMAP, 1, height - MINIMAP);
    }
  }
}
