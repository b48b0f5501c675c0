"""Assigns compiles to the steps that triggered them. The duration of a step does not include them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from stepscope.tracer.schema.graphs import Graph
from stepscope.viewer.ingest.lenient_json import INT64
from stepscope.viewer.ingest.recorder.launch_batches import EndedStep, LaunchBatches


class Compiling(NamedTuple):
    """A period in which the process compiled."""

    start_ns: int
    end_ns: int
    compile_id: str | None
    """Id of the outermost compile."""


def on_clock_of(clocks: tuple[int, int] | None, spans: Iterable[Compiling]) -> list[Compiling]:
    """Convert spans in unix ns to the monotonic clock of the calls, with overlapping ones merged. Return none if the
    log does not have `clocks`, simultaneous times of the monotonic and the unix clock."""
    if clocks is None:
        return []
    since = clocks[0] - clocks[1]
    found: list[Compiling] = []
    moved = (Compiling(start_ns + since, end_ns + since, compile_id) for start_ns, end_ns, compile_id in spans)
    possible = (one for one in moved if one.start_ns in INT64 and one.end_ns in INT64)
    for one in sorted(possible, key=lambda one: (one.start_ns, -one.end_ns)):
        if found and one.start_ns <= found[-1].end_ns:
            found[-1] = found[-1]._replace(end_ns=max(found[-1].end_ns, one.end_ns))
        else:
            found.append(one)
    return found


def compiles_by_step(
    compiles: Sequence[Compiling], batches: LaunchBatches, graphs: Mapping[int, Graph], updates: Container[str]
) -> dict[int, list[Compiling]]:
    """Return compiles by step: that of the compiled function's next call, else of the next call, else of the last. The
    compile of an optimizer (`updates`) that made nothing to call belongs to the step of the call before it."""
    calls = batches.calls
    starts = sorted(zip(calls["start_ns"], calls["step"], calls["graph"], strict=True))
    of_compile: defaultdict[str | None, list[tuple[int, int]]] = defaultdict(list)
    for start_ns, number, graph in starts:
        known = graphs.get(graph)
        if known is not None:
            of_compile[known.compile_id].append((start_ns, number))
    every = [(start_ns, number) for start_ns, number, _ in starts]
    found: defaultdict[int, list[Compiling]] = defaultdict(list)
    for one in compiles:
        own = of_compile.get(one.compile_id, [])
        at = max(bisect_left(every, (one.start_ns,)) - 1, 0)
        before = every[at : at + 1] if not own and one.compile_id in updates else []
        calls_of_step = [*before, *_first(own, one.end_ns), *_first(every, one.end_ns), *every[-1:]]
        if calls_of_step:
            found[calls_of_step[0][1]].append(one)
    return found


def _first(calls: Sequence[tuple[int, int]], since_ns: int) -> Sequence[tuple[int, int]]:
    at = bisect_left(calls, (since_ns,))
    return calls[at : at + 1]


def with_compiles(
    steps: Mapping[int, EndedStep], compiles: Sequence[Compiling], booked: Mapping[int, Sequence[Compiling]]
) -> dict[int, EndedStep]:
    """Return the steps with the time of their own compiles, and the part of each step in which any compile ran. A step
    that lies within a compile that it did not trigger ran on another thread and lost no time to it."""
    starts = [one.start_ns for one in compiles]
    found = {}
    for number, step in steps.items():
        inside, mine = 0, booked.get(number, ())
        if step.end_ns is not None:
            first = max(bisect_right(starts, step.start_ns) - 1, 0)
            for one in compiles[first : bisect_left(starts, step.end_ns)]:
                if one in mine or one.start_ns > step.start_ns or one.end_ns < step.end_ns:
                    inside += max(0, min(one.end_ns, step.end_ns) - max(one.start_ns, step.start_ns))
        own = min(sum(one.end_ns - one.start_ns for one in mine), INT64[-1])
        found[number] = step._replace(compile_ns=own if compiles else None, compiling_ns=inside)
    return found
