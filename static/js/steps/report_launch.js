// The launches in a report, which has one panel for the same launch of identical calls.
import { lineOfWrapper } from "#js/core/code.js";

/** Returns the panel of a launch, copied from the same launch of an identical call and adapted to this one. */
export function launchOf({ panels, calls, values, deaths, judged, wrappers }, timeline, id) {
  const [index, ids] = calls.find(([, ids]) => ids.includes(id)) ?? [];
  const panel = ids && panels[index][ids.indexOf(id)];
  const columns = timeline.launches;
  const at = columns.launch.indexOf(id);
  if (!panel || at < 0) return null;
  const { launch: row } = panel;
  // Lines that the wrapper of the graph contains are only numbers here.
  const code_lines = panel.code_lines.map(([number, pieces]) => (pieces ? [number, pieces] : lineOfWrapper(wrappers[row.graph.graph][number - 1], number - 1)));
  const described = panels[index].map((other) => other?.launch.launch);
  const start = timeline.window_start_ns + columns.start_ns[at];
  const duration = columns.duration_ns[at];
  const [least, most] = [Math.min(...columns.launch), Math.max(...columns.launch)];
  const kernel = (index) => timeline.sites[columns.site[index]].kernel;
  const same = columns.launch.filter((_, index) => kernel(index) === kernel(at)).sort((a, b) => a - b);
  const move = (launch) => (launch === null ? null : ids[described.indexOf(launch)] ?? null);
  const moved = (rows, change) => Object.fromEntries(Object.entries(rows).map(([argument, value]) => [argument, change(value)]));
  return {
    launch: {
      ...row,
      code: code_lines.length ? code_lines.map(([, pieces]) => pieces.map(([, text]) => text).join("")).join("\n") : null,
      launch: id,
      step: timeline.step,
      log: timeline.log,
      thread: columns.thread[at],
      ordinal: id - least + 1,
      of: timeline.total_launches,
      start_ns: start,
      step_offset_ns: start - timeline.start_ns,
      duration_ns: duration < 0 ? null : duration,
      device_duration_ns: row.launch === id ? row.device_duration_ns : null,
      previous: id > least ? id - 1 : null,
      next: id < most ? id + 1 : null,
      previous_same: same.findLast((other) => other < id) ?? null,
      next_same: same.find((other) => other > id) ?? null,
      written_by: moved(row.written_by, move),
      values: values ? values[id] ?? null : [],
      read_by: moved(row.read_by, (readers) => readers.map(move)),
    },
    code_lines,
    death: deaths?.[id] ?? null,
    judged: judged?.[id] ?? null,
  };
}

/** Returns a function that gives the distinct lines of the model of a launch site, as far as a panel describes it. */
export function linesOf({ panels }) {
  const known = new Map(panels.flat().filter(Boolean).map(({ launch: { site } }) => [site.site, site.stacks]));
  return (site) => {
    const lines = (known.get(site) ?? []).filter((stack) => stack.length).map((stack) => stack.at(-1));
    return [...new Map(lines.map((line) => [`${line.file}:${line.line}`, line])).values()];
  };
}
