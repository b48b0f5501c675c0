// A heat map of launch sites by steps; the canvas draws visible rows only.
import { h } from "#js/core/dom.js";
import { plural } from "#js/core/format.js";
import { NAMES } from "#js/core/health.js";
import { HEALTH_COLOURS, drawClass } from "#js/core/health_draw.js";
import { Picture } from "#js/core/picture.js";
import { roundUp } from "#js/core/plot_model.js";
import { HEAD, ROW, cellWindow, classAt, columnAt, columnEdges, joins, moveCell, rowsOf, runsOf, visibleRows, worstCell, zoomWindow } from "#js/values/heat_model.js";

const COLOURS = ["bg", "bg-2", "line", "text", "muted", "accent", ...HEALTH_COLOURS];
const TALLEST = 560;

export class HeatMap extends Picture {
  cell = null;
  /** Heading of what is drawn behind the cells of a row. */
  summary = "worst";
  summaryWidth = 44;

  /**
   * Calls `open(window, launch)` for a chosen cell, with {launch, step} if the data has it, and `zoom(window, cell)` for one
   * that joins several. `what` names the rows, `colours` are those that a subclass draws with.
   */
  constructor(box, heat, { open, zoom = null, what = "launch sites", colours = [] }) {
    const label = `Heat map of ${what} by steps, ${heat.sites.length} rows and ${heat.steps.length} columns. Arrow keys read its cells, Enter opens the launch${zoom ? " or zooms in" : ""}.`;
    super(box, [...COLOURS, ...colours], { class: "heat-picture", tabindex: "0", role: "application", "aria-label": label });
    Object.assign(this, { heat, open, zoom, rows: rowsOf(heat) });
    const full = HEAD + this.rows.length * ROW + 4;
    this.spacer = h("div", { class: "heat-space" }, this.canvas);
    this.spacer.style.height = `${full}px`;
    this.scroll = h("div", { class: "heat-scroll" }, this.spacer);
    this.height = Math.min(TALLEST, full);
    this.scroll.style.height = `${this.height}px`;
    this.said = h("p", { class: "visually-hidden", "aria-live": "polite" });
    this.overlay.remove();
    box.append(this.scroll, this.tip, this.said);
    this.listen();
    this.start();
  }

  room() {
    return this.scroll;
  }

  heightOf() {
    return this.height;
  }

  listen() {
    this.scroll.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.choose(this.under(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("pointerleave", () => this.choose(null));
    this.canvas.addEventListener("click", (event) => this.openCell(event.shiftKey));
    this.canvas.addEventListener("blur", () => this.choose(null));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (move) {
      const first = { row: this.rows.findIndex(({ index }) => index !== null), column: 0 };
      this.choose(this.cell ? moveCell(this.rows, this.heat.steps.length, this.cell, ...move) : first, true);
      this.bringIntoView();
    } else if (event.key === "Enter") this.openCell(event.shiftKey);
    else if (event.key === "Escape") this.choose(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Selects the worst cell of a window after a zoom. */
  goTo(window) {
    const place = worstCell(this.heat, window);
    if (!place) return;
    const row = this.rows.findIndex(({ index }) => index === place.row);
    this.scroll.scrollTop = row * ROW - (this.height - HEAD) / 2;
    this.choose({ row, column: place.column });
  }

  bringIntoView() {
    const top = this.cell.row * ROW;
    const room = this.height - HEAD - ROW;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (top > this.scroll.scrollTop + room) this.scroll.scrollTop = top - room;
  }

  resize() {
    const { clientWidth: width } = this.scroll;
    if (width) {
      this.gutter = this.gutterOf(width);
      this.edges = columnEdges(this.heat.steps.length, width - this.gutter - this.summaryWidth - 8, 28, devicePixelRatio);
    }
    super.resize();
  }

  /** Returns the width of the names, at most about a third of the picture. */
  gutterOf(width) {
    const ctx = this.canvas.getContext("2d");
    ctx.font = `11px ${this.colours.font}`;
    const widest = Math.max(...this.rows.map(({ label }) => ctx.measureText(label).width));
    return Math.round(Math.min(widest + 24, Math.max(160, Math.min(320, width * 0.3))));
  }

  under(x, y) {
    const column = columnAt(this.edges, x - this.gutter);
    const row = Math.floor((y - HEAD + this.scroll.scrollTop) / ROW);
    return y < HEAD || column === null || (this.rows[row]?.index ?? null) === null ? null : { row, column };
  }

  choose(cell, aloud = false) {
    this.cell = cell;
    this.draw();
    this.drawPointer();
    this.canvas.classList.toggle("pointing", this.wasRead());
    if (aloud && cell) this.said.textContent = this.lines().join(", ");
  }

  /** Returns the row and column of the chosen cell in the data. */
  get at() {
    return [this.rows[this.cell.row].index, this.cell.column];
  }

  wasRead() {
    return this.cell !== null && this.heat.cells[this.at[0]][this.at[1]] >= 0;
  }

  looksCloser() {
    return this.zoom !== null && joins(this.heat, ...this.at);
  }

  openCell(straight) {
    if (!this.cell) return;
    const [row, column] = this.at;
    if (this.looksCloser() && !straight) this.zoom(zoomWindow(this.heat, row, column), cellWindow(this.heat, row, column));
    else if (this.wasRead()) {
      const launch = this.heat.launches[row]?.[column] ?? null;
      this.open(cellWindow(this.heat, row, column), launch === null ? null : { launch, step: this.heat.launch_steps[row][column] });
    }
  }

  lines() {
    const { heat } = this;
    const [row, column] = this.at;
    const sites = heat.joined_sites[row];
    const name = NAMES[classAt(heat, row, column)];
    return [
      sites > 1 ? `${heat.kernels[row]} and the ${plural(sites - 1, "launch site")} after it` : heat.kernels[row],
      `${this.where()} · ${joins(heat, row, column) ? "worst: " : ""}${name}`,
      this.howToOpen(),
    ];
  }

  where() {
    const { steps, last_steps: last, joined_steps: joined } = this.heat;
    const column = this.cell.column;
    return joined[column] > 1 ? `steps ${steps[column]} to ${last[column]}` : `step ${steps[column]}`;
  }

  howToOpen() {
    if (!this.wasRead()) return "not launched, or not read";
    if (this.looksCloser()) return "click to zoom in, Shift+click to open the worst launch";
    return `click to open the ${joins(this.heat, ...this.at) ? "worst " : ""}launch`;
  }

  drawPointer() {
    this.tip.hidden = !this.cell;
    if (!this.cell) return;
    this.fillTip(this.lines());
    const [x, y] = this.corner(this.cell);
    const left = x + 24 + this.tip.offsetWidth > this.width ? x - this.tip.offsetWidth - 8 : x + 24;
    const top = y + ROW + 6 + this.tip.offsetHeight > this.height ? y - this.tip.offsetHeight - 4 : y + ROW + 6;
    this.moveTip(left, Math.max(0, top));
  }

  corner({ row, column }) {
    return [this.gutter + this.edges[column], HEAD + row * ROW - this.scroll.scrollTop];
  }

  picture(ctx) {
    const [first, last] = visibleRows(this.rows.length, this.scroll.scrollTop, this.height - HEAD);
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, HEAD, this.width, this.height - HEAD);
    ctx.clip();
    for (let row = first; row < last; row++) this.drawRow(ctx, this.rows[row], HEAD + row * ROW - this.scroll.scrollTop);
    if (this.cell) this.frameCell(ctx);
    ctx.restore();
    this.drawHead(ctx);
  }

  drawHead(ctx) {
    const { colours, edges, gutter } = this;
    ctx.fillStyle = colours.bg;
    ctx.fillRect(0, 0, this.width, HEAD);
    ctx.fillStyle = colours.muted;
    const { steps } = this.heat;
    const before = Math.max(0, (ctx.measureText(steps[0]).width - (edges[1] - edges[0])) / 2);
    ctx.fillText("step", gutter - ctx.measureText("step").width - 8 - before, HEAD / 2);
    const every = roundUp((ctx.measureText(steps.at(-1)).width + 10) / Math.max(1, edges[1] - edges[0]));
    for (let column = 0; column < steps.length; column += every) {
      ctx.fillText(steps[column], gutter + (edges[column] + edges[column + 1] - ctx.measureText(steps[column]).width) / 2, HEAD / 2);
    }
    ctx.fillText(this.summary, gutter + edges.at(-1) + 8, HEAD / 2);
    ctx.fillStyle = colours.line;
    ctx.fillRect(0, HEAD - 1, this.width, 1);
  }

  drawRow(ctx, row, y) {
    const { colours, gutter } = this;
    const { label, index } = row;
    const middle = y + ROW / 2;
    if (index === null) {
      ctx.fillStyle = colours["bg-2"];
      ctx.fillRect(0, y, this.width, ROW);
      ctx.fillStyle = colours.text;
      ctx.fillText(label, 8, middle);
      return;
    }
    ctx.fillStyle = this.cell && this.rows[this.cell.row].index === index ? colours.accent : colours.text;
    ctx.fillText(cut(ctx, label, gutter - 16), 8, middle);
    this.drawCells(ctx, row, y);
  }

  drawCells(ctx, { index, worst }, y) {
    const { colours, edges, gutter, heat } = this;
    for (const { name, from, to } of runsOf(heat, index, edges)) {
      const size = edges[to] - edges[from];
      drawClass(ctx, name, gutter + edges[from], y + 1, size - (size > 4 ? 1 : 0), ROW - 2, colours);
    }
    drawClass(ctx, worst, gutter + edges.at(-1) + 10, y + 2, 14, ROW - 4, colours);
  }

  frameCell(ctx) {
    const [x, y] = this.corner(this.cell);
    const size = this.edges[this.cell.column + 1] - this.edges[this.cell.column];
    ctx.strokeStyle = this.colours.text;
    ctx.lineWidth = 2;
    ctx.strokeRect(x - 1, y, Math.max(size + 1, 4), ROW);
    ctx.lineWidth = 1;
  }
}

/** Truncates text in the middle, because kernel names differ at their ends. */
function cut(ctx, text, room) {
  const wide = ctx.measureText(text).width;
  let shown = text;
  for (let fits = Math.floor((text.length * room) / wide); wide > room && fits > 4 && ctx.measureText(shown).width > room; fits--) {
    shown = `${text.slice(0, Math.ceil(fits * 0.5))}…${text.slice(text.length - Math.floor(fits * 0.5))}`;
  }
  return shown;
}
