"""Growth of a run that was killed: nobody looked, and deaths that were not seen tell it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.memory import growth as growths
from stepscope.viewer.memory.queries.growth import left_behind
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import NEW, calls_of, layout, lifetimes, start_of, training
from tests.logs.memory_records import growth
from tests.logs.synthetic import LogBuilder, run
from tests.logs.value_logs import Program
from tests.viewer.memory.test_memory_findings import leaking

Open = Callable[[LogBuilder | bytes], Trace]


@pytest.fixture(autouse=True)
def _bytes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs below are of a few bytes."""
    monkeypatch.setattr(growths, "LEAST_BYTES", 1)
    monkeypatch.setattr(growths, "WARNED_BYTES", 1)


def growth_in(trace: Trace) -> list[Finding]:
    return [finding for finding in all_findings(trace) if finding.kind == "growth"]


def test_growth_of_a_run_that_was_killed(opened: Open) -> None:
    trace = opened(training(6, keep=99, end=False))
    (finding,) = growth_in(trace)
    assert (
        finding.title
        == "Memory grows by 64 B per step: buf2 of graph 0/0 forward (model.py:12) stays alive after each step"
    )
    assert finding.proof == ["At the end, 5 storages of steps 0 to 4 were still alive, 320 B together"]
    assert (finding.evidence["holders"], finding.evidence["freed_by_collection"]) == ([], None)
    assert (finding.evidence["storage_bytes"], finding.evidence["last_step"]) == (5 * 64, 4)
    assert summary(trace)["memory"]["growth_bytes_per_step"] == 64


def test_what_held_the_results_of_a_run_that_was_killed(opened: Open) -> None:
    log = training(6, keep=99, end=False)
    log.record(replace(growth([(4, 4), (6, 4)], ["list of 4 in keep of __main__"], freed=None), at_step=5))
    (finding,) = growth_in(trace := opened(log))
    assert finding.title.endswith(" stays alive after each step and is held by a list of 4 in keep of __main__")
    assert finding.evidence["storages"] == 5
    assert left_behind(trace) is not None


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 1, 2, 4])
def test_a_killed_run_that_keeps_the_last_few_does_not_grow(opened: Open, keep: int) -> None:
    trace = opened(training(9, keep=keep, end=False))
    assert growth_in(trace) == []
    assert summary(trace)["memory"]["growth_bytes_per_step"] == 0


def test_what_a_run_that_ended_left_is_not_guessed(opened: Open) -> None:
    trace = opened(training(6, keep=99))
    assert growth_in(trace) == []
    assert left_behind(trace) is None


@pytest.mark.parametrize(("steps", "keep", "is_told"), [(8, 99, True), (5, 99, False), (9, 6, False)])
def test_what_was_freed_after_the_last_call(opened: Open, steps: int, keep: int, is_told: bool) -> None:
    """As where the function that keeps all losses returns before the recording ends; a window is no growth."""
    dead = [(2 * step, 4, start_of(steps)) for step in range(max(0, steps - keep), steps)]
    log = training(steps, keep=keep, end=False).record(lifetimes([], [], dead)).record(End("exit", start_of(steps + 1)))
    found = growth_in(opened(log))
    assert [(one.severity, one.buffer) for one in found] == [("info", "buf2")] * is_told
    for one in found:
        assert one.title.startswith(
            "Memory grew by 64 B per step: buf2 of graph 0/0 forward (model.py:12) of each step"
        )
        assert one.proof[0].startswith("8 storages of steps 0 to 7, 512 B together, were freed only after the last")


def test_a_killed_log_beside_one_that_ended(opened: Open) -> None:
    trace = opened(training(6, keep=99, end=False))
    assert {row.step for row in left_behind(trace) or ()} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("least", "severity"),
    [(12, None), (256, None), (2 << 10, "info"), (20 << 10, "info"), (60 << 10, "warning"), (1 << 20, "warning")],
)
def test_how_much_growth_is_worth_a_warning(
    opened: Open, monkeypatch: pytest.MonkeyPatch, least: int, severity: str | None
) -> None:
    """Two buffers of one list count together: losses that are kept on purpose are no leak."""
    monkeypatch.undo()
    keep = ["list of 43 in ts of __main__"]
    assert [one.severity for one in growth_in(opened(leaking([keep, keep], least)))] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("grows", "peak", "severity"),
    [(64 << 10, 6 << 20, "warning"), (64 << 10, 7 << 20, "info"), (1 << 20, 1 << 40, "warning"), (5000, 5000, "info")],
)
def test_growth_against_the_peak(monkeypatch: pytest.MonkeyPatch, grows: int, peak: int, severity: str) -> None:
    monkeypatch.undo()
    assert growths._severity(grows, peak) == severity


def test_one_holder_of_buffers_of_two_graphs(opened: Open) -> None:
    programs = [Program(number).allocate("buf0").launch("a", ["x"], ["buf0"]) for number in range(2)]
    log = LogBuilder().record(run())
    for number, program in enumerate(programs):
        program.compile_id = f"{number}/0"
        log.record(program.graph()).record(layout(number, number, [("buf0", "allocated", 64, 0, NEW)], []))
    for step in range(5):
        for number, program in enumerate(programs):
            log.record(calls_of(2 * step + number, program, step, start_of(step) + number * 4_000))
        log.record(lifetimes([2 * step, 2 * step + 1], [0, 1]))
        log.record(Steps([step], ["train"], ["user"], [start_of(step)], [start_of(step) + 9_000]))
    left = growth([(call, 0) for call in range(8)], ["list of 8 in ts of __main__"])
    (finding,) = growth_in(opened(log.record(left).record(End("exit", start_of(9)))))
    assert finding.evidence["bytes_per_step"] == 128
    assert finding.title.startswith("Memory grows by 128 B per step: buf0 of graph 0/0 ")
    assert " and buf0 of graph 1/0 " in finding.title


def test_buffers_that_nothing_is_known_to_hold_are_no_one_leak(opened: Open) -> None:
    assert [finding.buffer for finding in growth_in(opened(leaking([[], []])))] == ["buf1", "buf0"]


def test_what_a_graph_left_until_the_end_is_one_finding(opened: Open) -> None:
    program = Program(0, phase="forward").allocate("buf0", "buf1").launch("a", ["x"], ["buf0", "buf1"])
    log = LogBuilder().record(run()).record(program.graph()).record(program.provenance())
    log.record(layout(0, 0, [("buf0", "allocated", 64, 0, NEW), ("buf1", "allocated", 128, 0, NEW)], []))
    for step in range(8):
        log.record(calls_of(step, program, step, start_of(step))).record(lifetimes([step], [0]))
        log.record(Steps([step], ["train"], ["user"], [start_of(step)], [start_of(step) + 9_000]))
    dead = [(step, storage, start_of(8)) for step in range(8) for storage in (0, 1)]
    trace = opened(log.record(lifetimes([], [], dead)).record(End("exit", start_of(9))))
    (finding,) = growth_in(trace)
    assert finding.title.startswith("Memory grew by 192 B per step: buf1 and buf0 of graph 0/0 forward (model.py:10)")
    assert finding.proof[0].startswith("16 storages of steps 0 to 7, 1.5 kB together, were freed only")
    assert [row["buffer"] for row in finding.evidence["buffers"]] == ["buf1", "buf0"]
