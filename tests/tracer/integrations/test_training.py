"""What the callbacks share: recording, steps, and the report of a run that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import stepscope.integrations
from stepscope.viewer.search.ask import ask
from stepscope.viewer.store.open import open_trace
from tests import python_processes

PROGRAM = """
import sys, torch
from stepscope.tracer.integrations.training import TrainingRun
run = TrainingRun({directory}, {settings})
function = torch.compile(lambda x: (x @ x).relu())
def train(stop=None):
    run.begin()
    for number in range(3):
        function(torch.ones(8, 8))
        if number == stop:
            raise RuntimeError("stopped")
        run.step()
    run.end()
{rest}
"""


def ran(
    folder: Path, rest: str, directory: str = "'out'", settings: str = "{}", raises: bool = False
) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM.format(directory=directory, settings=settings, rest=rest))
    return python_processes.run([sys.executable, program], cwd=folder, alone=raises)


def test_a_run_that_ends_well_has_steps_and_no_report(tmp_path: Path) -> None:
    done = ran(tmp_path, "train()")
    assert (done.returncode, done.stderr) == (0, "")
    (log,) = (tmp_path / "out").iterdir()
    with open_trace(log) as trace:
        answer = ask(trace, "select step, by_what from steps", 10, 60)
    assert answer.rows == [[0, "user"], [1, "user"], [2, "user"]]


@pytest.mark.slow
def test_the_report_of_an_uncaught_exception_is_written_at_the_end(tmp_path: Path) -> None:
    done = ran(tmp_path, "train(stop=1)", settings="{'level': 'values'}", raises=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "stepscope: The report of the recorded run is out/report.html"
    report = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "RuntimeError: stopped" in report


@pytest.mark.slow
def test_a_second_run_reports_the_first_one(tmp_path: Path) -> None:
    done = ran(tmp_path, "try: train(stop=1)\nexcept RuntimeError: pass\ntrain()\nprint('ended')")
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert done.stderr.count("The report of the recorded run is out/report.html") == 1
    assert "The training did not reach its end." in (tmp_path / "out" / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_without_a_directory_it_belongs_to_the_recording_of_the_program(tmp_path: Path) -> None:
    rest = """
import stepscope
with stepscope.trace("theirs"):
    try:
        train(stop=1)
    except RuntimeError as error:
        run.failed(error)
"""
    done = ran(tmp_path, rest, directory="None")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "theirs" / "report.html").is_file()
    stopped = ran(tmp_path, "train(stop=1)", directory="None", raises=True)
    assert stopped.stderr.endswith("RuntimeError: stopped\n")


def test_callbacks_are_imported_when_they_are_used() -> None:
    assert stepscope.integrations.__all__ == ["LightningCallback", "TrainerCallback"]
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = stepscope.integrations.Nothing
    code = "import sys, stepscope.integrations; sys.exit(bool({'torch', 'transformers', 'lightning'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
