"""Builds records of memory problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stepscope.tracer.schema.memory import (
    Growth,
    LifetimeMismatch,
    MemoryStepMismatch,
    MismatchKind,
    RecomputeMismatch,
    ScheduledBuffers,
    SwappedNode,
)


def mismatch(
    kind: MismatchKind = "missing_death",
    buffer: str = "buf0",
    storage: int | None = 2,
    expected: int | None = 2,
    actual: int | None = None,
    **changes: Any,
) -> LifetimeMismatch:
    """Return a mismatch in the forward graph of `memory_logs`; `changes` replace fields."""
    record = LifetimeMismatch(
        graph=0, layout=0, call=0, kind=[kind], buffer=[buffer], storage=[storage], storage_bytes=[512],
        expected=[expected], actual=[actual], expected_by=["wrapper"], holders=[["list of 3 in keep of __main__"]],
    )  # fmt: skip
    return replace(record, **changes)


def step_mismatch(kind: MismatchKind = "missing_death", buffer: str = "buf0", **changes: Any) -> MemoryStepMismatch:
    """Return a mismatch that a check in the forward graph of `memory_logs` found; `changes` replace fields."""
    record = MemoryStepMismatch(
        graph=0, call=2, file="/cache/ab/cab.py", line=77, is_final_step=False, kind=[kind], buffer=[buffer],
        storage_bytes=[512], holders=[["list of 3 in keep of __main__"]],
    )  # fmt: skip
    return replace(record, **changes)


def growth(
    left: Sequence[tuple[int, int]],
    holders: Sequence[str] = (),
    freed: bool | None = False,
    tensor_bytes: int | None = None,
) -> Growth:
    """Return the record of storages left behind, given as (call, index)."""
    count = len(left)
    calls, indices = [c for c, _ in left], [i for _, i in left]
    return Growth(calls, indices, [list(holders)] * count, [freed] * count, [tensor_bytes] * count)


def recompute(**changes: Any) -> RecomputeMismatch:
    """Return a recompute mismatch of three nodes; the figures of the second one differ by 100 after the swap."""
    record = RecomputeMismatch(
        pass_name="reorder_communication_preserving_peak_memory", swap=4, candidate="op1", group=["op2"],
        reasons=["peak", "candidate"], reason_snode=["op1", "op1"], peak_before_bytes=1000, peak_after_bytes=1100,
        allowed_peak_bytes=1000, is_explained=False, peak_snodes=[1], snode=["op0", "op1", "op2"],
        carried_after_alloc_bytes=[500, 1000, 700], carried_after_free_bytes=[500, 600, 300],
        recomputed_after_alloc_bytes=[500, 1100, 700], recomputed_after_free_bytes=[500, 600, 300],
        before_after_alloc_bytes=[500, 900, None], before_after_free_bytes=[500, 600, None],
        buffers=ScheduledBuffers(
            ["buf0", "buf1", "buf2"], [500, 600, 100], [500, 600, 100], [0, 1, 2], [1, -1, 2],
            ["temporary", "output", "temporary"],
        ),
        found_by="torch",
        swapped=[
            SwappedNode(
                "op1", "ExternKernelSchedulerNode", ["extern_kernels.mm"], ["aten.mm.default"], ["mm_1"],
                ["buf0", "arg1_1"], ["buf1"],
            ),
            SwappedNode("op2", "SchedulerNode", [], ["aten.relu.default"], ["relu"], ["buf1"], ["buf2"]),
        ],
        carried_alloc_bytes=[500, 500, 100], carried_free_bytes=[0, 500, 400],
        recomputed_alloc_bytes=[500, 600, 100], recomputed_free_bytes=[0, 500, 400],
        last_use_buffer=["buf0"], last_use_before=["op2"], last_use_after=["op2"],
    )  # fmt: skip
    return replace(record, **changes)
