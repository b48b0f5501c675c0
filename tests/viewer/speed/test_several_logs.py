"""What makes the steps of several logs slow: one finding for all, and no more statements than for a few logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.schema.launches import CallGaps, Calls, Launches
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import Begins, CallSite, DataWait, LineSamples, SampledLines, StepMarks
from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.evidence import Evidence
from stepscope.viewer.findings.speed import data_waits, growing_sequence, host_bound, slow_rank
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000
MAIN, OTHER = 1, 2


def steps_of(
    rank: int | None,
    *,
    step_ms: int = 10,
    call_ms: int = 2,
    kernel_us: int = 1,
    after_ms: int = 1,
    workers: int | None = 0,
    waits: dict[tuple[int, str], int] | None = None,
    begins: Sequence[Begins | None] = (None,) * 10,
) -> LogBuilder:
    """Ten steps that begin with waits, (thread, file) -> ms, and end with one call and `after_ms` after it."""
    log = LogBuilder().record(run(guesses_steps=True, rank=rank, world_size=None if rank is None else 64))
    log.record(graph())
    for step in range(10):
        begin = MONOTONIC_NS + step * step_ms * MS
        for (thread, file), lasts in (waits or {}).items():
            log.record(DataWait(thread, begin, lasts * MS, workers, file, 7, begins[step]))
        start = begin + (step_ms - call_ms - after_ms) * MS
        calls = Calls([step], [0], [0], [step], [MAIN], [None], [start], [call_ms * MS], [1], ["ok"])
        log.record(Launches(calls, [0], [start], [start + kernel_us * 1000]))
        log.record(StepMarks(["optimizer"], [0], ["SGD"], [MAIN], [begin + step_ms * MS]))
    return log.record(End("exit", MONOTONIC_NS + 10 * step_ms * MS))


def ranks(folder: Path, logs: list[LogBuilder]) -> Path:
    for rank, log in enumerate(logs):
        log.write(folder / f"stepscope_trace_rank_{rank}_{4711 + rank}_a.log")
    return folder


def findings(path: Path) -> dict[str, Any]:
    with open_trace(path) as trace:
        return {one.kind: one for one in all_findings(trace)}


@pytest.mark.slow
def test_ranks_that_wait_at_one_place_share_a_finding(tmp_path: Path) -> None:
    logs = [steps_of(rank, waits={(MAIN, "/src/train.py"): 3 + (rank == 2)}) for rank in range(5)]
    with open_trace(ranks(tmp_path, logs)) as trace:
        (found,) = [one for one in all_findings(trace) if one.kind == "data_waits"]
    assert (found.rank, found.evidence["logs"]) == (2, 5)
    assert found.title == "Waiting for the next batch of a DataLoader takes 40 % of a step (4.00 ms of 10.0 ms)"
    assert found.proof[-1] == "In 4 other logs it takes no larger share of a step."


def test_many_logs_need_no_more_statements_than_a_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def statements(count: int) -> int:
        asked: list[str] = []
        answered = Trace.answered

        def counted(trace: Trace, statement: str, parameters: Any) -> Any:
            asked.append(statement)
            return answered(trace, statement, parameters)

        logs = [steps_of(rank, waits={(MAIN, "/src/train.py"): 1}) for rank in range(count)]
        with open_trace(ranks(tmp_path / str(count), logs)) as trace, monkeypatch.context() as patch:
            patch.setattr(Trace, "answered", counted)
            assert len(run_splits(trace)) == count
            for module in (slow_rank, host_bound, growing_sequence, data_waits):
                module.find(Evidence(trace))
        return len(asked)

    assert statements(3) == statements(24)


def test_waits_of_another_thread_delay_no_step(opened: Open) -> None:
    trace = opened(steps_of(None, waits={(OTHER, "/src/prefetch.py"): 5}))
    (split,) = run_splits(trace)
    assert {part.kind: part.duration_ns // MS for part in split.parts}["outside"] == 7
    assert "data_waits" not in {one.kind for one in all_findings(trace)}


def test_the_place_is_where_typical_steps_wait(opened: Open) -> None:
    log = steps_of(None, waits={(MAIN, "/src/train.py"): 3, (OTHER, "/src/prefetch.py"): 6})
    log.record(DataWait(MAIN, MONOTONIC_NS + 101 * MS, 500 * MS, 0, "/src/evaluate.py", 9))
    (found,) = [one for one in all_findings(opened(log)) if one.kind == "data_waits"]
    assert found.source is not None
    assert found.source.file == "/src/train.py"


@pytest.mark.slow
def test_a_rank_is_slow_only_if_the_others_wait_for_it(tmp_path: Path) -> None:
    together = [steps_of(0, waits={(MAIN, "/src/a.py"): 1}), steps_of(1, waits={(MAIN, "/src/a.py"): 5})]
    slow = findings(ranks(tmp_path / "a", together))["slow_rank"]
    assert slow.title.startswith("Rank 1 spends 5.00 ms per step waiting for data, and the other rank spends 1.00 ms")
    assert slow.source is not None
    assert (slow.source.file, slow.source.line) == ("/src/a.py", 7)
    apart = [steps_of(0, waits={(MAIN, "/src/a.py"): 1}), steps_of(1, step_ms=20, waits={(MAIN, "/src/a.py"): 9})]
    assert "slow_rank" not in findings(ranks(tmp_path / "b", apart))


@pytest.mark.slow
def test_a_slow_rank_names_the_calls_around_its_work(tmp_path: Path) -> None:
    logs = [steps_of(0, step_ms=20, call_ms=4, after_ms=13), steps_of(1, step_ms=20, call_ms=4)]
    for log in logs:
        log.record(CallSite(0, "/src/train.py", 7, "main", "loss = model(load())"))
    slow = findings(ranks(tmp_path, logs))["slow_rank"]
    assert slow.title.startswith(
        "Rank 1 spends 15.0 ms per step between the steps, most of it between the compiled call at train.py:7 and the"
        " same call of the next step, and the other rank spends 3.00 ms"
    )
    assert slow.source is not None
    assert slow.source.line == 7


@pytest.mark.slow
def test_a_slow_rank_names_the_line_with_most_samples(tmp_path: Path) -> None:
    slow = steps_of(1, step_ms=20, call_ms=4)
    slow.record(SampledLines(0, ["/src/disk.py"], [3], ["read"], ["return file.read()"]))
    for step in range(1, 10):
        slow.record(LineSamples([MAIN] * 3, [MONOTONIC_NS + (20 * step + at) * MS for at in (2, 3, 4)], [0] * 3))
    found = findings(ranks(tmp_path, [steps_of(0, step_ms=20, call_ms=4, after_ms=13), slow]))["slow_rank"]
    assert ", mostly at disk.py:3, and the other rank spends 3.00 ms" in found.title
    assert found.proof[0].endswith("the program is at disk.py:3 in read: return file.read()")
    assert (found.source.file, found.source.line) == ("/src/disk.py", 3) if found.source else False


@pytest.mark.slow
def test_a_slow_rank_names_the_kernel_that_differs_most(tmp_path: Path) -> None:
    logs = [steps_of(0, call_ms=3, kernel_us=1_000), steps_of(1, call_ms=7, kernel_us=6_500)]
    slow = findings(ranks(tmp_path, logs))["slow_rank"]
    assert slow.title.startswith(
        "Rank 1 spends 6.50 ms per step in kernels, most of it in extern_kernels.mm, and the other"
    )
    assert slow.kernel == "extern_kernels.mm"
    assert slow.page == f"/launches/{slow.launch}"


@pytest.mark.slow
def test_a_slow_rank_may_compute_where_the_others_wait_for_it(tmp_path: Path) -> None:
    def slow_of(*computing_us: int) -> Any:
        logs = [steps_of(rank, after_ms=6) for rank in range(len(computing_us))]
        for log, each in zip(logs, computing_us, strict=True):
            log.record(CallSite(0, "/src/train.py", 7, "main", "loss = model(x)"))
            log.record(CallGaps(list(range(1, 10)), list(range(9)), [0] * 9, [1000 * each] * 9))
        return findings(ranks(tmp_path / str(computing_us[0]), logs)).get("slow_rank")

    slow = slow_of(200, 5_000)
    assert slow.title == (
        "Rank 1 spends 5.00 ms per step computing outside of compiled code, most of it between the compiled call at"
        " train.py:7 and the next call, the compiled call at train.py:7, and the other rank spends 200 us: the"
        " difference is 48 % of a step (10.0 ms)"
    )
    assert slow.source.line == 7
    assert slow_of(5_000, 5_000) is None


@pytest.mark.parametrize(
    ("workers", "told"),
    [
        (None, []),
        (0, ["The loader has no worker processes: DataLoader(..., num_workers=4) makes batches while graphs run."]),
        (1, ["The loader has one worker process, which does not keep up."]),
        (3, ["The loader has 3 worker processes, which do not keep up."]),
    ],
)
def test_the_workers_of_the_loader_are_told(opened: Open, workers: int | None, told: list[str]) -> None:
    trace = opened(steps_of(None, workers=workers, waits={(MAIN, "/src/train.py"): 3}))
    (found,) = [one for one in all_findings(trace) if one.kind == "data_waits"]
    assert found.proof == told


@pytest.mark.parametrize("began", [1, 2, 9])
@pytest.mark.parametrize("kind", ["workers", "batch"])
def test_workers_that_are_started_again_are_told_in_place_of_waits(opened: Open, began: int, kind: Begins) -> None:
    begins = [*[None] * (10 - began), *[kind] * began]
    log = steps_of(None, step_ms=100, workers=3, waits={(MAIN, "/src/train.py"): 90}, begins=begins)
    found = {one.kind: one for one in all_findings(opened(log))}
    assert ("restarted_workers" in found) == (began > 1)
    assert ("data_waits" in found) == (began < 9)
    if began > 1:
        title = found["restarted_workers"].title
        assert title.startswith(f"Starting the workers of a DataLoader (train.py:7) again {began} times, and waiting ")
        assert found["restarted_workers"].severity == ("warning" if began == 9 else "info")


def test_waits_that_are_longer_than_the_run_are_no_share_of_it(opened: Open) -> None:
    log = steps_of(None, step_ms=100, workers=3, waits={(MAIN, "a.py"): 10**6}, begins=["workers"] * 10)
    assert "restarted_workers" not in {one.kind for one in all_findings(opened(log))}
