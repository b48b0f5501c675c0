"""The logs of several runs of a program that died are one trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.schema.process_ends import ProcessEnd
from stepscope.viewer.overview import page as overview_page
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Request
from tests.logs.synthetic import recorded
from tests.logs.unpacking import whole_report
from tests.viewer.crash.test_crash import IN_STEP_THREE, PID, crash_run, process_end, ring


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Trace]:
    """Three runs; in the second the program did not die, in the third values were read."""
    hostile = "</pre><script>alert(1)</script>"
    asked: list[tuple[ProcessEnd, dict[str, Any]]] = [
        (process_end(error_tail=f"a\n{hostile}\n"), {}),
        (process_end(exit_code=0, signal=None), {"environment": {"CUDA_LAUNCH_BLOCKING": "1"}}),
        (process_end(), {"level": "values", "kernels": ["cpp_*"], "purpose": "values of the suspect"}),
    ]
    for number, (end, changes) in enumerate(asked, 1):
        log = recorded(end=end.signal is None, pid=PID + number)
        log.record(replace(end, pid=PID + number, crash_run=crash_run(number, **changes)))
        path = log.write(tmp_path / "t" / f"run-{number}" / f"stepscope_trace_rank_0_{number}_a.log")
        if end.signal is not None:
            path.with_name(path.name + ".ring").write_bytes(ring([IN_STEP_THREE], pid=PID + number))
    with open_trace(tmp_path / "t") as trace:
        yield trace


def test_runs_are_one_trace(joined: Trace) -> None:
    answer = summary(joined)
    assert [(row["run"], row["survived"], row["ended"]) for row in answer["crash_runs"]] == [
        (1, None, "SIGSEGV"),
        (2, False, "exit code 0"),
        (3, True, "SIGSEGV"),
    ]
    assert [one["crash_run"] for one in answer["runs"]] == [1, 2, 3]
    (finding,) = [one for one in answer["findings"] if one["kind"] == "crash"]
    assert [row["run"] for row in finding["evidence"]["crash_runs"]] == [1, 3]
    text = summary_text(joined)
    assert "run 2: CUDA_LAUNCH_BLOCKING=1" in text
    assert "✖ run 1: Process" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.slow
def test_runs_on_a_page(joined: Trace) -> None:
    from stepscope.viewer.text.formats import to_json

    context = overview_page.overview_page(joined, Request({}, {}))
    overview = json.loads(to_json(context))["overview"]
    assert overview["crash_runs"][0]["said"] == ["a", "</pre><script>alert(1)</script>"]
    html = whole_report(joined)
    assert "Runs of --crash" in html
    assert "<script>alert(1)" not in html
    assert "alert(1)" in html
    assert "alert(1)" not in whole_report(joined, redact=True)
