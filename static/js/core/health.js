// Value classes: their order, names, signs and element counts.
import { formatValue, thousands } from "#js/core/format.js";

/** From worst to best, as in viewer/values/rows.py. */
export const HEALTH = ["nan", "positive_infinity", "negative_infinity", "extreme", "zero", "finite", "not_recorded"];
export const NAMES = {
  nan: "NaN", positive_infinity: "+inf", negative_infinity: "−inf", extreme: "extreme", zero: "all zero", finite: "finite", not_recorded: "not recorded",
};
export const SIGNS = { nan: "✖", positive_infinity: "▲", negative_infinity: "▼", extreme: "◆", zero: "0", finite: "", not_recorded: "" };
export const classOf = (name) => `v-${name.replaceAll("_", "-")}`;

/** Returns the counted classes of a row from best to worst, without empty classes. */
export function segments(row) {
  if (row.skipped !== null && row.skipped !== undefined) return [];
  const extreme = (row.near_overflow ?? 0) + (row.subnormal ?? 0);
  const counts = {
    zero: row.zero ?? 0,
    extreme,
    negative_infinity: row.negative_infinity ?? 0,
    positive_infinity: row.positive_infinity ?? 0,
    nan: row.nan ?? 0,
  };
  const bad = Object.entries(counts).filter(([, count]) => count > 0);
  if (row.at_least) return bad.map(([name, count]) => ({ name, count, share: 1 / bad.length })); // the other counts are unknown
  const others = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const all = { finite: Math.max(0, row.looked_at - others), ...counts };
  return Object.entries(all).filter(([, count]) => count > 0).map(([name, count]) => ({ name, count, share: count / row.looked_at }));
}

const WORDS = { finite: "finite", zero: "zero", negative_infinity: "−inf", positive_infinity: "+inf", nan: "NaN" };

function words(row, without) {
  return segments(row).filter(({ name }) => name !== without).flatMap(({ name, count }) => {
    const least = row.at_least ? "≥ " : "";
    if (name !== "extreme") return [`${WORDS[name]} ${least}${thousands(count)}`];
    const kinds = [["near overflow", row.near_overflow], ["subnormal", row.subnormal]];
    return kinds.filter(([, count]) => count).map(([word, count]) => `${word} ${thousands(count)}`);
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

export const worse = (a, b) => (HEALTH.indexOf(a) <= HEALTH.indexOf(b) ? a : b);
