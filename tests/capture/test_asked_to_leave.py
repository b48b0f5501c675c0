"""A recorded process that SIGTERM or SIGHUP ends, as servers and workers are ended, with nobody who tells how."""

from __future__ import annotations

import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.overview.rows import Finding, StepRow
from stepscope.viewer.store.open import open_trace
from tests import python_processes
from tests.capture.conftest import clean_environment

pytestmark = pytest.mark.slow


PROGRAM = Path(__file__).with_name("asked_program.py")


@dataclass(frozen=True)
class Asked:
    code: int
    printed: list[str]
    findings: list[Finding]
    steps: list[StepRow]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def ended(way: str, folder: Path, cache: Path) -> Asked:
    environment = clean_environment(cache, STEPSCOPE_TRACE=str(folder))
    command = [sys.executable, str(PROGRAM), way]
    done = python_processes.run(command, env=environment)
    with open_trace(folder, index_dir=folder / "index") as trace:
        findings = [one for one in all_findings(trace) if one.kind == "crash"]
        return Asked(done.returncode, done.stdout.splitlines(), findings, list_steps(trace))


IGNORED = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
HUP = pytest.param("hup", signal.SIGHUP, marks=pytest.mark.skipif(IGNORED, reason="nohup lets processes ignore SIGHUP"))


@pytest.mark.parametrize(("way", "number"), [HUP, ("given back", signal.SIGTERM)])
def test_between_two_calls(way: str, number: signal.Signals, tmp_path: Path, cache: Path) -> None:
    found = ended(way, tmp_path, cache)
    assert (found.code, found.printed) == (-number, ["True"])
    (finding,) = found.findings
    assert (finding.severity, finding.step) == ("info", 2)
    assert f"was stopped by {number.name} after step 2, outside any launch" in finding.title
    assert [(step.kind, step.by, step.duration_ns is not None) for step in found.steps] == [
        ("inference", "call", True)
    ] * 3


def test_within_a_call(tmp_path: Path, cache: Path) -> None:
    found = ended("within", tmp_path, cache)
    assert found.code == -signal.SIGTERM
    (finding,) = found.findings
    assert finding.severity == "info"
    place = r"was stopped by SIGTERM in launch \d+ of step 2, torch.ops.asked.ask"
    assert re.search(place, finding.title)


def test_the_handler_of_the_program_stays(tmp_path: Path, cache: Path) -> None:
    found = ended("own", tmp_path, cache)
    assert (found.code, found.printed, found.findings) == (3, ["False", "the program's own handler"], [])


def test_a_forked_worker(tmp_path: Path, cache: Path) -> None:
    found = ended("forked", tmp_path, cache)
    assert (found.code, found.printed) == (0, [str(int(signal.SIGTERM))])
    (finding,) = found.findings
    assert (finding.severity, finding.step) == ("info", 2)
    assert all(step.duration_ns is not None for step in found.steps)
