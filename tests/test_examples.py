"""The example of each kind of finding has that finding and no other, and without its problem it has none."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stepscope.viewer.findings import KINDS, all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.open import open_trace
from tests import python_processes
from tests.capture.conftest import ROOT, clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = pytest.mark.filterwarnings("ignore")

EXAMPLES = ROOT / "docs" / "examples" / "findings"
ON_GPU = {"full_precision_matmul"}
NEEDS_GPU = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"))
FEW = {"crash", "graph_break", "growth", "nonfinite"}
"""Kinds whose examples each run of the tests records; those of the others are slow."""
UNCAUGHT = {"compile_failure", "exception"}
"""Kinds whose examples end with an exception that comes up to the outermost frame."""
ATTEMPTS = 5
"""Other programs may take the cores from a run whose times matter."""
BY_SHARE = {module.stem for module in (ROOT / "viewer" / "findings" / "speed").glob("*.py")}
"""Kinds whose severity follows from shares of time, which are other ones on other machines."""
_NUMBER = re.compile(r"(?<=stepscope_trace_rank_)\w+|-?\d[\d,.]*(e[+-]?\d+)?( [kMG]?B| [mun]?s)?\b")
example_of: Callable[[str], Any] = runpy.run_path(str(ROOT / "docs" / "generate_findings.py"))["example_of"]


def findings(kind: str, folder: Path, *more: str) -> tuple[subprocess.CompletedProcess[str], list[Finding]]:
    """Run an example as its command says, and return what became of it and what is found."""
    tool, run, *rest = shlex.split(example_of(kind).command)
    assert (tool, run) == ("stepscope", "run")
    command = [*COMMAND, "run", "-o", folder, *rest, *more]
    environment, is_alone = clean_environment(folder.parent / "cache"), kind in UNCAUGHT and not more
    done = python_processes.run(command, env=environment, cwd=EXAMPLES, timeout=300, alone=is_alone)
    with open_trace(folder, index_dir=folder.parent / f"{folder.name}-index") as trace:
        return done, all_findings(trace)


def without_numbers(kind: str, verdict: str) -> str:
    severity, _, title = verdict.partition(": ")
    return _NUMBER.sub("#", title if kind in BY_SHARE else f"{severity}: {title}")


def told(kind: str, found: list[Finding]) -> list[str]:
    """Return the verdicts of a kind, and those that are no information of any kind."""
    shown = [one for one in found if one.kind == kind or one.severity != "info"]
    return [without_numbers(one.kind, f"{one.severity}: {one.title}") for one in shown]


def marks_of(kind: str) -> list[pytest.MarkDecorator]:
    return [*(NEEDS_GPU if kind in ON_GPU else ()), *(() if kind in FEW else (pytest.mark.slow,))]


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=marks_of(kind)) for kind in KINDS])
def test_an_example_has_its_finding_alone(kind: str, tmp_path: Path) -> None:
    expected = [without_numbers(kind, example_of(kind).verdict)]
    done, found = tried(kind, tmp_path, "wrong", expected)
    assert found == expected, done.stderr[-3000:]
    done, found = tried(kind, tmp_path, "fixed", [], "--fixed")
    assert done.returncode == 0, done.stderr[-3000:]
    assert found == []


def tried(
    kind: str, folder: Path, name: str, expected: list[str], *more: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run an example until it is told as expected, and return its last run and what is told of it."""
    for attempt in range(ATTEMPTS):
        done, found = findings(kind, folder / f"{name}{attempt}", *more)
        if told(kind, found) == expected:
            break
    return done, told(kind, found)
