"""Values for who looks for a crash: in the log before anything else runs."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from stepscope.tracer.config import make_config
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.stats import ROW
from stepscope.tracer.runtime.values.batches import PendingValues
from stepscope.tracer.runtime.values.reading import writes_at_once
from stepscope.tracer.runtime.values.rows import PlannedRead, ReadRow, RowGroup
from stepscope.tracer.schema.statistics import Values
from stepscope.tracer.schema.values import ValueLayout
from tests.tracer.hand_made import recorder_in

PLANNED = PlannedRead(0, 0, "after", "mm", "buf0", True)


class Read:
    """What was read of one tensor."""

    skipped = None

    def rows(self) -> Any:
        return np.zeros(1, ROW)

    wait = rows


def reading() -> Any:
    return RowGroup([ReadRow(PLANNED, None, None, "float32", 4, 4, None)]), Read()


def call_with(*readings: Any) -> GraphCall:
    call = GraphCall(0, 0, None, None)
    call.start_ns = perf_counter_ns()
    call.end_ns = call.start_ns + 1
    call.rows = [0, call.start_ns, call.end_ns]
    call.readings = list(readings)
    return call


@pytest.mark.parametrize(("kernels", "blocking", "expected"), [("mm", "1", True), ("mm", "0", False), ("", "1", False)])
def test_of_chosen_kernels_while_launches_wait(
    monkeypatch: pytest.MonkeyPatch, kernels: str, blocking: str, expected: bool
) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", blocking)
    assert writes_at_once(make_config("x", level="values", kernels=kernels)) is expected


@pytest.mark.parametrize("is_blocking", [True, False])
def test_a_call_that_has_ended_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_blocking: bool
) -> None:
    """Also one that took no time for reading, as a replay of a CUDA graph."""
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1" if is_blocking else "0")
    with recorder_in(tmp_path) as recorder:
        recorder.flush()
        call = call_with(reading())
        recorder.running[call.number] = call
        recorder.finish(call)
        written = recorder.path.read_bytes() if recorder.path is not None else b""
        assert (b'"stepscope_values"' in written) is is_blocking


def test_what_is_written_is_forgotten_before_anything_can_go_wrong() -> None:
    """A signal handler may raise while a record is written."""
    batches, call = PendingValues(), call_with(reading(), reading())
    records = batches.now(call)
    layout, values = next(records), next(records)
    assert isinstance(layout, ValueLayout)
    assert isinstance(values, Values)
    assert (layout.first, len(values.min), call.readings, call.rows_written) == (0, 2, [], 2)
    call.readings = [reading()]
    more, _ = batches.now(call)
    assert isinstance(more, ValueLayout)
    assert more.first == 2
    assert list(batches.now(call)) == []
