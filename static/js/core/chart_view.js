// The interactive view of rows over time: pointer, wheel, keys, and fetches of finer data.
import { GUTTER, drawPointer, nsOf } from "#js/core/chart_draw.js";
import { MINIMAP, clamp, pan, zoom } from "#js/core/chart_model.js";
import { debounce } from "#js/core/dom.js";
import { formatTick } from "#js/core/format.js";
import { Picture } from "#js/core/picture.js";

const SLACK_PX = 4;
const FETCH_MS = 20;

/**
 * A subclass sets `rows` [{y, height}], `whole` (all data) and `data` (the data of the view), and implements
 * picture(ctx), prepare(fetched), missing(), found(row, ns, slack), lines(found) and opens(found).
 * `options`: onView(view, isWhole), onOpen(found), fetchWindow(start, end, width, signal) or null if all data is there.
 */
export class ChartView extends Picture {
  origin = 0;
  /** Margin beside the range that is fitted into the view. */
  margin = 0.05;
  pointer = null;
  asked = new Map();

  constructor(box, options, names, label) {
    super(box, names, { role: "img", "aria-label": label });
    this.options = options;
    this.fetchSoon = debounce(() => this.fetchDetail(), FETCH_MS);
  }

  start() {
    this.box.querySelector(".spacer")?.setAttribute("height", this.rowsHeight);
    this.listen();
    super.start();
  }

  heightOf() {
    return this.rowsHeight;
  }

  listen() {
    const target = this.overlay;
    target.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    target.addEventListener("pointerdown", (event) => this.onDown(event));
    target.addEventListener("pointermove", (event) => this.onMove(event));
    target.addEventListener("pointerup", (event) => this.onUp(event));
    target.addEventListener("pointerleave", () => this.point(null));
    target.addEventListener("dblclick", (event) => {
      const found = this.under(event.offsetX, event.offsetY);
      if (found?.end !== undefined) this.fitTo(found.start, found.end);
    });
  }

  /** Connects the zoom and fit buttons of `bar`. */
  listenTo(bar) {
    bar.querySelector(".zoom-in").addEventListener("click", () => this.zoomBy(0.5));
    bar.querySelector(".zoom-out").addEventListener("click", () => this.zoomBy(2));
    bar.querySelector(".fit").addEventListener("click", () => this.fit());
  }

  /** Returns the key actions for `onKeys`. */
  keys() {
    return {
      w: () => this.zoomBy(0.7),
      s: () => this.zoomBy(1 / 0.7),
      a: () => this.panBy(-0.15),
      d: () => this.panBy(0.15),
      f: () => this.fit(),
    };
  }

  setView(view) {
    this.view = clamp(view, this.bounds);
    if (this.data.start > this.view.start || this.data.end < this.view.end) this.data = this.whole;
    this.draw();
    this.fetchSoon();
    this.tellView();
  }

  tellView() {
    const { view, bounds } = this;
    this.options.onView?.(view, view.start === bounds.start && view.end === bounds.end);
  }

  /** Fetches a window and aborts the request for an older one; returns null if that failed or a newer one was requested. */
  async fetched(wanted, fetchWindow, detail) {
    const request = new AbortController();
    this.asked.get(fetchWindow)?.abort();
    this.asked.set(fetchWindow, request);
    const window = [Math.floor(this.origin + wanted.start), Math.ceil(this.origin + wanted.end)];
    const found = await fetchWindow(...window, Math.round(this.width * this.ratio * detail), request.signal);
    return request.signal.aborted ? null : found;
  }

  async fetchDetail() {
    const wanted = this.options.fetchWindow && this.missing();
    const found = wanted && (await this.fetched(wanted, this.options.fetchWindow, 1.5));
    if (!found) return;
    this.data = this.prepare(found);
    this.draw();
    this.tellView();
  }

  zoomBy(factor, at = (this.view.start + this.view.end) / 2) {
    this.setView(zoom(this.view, this.bounds, factor, at));
  }

  panBy(share) {
    this.setView(pan(this.view, this.bounds, share * (this.view.end - this.view.start)));
  }

  fitTo(start, end) {
    const margin = Math.max((end - start) * this.margin, 50);
    this.setView({ start: start - margin, end: end + margin });
  }

  fit() {
    this.setView(this.bounds);
  }

  centre(x) {
    const at = nsOf(x, this.bounds, this.width);
    const half = (this.view.end - this.view.start) / 2;
    this.setView({ start: at - half, end: at + half });
  }

  rowAt(x, y) {
    return x < GUTTER ? null : (this.rows.find((row) => y >= row.y && y < row.y + row.height) ?? null);
  }

  under(x, y) {
    const row = this.rowAt(x, y);
    const slack = (SLACK_PX * (this.view.end - this.view.start)) / (this.width - GUTTER);
    return row && this.found(row, nsOf(x, this.view, this.width), slack);
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
    const found = this.under(event.offsetX, event.offsetY);
    if (found && this.opens(found)) this.options.onOpen?.(found);
  }

  point(pointer) {
    this.pointer = pointer;
    this.drawPointer();
  }

  /** Returns the time at a position as the axis shows it, or null. */
  timeAt(ns) {
    return ns;
  }

  drawPointer() {
    const { pointer, width, height, colours } = this;
    const time = this.timeAt(pointer ? nsOf(pointer.x, this.view, width) : 0);
    const label = time === null ? "" : formatTick(Math.max(0, Math.round(time)), (this.view.end - this.view.start) / width);
    drawPointer(this.overlay.getContext("2d"), { width, height, colours, x: pointer?.x ?? null, label });
    const found = pointer && !this.drag?.moved ? this.under(pointer.x, pointer.y) : null;
    this.tip.hidden = !found;
    this.overlay.classList.toggle("pointing", Boolean(found && this.opens(found)));
    if (!found) return;
    this.fillTip(this.lines(found));
    const left = Math.min(pointer.x + 14, width - this.tip.offsetWidth - 4);
    this.moveTip(left, pointer.y + 18 + this.tip.offsetHeight > height + 24 ? pointer.y - this.tip.offsetHeight - 8 : pointer.y + 18);
  }
}
