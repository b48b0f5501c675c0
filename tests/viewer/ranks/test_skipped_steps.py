"""An optimizer that stepped on some ranks only, and rank logs in which nothing of the kind is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.parameters import LearningRate
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import StepMarks
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.open import open_trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, graph, run

pytestmark = pytest.mark.slow


MS = 1_000_000
STEPS = 8


def training(rank: int, *skipped: int, steps: int = STEPS, launches: int = 1) -> LogBuilder:
    """A forward and a backward pass in each step, which an optimizer ends except in the skipped ones."""
    log = LogBuilder().record(run(guesses_steps=True, rank=rank, world_size=64))
    for number, phase in enumerate(("forward", "backward")):
        of: dict[str, Any] = {"phase": phase, "compile_id": "0/0", "aot_id": f"0_{phase}"}
        log.record(graph(number, **of))
    log.record(LearningRate("SGD", 0.1, None, "/src/train.py", 12))
    for step in range(steps):
        begin = MONOTONIC_NS + step * 10 * MS
        starts = [begin + MS, begin + 3 * MS]
        calls = Calls(
            [2 * step, 2 * step + 1], [0, 1], [0, 0], [step] * 2, [1] * 2, [None] * 2, starts, [MS] * 2,
            [launches, 0], ["ok"] * 2,
        )  # fmt: skip
        log.record(Launches(calls, [0] * launches, [starts[0]] * launches, [starts[0] + 9] * launches))
        if step not in skipped:
            log.record(StepMarks(["optimizer"], [0], ["SGD"], [1], [begin + 5 * MS]))
    return log.record(End("exit", MONOTONIC_NS + steps * 10 * MS))


def found(folder: Path, *logs: LogBuilder) -> list[Finding]:
    for rank, log in enumerate(logs):
        log.write(folder / f"stepscope_trace_rank_{rank}_{4711 + rank}_a.log")
    with open_trace(folder) as trace:
        return [one for one in all_findings(trace) if one.kind == "skipped_step"]


def test_the_ranks_and_the_steps_are_named(tmp_path: Path) -> None:
    """Rank 1 alone skips steps 2 and 4, and rank 0 step 5."""
    (finding,) = found(tmp_path, training(0, 5), training(1, 2, 4), training(2))
    assert finding.title == "SGD (train.py:12) stepped on ranks 0 and 2, but not on rank 1, in steps 2 and 4"
    assert (finding.severity, finding.step) == ("warning", 2)


def test_many_ranks_are_not_all_named(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, *(training(rank, *([3] if rank else [])) for rank in range(12)))
    assert "stepped on rank 0, but not on ranks 1, 2, 3, 4 and 7 more, in step 3" in finding.title


@pytest.mark.parametrize(
    "logs",
    [
        (training(0), training(1)),
        (training(0, 2), training(1, 2)),
        (training(0), training(1, STEPS - 1)),
        (training(0), training(1, 2, steps=STEPS + 1)),
        (training(0, steps=5), training(1, 2, steps=5)),
        (training(0), training(1, *range(2, STEPS))),
        (training(0), training(1, 2, launches=2)),
        (training(0, 2),),
    ],
    ids=["equal", "both", "last", "counts", "few", "seldom", "pipeline", "alone"],
)
def test_ranks_that_need_not_step_alike(tmp_path: Path, logs: tuple[LogBuilder, ...]) -> None:
    assert found(tmp_path, *logs) == []
