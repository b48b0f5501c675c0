// Which tensors of a launch come first in its panel, independent of the DOM.
import { NONFINITE, segments } from "#js/core/health.js";

/** Returns the arguments with NaN or infinity, the worst first and outputs before inputs, and the others in their order. */
export function byHealth(rows, values) {
  const known = new Map((values ?? []).map((found) => [found.argument, found]));
  const ranked = rows.map((row) => ({ row, rank: rankOf(known.get(row.argument)) }));
  const bad = ranked.filter(({ rank }) => rank < NONFINITE.length);
  bad.sort((a, b) => a.rank - b.rank || Number(a.row.role === "in") - Number(b.row.role === "in"));
  return { bad: bad.map(({ row }) => row), rest: ranked.filter(({ rank }) => rank >= NONFINITE.length).map(({ row }) => row) };
}

/** Returns the index in NONFINITE of the worst class of an argument before or after the launch. */
function rankOf(values) {
  const names = values ? [...values.before, ...values.after].flatMap((row) => segments(row).map(({ name }) => name)) : [];
  return Math.min(NONFINITE.length, ...names.map((name) => NONFINITE.indexOf(name)).filter((index) => index >= 0));
}
