"""What the recorder costs is told of a steady step, not of a run that mostly compiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stepscope.viewer.ingest.torch_trace.torch_text import headline
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.queries.recorder_cost import recorder_cost
from stepscope.viewer.overview.rows import OverheadRow, StepRow
from stepscope.viewer.store.trace import Trace
from tests.logs import synthetic
from tests.logs.synthetic import LogBuilder

Opened = Callable[[LogBuilder | bytes], Trace]


def step(number: int, duration_ns: int) -> StepRow:
    return StepRow(0, number, "train", None, 0, duration_ns, duration_ns, 10, 1)


def test_cost_is_a_share_of_a_steady_step(opened: Opened) -> None:
    known = overview(opened(synthetic.recorded()))
    cost = OverheadRow(hook_ns=300, stats_ns=None, wall_ns=1_000_000, log_bytes=1, bytes_per_launch=1.0, failures=0)
    counts = replace(known.counts, launches=30)
    steps = [step(0, 999_000), step(1, 500), step(2, 500)]
    told = recorder_cost(replace(known, overhead=cost, counts=counts, steps=steps))
    assert told is not None
    assert (told.of, told.share) == ("a step", 0.2)
    assert told.text == "at most 20.0 % of a step"
    told = recorder_cost(replace(known, overhead=cost, counts=counts, steps=steps[:1]))
    assert told is not None
    assert (told.of, told.share) == ("the run", 0.0003)
    short = [step(0, 999_000), step(1, 50), step(2, 50)]
    told = recorder_cost(replace(known, overhead=cost, counts=counts, steps=short))
    assert told is not None
    assert told.text == "0.0 % of the run"
    assert recorder_cost(replace(known, overhead=replace(cost, hook_ns=None))) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'method' object has no attribute '__dict__'", "'method' object has no attribute '__dict__'"),
        ('"a" is not "b"', '"a" is not "b"'),
        ("'a whole text in quotes'", "a whole text in quotes"),
        ("'", "'"),
        ("''", ""),
    ],
)
def test_a_headline_keeps_quotes_that_belong_to_it(text: str, expected: str) -> None:
    assert headline(text) == expected
