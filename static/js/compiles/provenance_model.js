// Groups related lines of three texts, independent of the DOM.

export const PANES = ["pre", "post", "code"];

/** `code-12` -> { pane, line }; null for anything else. */
export function parseLine(text) {
  const found = /^(pre|post|code)-(\d{1,9})$/.exec(text ?? "");
  return found && { pane: found[1], line: Number(found[2]) };
}

export const nameOf = ({ pane, line }) => `${pane}-${line}`;

/** The group of lines that a line belongs to; null when it belongs to none. */
export function groupAt(map, { pane, line }) {
  const group = map[pane]?.[line];
  return group === undefined ? null : map.groups[group];
}

/** Linked lines of a pane, in order. */
export function linkedLines(map, pane) {
  return Object.keys(map[pane] ?? {}).map(Number).sort((a, b) => a - b);
}

/** The next linked line of the same pane; at the end of the pane the line itself. */
export function step(map, at, direction) {
  const lines = linkedLines(map, at.pane);
  const next = direction > 0 ? lines.find((line) => line > at.line) : lines.findLast((line) => line < at.line);
  return { pane: at.pane, line: next ?? at.line };
}

/** The line that stands for `at` in the next pane that has one; `at` itself where none does. Of generated code it is
 * the launch, which comes after the kernel's definition. */
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

/** Where a pane is scrolled to for a group. */
export function firstOf(group, kernels, pane) {
  if (pane === "code" && group.kernels.length) return Math.min(...group.kernels.map((kernel) => kernels[kernel].line));
  return group[pane][0] ?? null;
}
