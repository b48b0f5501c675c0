"""Buffers that changed without a writer, and which of many rows are chosen."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries import values as value_queries
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import Program, Stat, ValueLog

Open = Callable[[LogBuilder | bytes], Trace]


def test_a_buffer_that_somebody_else_wrote(opened: Open) -> None:
    program = Program(again=True).launch("a", ["x"], ["buf0"]).launch("b", ["buf0"], ["buf1"]).launch("c", ["buf0"], [])
    log = ValueLog(program)
    log.call(program, 0)
    log.call(program, 1, buf0_2=Stat(max=9.0))
    (finding,) = all_findings(opened(log.end()))
    assert (finding.kind, finding.severity, finding.launch, finding.buffer) == (
        "changed_without_writer",
        "critical",
        5,
        "buf0",
    )
    assert finding.title == "buf0 changed before launch 5 of step 1, c, although no launch wrote it"
    assert (finding.evidence["before"]["max"], finding.evidence["now"]["max"]) == (1.0, 9.0)


def test_reading_again_what_did_not_change_is_no_finding(opened: Open) -> None:
    program = Program(again=True).launch("a", ["x"], ["x"]).launch("b", ["x"], ["x"]).launch("c", ["x", "y"], [])
    log = ValueLog(program)
    for step in range(3):
        stats = [Stat(mean=float(10 * step + i)) for i in range(3)]
        log.call(program, step, x_before=stats[0], x_0=stats[0], x_1=stats[0], x_2=stats[0])
    assert all_findings(opened(log.end())) == []


def test_of_many_rows_the_bad_ones_are_chosen() -> None:
    assert value_queries.chosen([(i, 5) for i in range(10)], 20) == list(range(10))
    assert value_queries.chosen([(i, 0 if i == 3 else 5) for i in range(100)], 5) == [0, 3, 33, 66, 99]
