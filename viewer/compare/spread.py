"""Decides whether the calls of one side take significantly longer than those of the other."""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, sqrt

from stepscope.viewer.compare.time_rows import Spread

LEAST_FACTOR = 1.1
"""Minimum ratio of the medians."""
MOST_P = 0.01
"""Most probability of any false difference among all that are compared."""


def spread_of(times: Sequence[int]) -> Spread:
    import numpy as np  # the first page needs this module, but not numpy

    low, median, high = (float(one) for one in np.quantile(np.asarray(times), [0.25, 0.5, 0.75]))
    return Spread(len(times), low, median, high)


def is_longer(short: Spread, long: Spread, p: float, compared: int, common: float = 1.0) -> bool:
    """Return whether `long` takes significantly longer than `short` times `common`: the medians differ by a tenth, the
    middle halves of the calls do not overlap, and the ranks are improbable for equal times."""
    return (
        long.median_ns >= LEAST_FACTOR * common * short.median_ns
        and long.low_ns > common * short.high_ns
        and p * max(compared, 1) < MOST_P
    )


def rank_probability(left: Sequence[int], right: Sequence[int], common: float = 1.0) -> float:
    """Return the two-sided probability of the Wilcoxon-Mann-Whitney test, by its normal approximation.

    The times of the left side are multiplied by `common` first. Mann and Whitney, Annals of Mathematical Statistics 18
    (1947), with the correction for ties."""
    import numpy as np

    ours, theirs = np.asarray(left, float) * common, np.asarray(right, float)
    every = np.concatenate([ours, theirs])
    _, place, counts = np.unique(every, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place.ravel()]
    m, n, total = len(ours), len(theirs), len(every)
    ties = float((counts.astype(float) ** 3 - counts).sum())
    variance = m * n / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    off = abs(float(ranks[:m].sum()) - m * (m + 1) / 2 - m * n / 2) - 0.5
    return min(1.0, erfc(max(off, 0.0) / sqrt(variance) / sqrt(2)))
