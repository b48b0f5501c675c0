"""Compiles without an id that fail while the program goes on, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND
from tests.capture.test_raised_in_cpp import answer

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def test_it_is_said_that_they_failed_and_why(tmp_path: Path) -> None:
    command = [*COMMAND, "run", "-o", tmp_path / "trace", "--", "-m", "tests.capture.failing_compiles"]
    run = python_processes.run(command, env=clean_environment(tmp_path / "cache"), timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    told = answer(tmp_path / "trace")
    assert [(row["compile_id"], row["status"]) for row in told["compiles"]] == [("-", "failed")]
    findings = [one for one in told["findings"] if one["kind"] == "compile_failure"]
    assert sum(one["evidence"]["failures"] for one in findings) == 2
    assert all("planted: no lowering" in one["title"] for one in findings)
