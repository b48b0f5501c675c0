"""Runs of --crash that somebody ended."""

from __future__ import annotations

from pathlib import Path

from stepscope.viewer.overview.summary import summary
from stepscope.viewer.store.open import open_trace
from tests.logs.synthetic import recorded
from tests.viewer.crash.test_crash import PID, crash_run, process_end


def test_a_run_that_was_asked_to_stop_does_not_tell_whether_it_would_have_died(tmp_path: Path) -> None:
    for number, signal in ((1, 11), (2, 15)):
        log = recorded(end=False, pid=PID + number)
        log.record(process_end(pid=PID + number, signal=signal, crash_run=crash_run(number)))
        log.write(tmp_path / f"run-{number}" / f"stepscope_trace_rank_0_{number}_a.log")
    with open_trace(tmp_path) as trace:
        rows = summary(trace)["crash_runs"]
    assert [(row["ended"], row["survived"]) for row in rows] == [("SIGSEGV", None), ("SIGTERM", None)]
