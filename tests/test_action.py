"""The composite action for CI: its steps are run by bash as a runner would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.logs import overflow_log
from tests.logs.synthetic import recorded
from tests.variables import without_ours_and_torchs
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


ACTION = Path(__file__).resolve().parents[1] / ".github" / "actions" / "stepscope" / "action.yml"


def blocks() -> list[str]:
    """Return the script of each step."""
    if not ACTION.is_file():
        pytest.skip("a source distribution has no .github")
    text = ACTION.read_text("utf-8").partition("\nruns:\n")[2]
    found = re.findall(r"^      run: (?:\|\n((?:        .*\n|\n)+)|(.*)\n)", text, re.MULTILINE)
    return [re.sub("^        ", "", several, flags=re.MULTILINE) or one for several, one in found]


def step(script: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    python = folder / "bin" / "python"
    if not python.exists():
        python.parent.mkdir()
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
    environment = {**without_ours_and_torchs(), **settings, "GITHUB_OUTPUT": str(folder / "outputs")}
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.mark.parametrize("redact", ["true", "false"])
def test_findings_are_written_and_the_job_fails(tmp_path: Path, redact: str) -> None:
    _, read, check = blocks()
    (tmp_path / "t r").mkdir()
    overflow_log.recorded().write(tmp_path / "t r" / "one.log")
    done = step(read, tmp_path, TRACE="t r", REDACT=redact)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "outputs").read_text() == "sarif=findings.sarif\nreport=report.html\n"
    assert (tmp_path / "findings.sarif").stat().st_size > 500
    assert ("report, redacted" in (tmp_path / "report.html").read_text("utf-8")) == (redact == "true")
    assert step(check, tmp_path, TRACE="t r", FAIL_ON="").returncode == 1
    assert step(check, tmp_path, TRACE="t r", FAIL_ON="nonfinite").returncode == 1
    assert step(check, tmp_path, TRACE="t r", FAIL_ON="graph_break").returncode == 0


def test_a_folder_without_logs_passes(tmp_path: Path) -> None:
    _, read, check = blocks()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.md").write_text("no log")
    done = step(read, tmp_path, TRACE="empty", REDACT="false")
    assert (done.returncode, done.stdout, done.stderr) == (
        0, "stepscope: empty contains no log, because nothing was recorded\n", ""
    )  # fmt: skip
    assert not (tmp_path / "outputs").exists()
    assert step(check, tmp_path, TRACE="empty", FAIL_ON="").returncode == 0


def test_a_healthy_trace_and_no_trace_pass(tmp_path: Path) -> None:
    record, read, check = blocks()
    (tmp_path / "healthy").mkdir()
    recorded().write(tmp_path / "healthy" / "one.log")
    done = step(check, tmp_path, TRACE="healthy", FAIL_ON="")
    assert (done.returncode, done.stdout.startswith("ok: ")) == (0, True)
    nothing = step(read, tmp_path, TRACE="missing", REDACT="false")
    assert (nothing.returncode, "nothing was recorded" in nothing.stdout) == (0, True)
    failed = step(record, tmp_path, TRACE="missing", LEVEL="launches", COMMAND="echo begun && exit 3")
    assert (failed.returncode, failed.stdout) == (3, "begun\n")
