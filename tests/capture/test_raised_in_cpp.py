"""`stepscope run --crash` of a program whose compiled code calls C++ code that raises: what it said, and where."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="the operator is compiled with g++"),
    pytest.mark.slow,
]
SAID = "RuntimeError: planted: an element is negative"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the operator's library is, once the first program has built it."""
    return tmp_path_factory.mktemp("library")


def answer(folder: Path) -> Any:
    told = python_processes.run([*COMMAND, "summary", "--json", folder])
    assert told.returncode == 0, told.stderr[-3000:]
    return json.loads(told.stdout)


@pytest.mark.parametrize("how", ["python", "cpp"])
def test_the_verdict_has_the_message_and_the_stack(tmp_path: Path, library: Path, how: str) -> None:
    program = ["-m", "tests.capture.raising_program", how, str(library)]
    command = [*COMMAND, "run", "--crash", "--max-runs", "2", "-o", tmp_path / "trace", "--", *program]
    run = python_processes.run(command, env=clean_environment(tmp_path / "cache"), timeout=500, alone=True)
    assert run.returncode == 1, run.stderr[-3000:]
    told = answer(tmp_path / "trace")
    assert [row["symptom"] for row in told["crash_runs"]] == [SAID] * 2 or how == "cpp"
    assert [row["survived"] for row in told["crash_runs"]] == [None, True]
    (finding,) = [one for one in told["findings"] if one["kind"] in ("crash", "exception")]
    assert SAID in finding["title"]
    evidence = finding["evidence"]
    assert evidence["cpp_raised"].startswith("check_positive (")
    assert "planted.cpp:" in evidence["cpp_raised"]
    assert any("planted::check_positive(at::Tensor const&)" in frame for frame in evidence["cpp_stack"])
    if how == "python":
        assert finding["kernel"].startswith("torch.ops.planted.positive")
    text = python_processes.run([*COMMAND, "summary", tmp_path / "trace"])
    assert "raised in C++: check_positive (" in " ".join(text.stdout.split())
