// Sums of launches by kernel, kind and line of the model, independent of the DOM.
import { basename } from "#js/core/format.js";
import { inView } from "#js/core/chart_model.js";

/** Returns the part inside the bounds of the area that "START-END" in ns stands for, or null if there is none. */
export function parseArea(text, bounds) {
  const [first, last] = (/^(\d+)-(\d+)$/.exec(text ?? "") ?? []).slice(1).map(Number);
  const [start, end] = [Math.max(first, bounds.start), Math.min(last, bounds.end)];
  return start < end ? { start, end } : null;
}

export const areaText = (area) => area && `${area.start}-${area.end}`;

/** Returns the sums of an area by launch site like /steps/N/area.json, from the data of a page that has no server. */
export function sumsOf(data, area, linesOf) {
  const sums = new Map();
  for (const row of data.launches.values()) {
    for (const { site, kernel, kind, start, end, timed, count } of inView(row, area)) {
      const sum = sums.get(site) ?? { site, kernel, kind, lines: linesOf(site), launches: 0, timed: 0, duration_ns: null, device_duration_ns: null };
      sum.launches += count;
      if (timed) {
        sum.timed += count;
        sum.duration_ns = (sum.duration_ns ?? 0) + Math.min(end, area.end) - Math.max(start, area.start);
      }
      sums.set(site, sum);
    }
  }
  return [...sums.values()];
}

/** Calls of subgraphs contain launches that count themselves. */
const isKernel = ({ kind }) => kind !== "subgraph";

const KEYS = {
  kernel: ({ kernel }) => [{ name: kernel }],
  kind: ({ kind }) => [{ name: kind }],
  line: ({ lines }) =>
    lines.length
      ? lines.map(({ file, line, code, function: within }) => ({ name: `${basename(file)}:${line}`, title: `${file}:${line} in ${within}`, code }))
      : [{ name: null }],
};

/** Returns one row for each kernel, kind or line, those with the most time first, and the sums of all launches. */
export function grouped(sites, by) {
  const rows = new Map();
  const total = { launches: 0, timed: 0, duration: 0, device: null };
  for (const site of sites.filter(isKernel)) {
    add(total, site);
    for (const key of KEYS[by](site)) {
      const id = key.title ?? key.name;
      if (!rows.has(id)) rows.set(id, { ...key, kind: site.kind, launches: 0, timed: 0, duration: 0, device: null });
      add(rows.get(id), site);
    }
  }
  const finish = (row) => ({ ...row, mean: row.timed ? row.duration / row.timed : null, share: row.timed && total.duration ? row.duration / total.duration : null });
  return { total, rows: [...rows.values()].map(finish).sort((a, b) => b.duration - a.duration || b.launches - a.launches) };
}

function add(row, { launches, timed, duration_ns: duration, device_duration_ns: device }) {
  row.launches += launches;
  row.timed += timed;
  row.duration += duration ?? 0;
  if (device !== null) row.device = (row.device ?? 0) + device;
}

const MOST_NAMED = 3;
const MOST_OF_IT = 0.8;

/** Returns the kernels that account for most of the difference between two steps, and the sum over all kernels. */
export function differences(own, other) {
  const [now, then] = [own, other].map((sites) => new Map(grouped(sites, "kernel").rows.map((row) => [row.name, row])));
  const rows = [...new Set([...now.keys(), ...then.keys()])].map((name) => {
    const [a, b] = [now.get(name), then.get(name)];
    return { name, difference: (a?.duration ?? 0) - (b?.duration ?? 0), launches: (a?.launches ?? 0) - (b?.launches ?? 0) };
  });
  const sum = rows.reduce((all, { difference }) => all + difference, 0);
  // The kernels that changed in the direction of the sum explain it.
  const same = rows.filter(({ difference }) => difference * sum > 0).sort((a, b) => Math.abs(b.difference) - Math.abs(a.difference));
  const named = [];
  let explained = 0;
  for (const row of same) {
    if (named.length === MOST_NAMED || Math.abs(explained) >= MOST_OF_IT * Math.abs(sum)) break;
    named.push(row);
    explained += row.difference;
  }
  return { sum, named, launches: rows.reduce((all, { launches }) => all + launches, 0) };
}
