"""Many calls for one small input each: told if no call needs the result of another one, as far as the log shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepscope.tracer.schema.graphs import LaunchSite
from stepscope.tracer.schema.launches import CallGaps, Calls, Launches
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import CallSite
from stepscope.viewer.findings.evidence import Evidence
from stepscope.viewer.findings.speed import small_calls
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import NEW, Met, layout, lifetimes
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, argument, compile_records, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
US = 1_000
KNOWN: Met = (None, 0, 1)
"""The storage that the first call had as its second input."""
RESULT: Met = (1, None, 2)
"""The storage that the call before allocated."""


def scoring(
    calls: int = 1000,
    kernel_us: int = 20,
    gap_us: int = 60,
    computed_us: int = 40,
    own_us: int = 10,
    row: Met = KNOWN,
    written: str = "buf0",
    lines: int = 1,
    **of_graph: Any,
) -> LogBuilder:
    """Calls of 60 us, each with one kernel and two inputs, and the code between them, of which `computed_us` compute,
    with the recorder's own time. `row` is where the second input was met before."""
    arguments = [argument("arg0_1", "in"), argument("arg1_1", "in"), argument(written, "out")]
    site = LaunchSite(0, "call", 20, "cpp_fused_0", "cpp", arguments, [])
    of_graph = {"phase": "inference", "aot_id": "0_inference", **of_graph}
    log = compile_records(LogBuilder().record(run(guesses_steps=True)))
    log.record(graph(sites=[site], memory=[], functions=["call"], **of_graph))
    for line in range(lines):
        log.record(CallSite(0, "/src/rank.py", 27 + line, "search", "score(row)"))
    starts = [MONOTONIC_NS + number * (60 + gap_us) * US for number in range(calls)]
    numbers, zeros = list(range(calls)), [0] * calls
    rows = Calls(
        numbers, zeros, zeros, zeros, [1] * calls, [None] * calls, starts, [60 * US] * calls, [1] * calls,
        ["ok"] * calls,
    )  # fmt: skip
    begins = [start + 9 * US for start in starts]
    log.record(Launches(rows, zeros, begins, [begin + kernel_us * US for begin in begins]))
    own, computed = [own_us * US] * (calls - 1), [(computed_us + own_us) * US] * (calls - 1)
    log.record(CallGaps(numbers[1:], numbers[:-1], own, computed))
    for number, met in enumerate(((NEW, NEW), ((None, 0, 0), row))):
        inputs: Any = [("arg0_1", "input", 64, 0, met[0]), ("arg1_1", "input", 64, 0, met[1])]
        log.record(layout(number, 0, [*inputs, ("buf0", "allocated", 64, 0, NEW)], []))
    log.record(lifetimes(numbers, [0] + [1] * (calls - 1)))
    return log.record(End("exit", starts[-1] + 60 * US))


def found(trace: Trace) -> list[Finding]:
    return [one for _, one in small_calls.find(Evidence(trace))]


def test_many_small_calls_are_told(opened: Open) -> None:
    (finding,) = found(opened(scoring()))
    assert finding.title == (
        "forward (model.py:10) is called 1,000 times one after the other at rank.py:27, and 80 % of this time passes"
        " outside of its kernels (80.0 us of 100 us for a call)"
    )
    assert finding.severity == "info"
    assert finding.source is not None
    assert finding.source.code == "score(row)"


@pytest.mark.parametrize(
    "changes",
    [
        {"calls": 999},
        {"row": RESULT},  # as the state of a recurrent network
        {"row": NEW},  # as a request, or what other code makes of a result
        {"written": "arg1_1"},  # as a cache of keys and values
        {"kernel_us": 59, "computed_us": 5},
        {"gap_us": 2_100},
        {"lines": 2},
        {"phase": "forward"},
    ],
)
def test_other_calls_are_usual(opened: Open, changes: dict[str, Any]) -> None:
    assert found(opened(scoring(**changes))) == []


def test_calls_with_large_kernels_are_usual(opened: Open) -> None:
    def slow(kernel_us: int) -> LogBuilder:
        return scoring(kernel_us=kernel_us, gap_us=700, computed_us=600)

    assert found(opened(slow(40)))
    assert found(opened(slow(210))) == []


def test_time_for_which_the_thread_waits_does_not_count(opened: Open) -> None:
    """On a busy machine, and in a server, it waits between the calls."""
    (finding,) = found(opened(scoring(gap_us=1_000, computed_us=0)))
    assert finding.title.endswith("67 % of this time passes outside of its kernels (40.0 us of 60.0 us for a call)")
