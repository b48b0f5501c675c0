"""`stepscope run --crash` of a program whose compiled code calls C++ code that raises: what it said, and where."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.capture.conftest import ROOT, clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="the operator is compiled with g++"),
]
SAID = "RuntimeError: planted: an element is negative"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the operator's library is, once the first program has built it."""
    return tmp_path_factory.mktemp("library")


def answer(folder: Path) -> Any:
    told = subprocess.run([*COMMAND, "summary", "--json", str(folder)], cwd=ROOT, capture_output=True, timeout=100)
    assert told.returncode == 0, told.stderr[-3000:]
    return json.loads(told.stdout)


@pytest.mark.parametrize("how", ["python", "cpp"])
def test_the_verdict_has_the_message_and_the_stack(tmp_path: Path, library: Path, how: str) -> None:
    program = ["-m", "tests.capture.raising_program", how, str(library)]
    run = subprocess.run(
        [*COMMAND, "run", "--crash", "--max-runs", "2", "-o", str(tmp_path / "trace"), "--", *program],
        cwd=ROOT, env=clean_environment(tmp_path / "cache"), capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
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
    text = subprocess.run([*COMMAND, "summary", str(tmp_path / "trace")], cwd=ROOT, capture_output=True, text=True)
    assert "raised in C++: check_positive (" in text.stdout
