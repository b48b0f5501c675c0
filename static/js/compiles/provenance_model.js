// Groups related lines of three texts, independent of the DOM.

export const PANES = ["pre", "post", "code"];

/** Parses `code-12` to { pane, line }; returns null for anything else. */
export function parseLine(text) {
  const found = /^(pre|post|code)-(\d{1,9})$/.exec(text ?? "");
  return found && { pane: found[1], line: Number(found[2]) };
}

export const nameOf = ({ pane, line }) => `${pane}-${line}`;

/** Returns the group of a line, or null if it has none. */
export function groupAt(map, { pane, line }) {
  const group = map[pane]?.[line];
  return group === undefined ? null : map.groups[group];
}

/** Returns the linked lines of a pane, in order. */
export function linkedLines(map, pane) {
  return Object.keys(map[pane] ?? {}).map(Number).sort((a, b) => a - b);
}

/** Returns the next linked line of the same pane, or the line itself at the end of the pane. */
export function step(map, at, direction) {
  const lines = linkedLines(map, at.pane);
  const next = direction > 0 ? lines.find((line) => line > at.line) : lines.findLast((line) => line < at.line);
  return { pane: at.pane, line: next ?? at.line };
}

/** Returns the line related to `at` in the next pane that has one, or `at` itself if none has. */
export function across(map, kernels, at, direction) {
  const group = groupAt(map, at);
  if (!group) return at;
  for (let place = PANES.indexOf(at.pane) + direction; place >= 0 && place < PANES.length; place += direction) {
    const pane = PANES[place];
    const line = firstOf(group, kernels, pane);
    if (line !== null) return { pane, line };
  }
  return at;
}

/** Returns the line that a pane shows for a group; in generated code, the first launch rather than a definition. */
export function firstOf(group, kernels, pane) {
  if (pane === "code" && group.kernels.length) return Math.min(...group.kernels.map((kernel) => kernels[kernel].line));
  return group[pane][0] ?? null;
}
