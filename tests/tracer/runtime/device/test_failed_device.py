"""A hook that fails because the device has failed is no fault of the recorder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.tracer.hand_made import HandMade, recorder_in, rows_of

TORCHS = """\
CUDA error: an illegal memory access was encountered
Search for `cudaErrorIllegalAddress' in the manual for more information.
"""


@pytest.mark.parametrize("text", [TORCHS, TORCHS.replace("CUDA error", "CUDA driver error")])
def test_it_is_told_once_and_nothing_is_freed(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with recorder_in(tmp_path) as recorder:
        HandMade(recorder, 1)()
        references = sys.getrefcount(recorder)
        recorder.failed("device times", RuntimeError(text))
        recorder.failed("device times", RuntimeError(text))
        assert sys.getrefcount(recorder) > references
    rows = rows_of(tmp_path)
    assert [row["why"] for row in rows.tables["not_recorded"]] == [
        "the device had failed: an illegal memory access was encountered"
    ]
    assert capfd.readouterr().err == ""


def test_another_failure_is_the_recorders(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with recorder_in(tmp_path) as recorder:
        HandMade(recorder, 1)()
        recorder.failed("device times", RuntimeError("no CUDA error: at all"))
    (row,) = rows_of(tmp_path).tables["not_recorded"]
    assert row["why"].startswith("the recorder failed here: RuntimeError")
    assert "device times hook failed" in capfd.readouterr().err
