// The lines of the timeline's tooltip.
import { formatNs, plural } from "#js/core/format.js";

const MOST_TITLES = 3;

export function markLines(marks) {
  const titles = marks.slice(0, MOST_TITLES).map(({ sign, title }) => `${sign} ${title}`);
  return marks.length > MOST_TITLES ? [...titles, `and ${plural(marks.length - MOST_TITLES, "more finding")}`] : titles;
}

export function otherLines(found, other, whole) {
  const lines = launchLines({ ...found, start: found.start - other.shift, end: found.end - other.shift });
  const own = found.count === 1 && found.timed && other.partner(found.launch, whole);
  lines.splice(1, 0, `in step ${other.step}`);
  if (own?.timed) lines.push(`in this step: launch ${own.launch} · ${formatNs(own.end - own.start)}`);
  return lines;
}

export function launchLines({ launch, kernel, kind, start, end, returned, timed, count }) {
  if (returned && !timed) return [kernel, `launch ${launch} · ${kind} · time not recorded`];
  const time = returned ? formatNs(end - start) : "did not return";
  const at = `at ${formatNs(start)}`;
  if (count > 1) return [`${plural(count, "launch")} in ${time}`, at, `longest: ${kernel}; zoom in for the others`];
  return [kernel, `launch ${launch} · ${kind} · ${time} · ${at}`];
}

/** Returns the lines about work of a device; its launch is -1 if no recorded launch enqueued it. */
export function workLines({ launch, kernel, kind, start, end, count }) {
  const time = `${formatNs(end - start)} · at ${formatNs(start)}`;
  if (count > 1) return [`${count} pieces of work in ${time}`, `longest: ${kernel}; zoom in for the others`];
  return [kernel, launch < 0 ? `${kind} · ${time}` : `launch ${launch} · ${kind} · ${time}`, ...(launch < 0 ? ["outside of recorded launches"] : [])];
}

export function spanLines({ item, start, end }) {
  const lines = [item.graph_label ?? item.name, item.duration_ns === null ? "time not recorded" : `${formatNs(end - start)} · at ${formatNs(start)}`];
  if (item.launches !== undefined) lines.push(`${item.function} · ${plural(item.launches, "launch")} · ${item.state}`);
  else if (item.compile_id) lines.push(`compile ${item.compile_id}`);
  return lines;
}
