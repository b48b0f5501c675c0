"""The smallest input of each fault that the harness found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stepscope.tracer.schema.record import Record
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.overview.queries.damage import problems
from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, calls, recorded
from tests.viewer.client import Client

Opened = Callable[[LogBuilder | bytes], Trace]
_BATCH = calls(90, 9, MONOTONIC_NS + 10**9)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (Steps([-1], ["train"], ["user"], [MONOTONIC_NS], [MONOTONIC_NS + 1]), "Steps.step is negative"),
        (
            replace(_BATCH, calls=replace(_BATCH.calls, step=[-1] * len(_BATCH.calls.step))),
            "Launches.calls.step is negative",
        ),
    ],
)
def test_a_step_with_a_negative_number_is_a_problem_and_not_a_dead_link(
    record: Record, text: str, opened: Opened
) -> None:
    trace = opened(recorded(end=False).record(record))
    steps = [row.step for row in list_steps(trace)]
    assert steps == [row.step for row in list_steps(opened(recorded(end=False)))]
    assert [(row.reason, row.text) for row in problems(trace)] == [
        ("broken_payload", f"stepscope_{type(record).KIND}: {text}")
    ]
    client = Client(trace)
    assert {client.get(f"/steps/{step}").status_code for step in steps} == {200}
