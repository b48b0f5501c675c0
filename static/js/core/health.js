// Value classes: their order, names, signs and element counts.
import { formatValue, thousands } from "#js/core/format.js";
import { STATISTICS, vocabulary } from "#js/core/vocabulary.js";

/** From worst to best. */
export const HEALTH = vocabulary.health.map(({ name }) => name);
export const NAMES = Object.fromEntries(vocabulary.health.map(({ name, label }) => [name, label]));
export const SIGNS = Object.fromEntries(vocabulary.health.map(({ name, sign }) => [name, sign]));
/** Classes of elements that are not finite, from worst to best. */
export const NONFINITE = ["nan", "positive_infinity", "negative_infinity"];
export const classOf = (name) => `v-${name.replaceAll("_", "-")}`;

/** Classes with counted elements, from best to worst. */
const COUNTED = HEALTH.filter((name) => Object.values(STATISTICS).some(({ health }) => health === name)).reverse();

/** Returns label and count of each statistic above zero that counts elements of a class. */
function countsOf(row, health) {
  return Object.entries(STATISTICS).filter(([name, one]) => one.health === health && row[name] > 0).map(([name, { label }]) => [label, row[name]]);
}

/** Returns the counted classes of a row from best to worst, without empty classes. */
export function segments(row) {
  if (row.skipped !== null && row.skipped !== undefined) return [];
  const counts = Object.fromEntries(COUNTED.map((name) => [name, countsOf(row, name).reduce((sum, [, count]) => sum + count, 0)]));
  const bad = Object.entries(counts).filter(([, count]) => count > 0);
  if (row.at_least) return bad.map(([name, count]) => ({ name, count, share: 1 / bad.length })); // the other counts are unknown
  const others = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const all = { finite: Math.max(0, row.looked_at - others), ...counts };
  return Object.entries(all).filter(([, count]) => count > 0).map(([name, count]) => ({ name, count, share: count / row.looked_at }));
}

function words(row, without) {
  const least = row.at_least ? "≥ " : "";
  return segments(row).filter(({ name }) => name !== without).flatMap(({ name, count }) => {
    if (name === "finite") return [`finite ${thousands(count)}`];
    return countsOf(row, name).map(([label, found]) => `${label} ${least}${thousands(found)}`);
  });
}

/** Describes the counts: "finite 8,000 · near overflow 3 · NaN 2". */
export function countsText(row) {
  return words(row).join(" · ");
}

/** Returns remarks on a row besides its statistics. */
export function remarks(row) {
  if (row.skipped) return [];
  const parts = words(row, "finite");
  if (row.looked_at < row.numel) parts.push(`sample of ${thousands(row.looked_at)} in ${thousands(row.numel)}`);
  else if (parts.length) parts.push(`of ${thousands(row.numel)}`);
  if (row.first_bad_index?.length) parts.push(`first at [${row.first_bad_index.join(", ")}]`);
  else if ((row.first_bad ?? null) !== null) parts.push(`first at element ${formatValue(row.first_bad)}`);
  return parts;
}
