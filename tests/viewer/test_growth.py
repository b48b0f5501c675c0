"""Growth of a run that was killed: nobody looked, and deaths that were not seen tell it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings import growth as growths
from stepscope.viewer.queries.memory_mismatches import left_behind
from stepscope.viewer.queries.rows import Finding
from stepscope.viewer.store.open import Trace
from stepscope.viewer.summary import summary
from tests.viewer.memory_logs import training
from tests.viewer.synthetic import LogBuilder

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
    assert finding.title == (
        "Memory grows by 64 B per step: buf2 of 0/0 forward is still alive from each of the last 5 steps"
    )
    assert (finding.evidence["holders"], finding.evidence["freed_by_collection"]) == ([], None)
    assert (finding.evidence["storage_bytes"], finding.evidence["last_step"]) == (5 * 64, 4)
    assert summary(trace)["memory"]["growth_bytes_per_step"] == 64


@pytest.mark.parametrize("keep", [0, 1, 2, 4])
def test_a_killed_run_that_keeps_the_last_few_does_not_grow(opened: Open, keep: int) -> None:
    trace = opened(training(9, keep=keep, end=False))
    assert growth_in(trace) == []
    assert summary(trace)["memory"]["growth_bytes_per_step"] == 0


def test_what_a_run_that_ended_left_is_not_guessed(opened: Open) -> None:
    trace = opened(training(6, keep=99))
    assert growth_in(trace) == []
    assert left_behind(trace) is None


def test_a_killed_log_beside_one_that_ended(opened: Open) -> None:
    trace = opened(training(6, keep=99, end=False))
    assert left_behind(trace, 7) is None
    assert {row.step for row in left_behind(trace, 0) or ()} == {0, 1, 2, 3, 4}
