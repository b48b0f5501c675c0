"""`stepscope run --repeat`: a program whose runs differ, and its healthy twin."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import python_processes

pytestmark = pytest.mark.slow


PROGRAM = Path(__file__).parent / "programs" / "jitter.py"


@pytest.mark.parametrize("words", [(), ("healthy",)], ids=["nondeterministic", "healthy"])
def test_the_launch_that_gives_other_bits_in_each_run_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    out = tmp_path / "runs"
    asked = ["run", "--repeat", "2", "--level", "values", "--no-provenance", "-o", str(out), "--"]
    done = python_processes.run([sys.executable, "-m", "stepscope", *asked, sys.executable, str(PROGRAM), *words])
    told = " ".join(done.stdout.split())
    assert sorted(path.name for path in out.iterdir()) == ["run_1", "run_2"], done.stderr
    if words:
        assert (done.returncode, told.startswith("No difference was found:")) == (0, True), told
        return
    assert done.returncode == 1
    assert told.startswith("Nondeterministic: launch 1, torch.ops.stepscope_tests.jitter.default of graph"), told
    assert "from tensors that are equal in every bit" in told
    assert "The log does not hold what this operator computes inside." in told


def test_what_cannot_be_repeated_is_said_in_a_sentence(tmp_path: Path) -> None:
    asked = ["run", "--repeat", "2", "--level", "launches", "-o", str(tmp_path), "--", "python", "-c", "1"]
    done = python_processes.run([sys.executable, "-m", "stepscope", *asked])
    assert done.returncode == 2
    assert "--repeat compares values: give --level values" in done.stderr
