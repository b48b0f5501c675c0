// The rows of the timeline from top to bottom, independent of the DOM.
import { AXIS, GAP, MINIMAP, SPAN } from "#js/core/chart_model.js";

export const CALL = 20, LAUNCH = 34, STRIP = 14, MEMORY = 64, OTHER = 22, STREAM = 26;

/**
 * Returns the rows and their height. Rows with one `key` belong together, and `name` stands beside the first of them;
 * those in `pins` come first. `spans` and `calls` are those in view: deeper rows than theirs take no room. `other` is the
 * timeline of a step to compare with. `timeline_height` in viewer/steps/filters.py adds up the same heights.
 */
export function layout(timeline, { spans = timeline.spans, calls = timeline.calls, hasMemory = false, pins = [], other = null } = {}) {
  const sections = sectionsOf(timeline, spans, calls, hasMemory, other);
  const all = sections.flat();
  const pinned = pins.map((key) => all.find((group) => group.key === key)).filter(Boolean);
  const rest = sections.map((section) => section.filter((group) => !pinned.includes(group)));
  const lanes = [];
  let y = AXIS + MINIMAP + GAP;
  for (const section of [pinned, ...rest]) {
    for (const { key, name, rows } of section) {
      rows.forEach((row, index) => {
        lanes.push({ ...row, key, name: index ? "" : name, pinned: pins.includes(key), y });
        y += row.height;
      });
    }
    if (section.some(({ rows }) => rows.length)) y += GAP;
  }
  return { lanes, height: y };
}

/** Returns groups of rows; a gap follows each list of groups. */
function sectionsOf(timeline, spans, calls, hasMemory, other) {
  const compile = { key: "compile", name: "compile", rows: depths(spans, (depth) => ({ kind: "spans", depth, height: SPAN })) };
  const threads = timeline.threads.map((thread, index) => {
    const [many, of] = [timeline.threads.length > 1, calls.filter((call) => call.thread === thread)];
    const group = (key, name, rows) => ({ key: `${key}${index}`, name: many && key !== "cpu" && index ? "" : name, rows });
    const one = (kind, height) => [{ kind, thread, height }];
    return [
      group("graph", "graph", depths(of, (depth) => ({ kind: "calls", thread, depth, height: CALL }), 0)),
      group("cpu", many ? `cpu ${index}` : "cpu", one("launches", LAUNCH)),
      group("health", "health", timeline.launches.health?.length ? one("health", STRIP) : []),
      group("judge", "judge", timeline.launches.verdict?.length ? one("judge", STRIP) : []),
    ];
  });
  const others = (other?.threads ?? []).map((thread, index) => ({ key: `other${index}`, name: `step ${other.step}`, rows: [{ kind: "other", thread, height: OTHER }] }));
  const devices = new Set((timeline.streams ?? []).map(({ device }) => device)).size;
  const streams = (timeline.streams ?? []).map(({ device, stream }, index) => ({
    key: `stream${index}`, name: devices > 1 ? `${device} stream ${stream}` : `stream ${stream}`, rows: [{ kind: "stream", thread: index, height: STREAM }],
  }));
  return [[compile], ...threads, streams, others, [{ key: "memory", name: "memory", rows: hasMemory ? [{ kind: "memory", height: MEMORY }] : [] }]];
}

/** Returns a row for each depth from the least one, or from `top`, to the greatest one. */
function depths(items, row, top = null) {
  if (!items.length) return [];
  const found = items.map(({ depth }) => depth);
  const [first, last] = found.reduce(([low, high], depth) => [Math.min(low, depth), Math.max(high, depth)], [top ?? Infinity, -Infinity]);
  return Array.from({ length: last - first + 1 }, (_, index) => row(first + index));
}
