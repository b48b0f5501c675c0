// Search and rounding functions that several charts share.

/** Returns the first index below `count` from which `test(index)` holds, or `count`. */
export function firstWhere(count, test) {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Returns the smallest of ..., 0.5, 1, 2, 5, 10, 20, ... that is at least `least`. */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least * (1 - 1e-9)) ?? 10 * power;
}
