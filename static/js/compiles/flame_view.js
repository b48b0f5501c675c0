// The chart of compile-time spans: one row per depth of each lane, events below them, and shortened gaps.
import { FLAME_COLOURS, drawFlame } from "#js/compiles/flame_draw.js";
import { endOf, found, gapAt, inPart, layout, missing, partsOf, prepare } from "#js/compiles/flame_model.js";
import { clamp } from "#js/core/chart_model.js";
import { ChartView } from "#js/core/chart_view.js";
import { formatLong, formatNs, plural, thousands } from "#js/core/format.js";

export class FlameView extends ChartView {
  /** `options` are those of ChartView. */
  constructor(box, flame, options) {
    super(box, options, FLAME_COLOURS, "Compile-time spans. Their sums by name are in the table below.");
    const { rows, height } = layout(flame);
    Object.assign(this, { rows, rowsHeight: height, bounds: { start: 0, end: endOf(flame) }, gaps: flame.gaps, parts: partsOf(flame) });
    this.data = this.whole = prepare(flame);
    this.view = clamp({ start: this.data.start, end: this.data.end }, this.bounds);
    this.start();
  }

  prepare(flame) {
    return prepare(flame);
  }

  picture(ctx) {
    drawFlame(ctx, this);
  }

  missing() {
    return missing(this.data, this.view, this.bounds);
  }

  /** Sets the data of the whole run, because the page starts with a window of it. */
  setWhole(flame) {
    this.whole = prepare(flame);
    this.bounds.end = endOf(flame);
    this.draw();
  }

  timeAt(ns) {
    return inPart(this.parts, ns);
  }

  found(row, ns, slack) {
    const gap = gapAt(this.gaps, ns);
    return gap ? { ...gap, kind: "gap" } : found(this.data, row, ns, slack);
  }

  opens({ compile }) {
    return Boolean(compile);
  }

  lines(one) {
    return linesOf(one, this.parts);
  }
}

/** Describes a span or a mark. */
function linesOf(one, parts) {
  if (one.kind === "gap") return [`${formatLong(one.length_ns)} without a span`, "gap folded; time restarts after it"];
  const of = one.compile ? [`compile ${one.compile} – click to open`] : ["outside a compile"];
  if (one.kind === "instant") {
    const said = Object.entries(one.arguments).filter(([name]) => name !== "compile_id").map(([name, value]) => `${name}: ${value}`);
    return [one.name, `event at ${placeText(parts, one.ns)}`, ...said.slice(0, 8), ...of];
  }
  if (one.kind === "unfinished") return [one.name, `began at ${placeText(parts, one.ns)}; its end is not in the log`, ...of];
  const time = one.end - one.start;
  if (one.count > 1) return [`${plural(one.count, "span")} within ${formatNs(time)}`, `longest: ${one.name}; zoom in for the others`];
  return [one.name, `${formatNs(time)} (${thousands(time)} ns)`, `at ${placeText(parts, one.start)}`, ...of];
}

function placeText(parts, ns) {
  const at = inPart(parts, ns);
  return `${formatNs(at)} (${thousands(at)} ns)`;
}
