"""Sorts the launches of a log by step and start, in parts, so that a long log needs little memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stepscope.viewer.ingest.columns import Flags, Ints
from stepscope.viewer.ingest.rows import AT_ONCE_ROWS


@dataclass(frozen=True)
class CallRange:
    """Calls that follow each other in the log, and their launches."""

    calls: slice
    launches: slice


def ranges_of(first: Ints, count: Ints) -> Iterator[CallRange]:
    """Yield all calls in ranges with about `AT_ONCE_ROWS` launches; a call is never divided."""
    ends = first + count
    total, call, launch = int(ends[-1]) if len(ends) else 0, 0, 0
    while call < len(first):
        stop = int(np.searchsorted(ends, launch + AT_ONCE_ROWS, side="left")) + 1
        stop = len(first) if stop >= len(first) else stop
        end = total if stop == len(first) else int(first[stop])
        yield CallRange(slice(call, stop), slice(launch, end))
        call, launch = stop, end


def sorted_parts(first: Ints, count: Ints, step: Ints, earliest: Ints, starts: Ints) -> Iterator[Ints]:
    """Yield the positions of all launches in the order of step and start, in parts of `AT_ONCE_ROWS`.

    `earliest` is the first start of a launch of each call, `starts` the start of each launch. Logs are nearly sorted,
    so few launches wait for earlier ones that are still to come.
    """
    to_come = _least_to_come(step, earliest, count)
    nothing = np.empty(0, dtype=np.int64)
    place, steps, ns = nothing, nothing, nothing
    most = AT_ONCE_ROWS
    for part in ranges_of(first, count):
        place = np.concatenate([place, np.arange(part.launches.start, part.launches.stop)])
        steps = np.concatenate([steps, np.repeat(step[part.calls], count[part.calls])])
        ns = np.concatenate([ns, starts[part.launches]])
        is_last = part.calls.stop == len(first)
        if len(place) < most and not is_last:
            continue
        if not _is_sorted(steps, ns):
            order = np.lexsort((ns, steps))
            place, steps, ns = place[order], steps[order], ns[order]
        ready = len(place)
        if not is_last:
            next_call = to_come[part.calls.stop]
            ready = _before(steps, ns, int(step[next_call]), int(earliest[next_call]))
            ready -= ready % AT_ONCE_ROWS
        for begin in range(0, ready, AT_ONCE_ROWS):
            yield place[begin : min(begin + AT_ONCE_ROWS, ready)]
        place, steps, ns = place[ready:], steps[ready:], ns[ready:]
        most = max(AT_ONCE_ROWS, 2 * len(place))


def _is_sorted(steps: Ints, ns: Ints) -> bool:
    later: Flags = (steps[1:] > steps[:-1]) | ((steps[1:] == steps[:-1]) & (ns[1:] >= ns[:-1]))
    return bool(later.all())


def _before(steps: Ints, ns: Ints, step: int, start_ns: int) -> int:
    """Return how many of the sorted launches are before a step and start."""
    low, high = np.searchsorted(steps, step, side="left"), np.searchsorted(steps, step, side="right")
    return int(low + np.searchsorted(ns[low:high], start_ns, side="left"))


def _least_to_come(step: Ints, earliest: Ints, count: Ints) -> Ints:
    """Return, for each call, the call with the least step and start among it and those after it in the log."""
    order = np.lexsort((earliest, step))
    order = np.concatenate([order[count[order] > 0], order[count[order] == 0]])  # calls without launches have none
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return order[np.minimum.accumulate(rank[::-1])[::-1]]
