"""`stepscope ingest` as it is typed, and what it says on the way."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.log_files import LogFile
from stepscope.viewer.store.distributed_ingest import progress
from stepscope.viewer.store.distributed_ingest.command import ingest
from stepscope.viewer.store.distributed_ingest.task import Done, Task
from tests.logs.store_logs import write_logs
from tests.logs.synthetic import recorded
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


UNIT = Task("/store", 3, LogFile("/logs/\x1b[31mred.log", 500_000, ""), "")


def stepscope(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from stepscope.viewer.cli import main; main()", *arguments],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=Path(__file__).resolve().parents[3],
    )  # fmt: skip


def test_ingest_then_the_other_commands(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    write_logs(tmp_path / "logs")
    recorded(format_version=99).write(tmp_path / "logs" / "stepscope_trace_z.log")
    store = str(tmp_path / "store")
    done = stepscope("ingest", str(tmp_path / "logs"), "--to", store, "--workers", "2")
    assert done.returncode == 2
    assert "format version 99" in done.stdout
    assert re.search(r"/store holds 8 logs; [\d.]+ kB became [\d.]+ kB$", done.stdout, re.MULTILINE)
    assert done.stderr.splitlines()[-1] == (
        f"stepscope: 1 of 9 logs is missing from {store}. Run the same command to try again."
    )
    assert re.search(r"^stepscope: 9 of 9 logs, .* kB, .*/s, 0:00:\d\d left$", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr
    summary = stepscope("summary", store)
    assert summary.returncode == 0
    assert "format version 99, this stepscope reads up to" in summary.stdout
    assert stepscope("check", store, "--fail-on", "crash").returncode == 1


def test_both_kinds_of_workers_are_too_many(tmp_path: Path) -> None:
    with pytest.raises(StepscopeError, match="its own workers"):
        ingest(str(tmp_path), str(tmp_path / "store"), "tcp://127.0.0.1:8129", 2, print)


def test_lines_say_how_far_how_fast_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("stepscope.viewer.store.distributed_ingest.progress.time.monotonic", lambda: now[0])
    out = io.StringIO()
    lines = progress.watcher(out)
    lines.begin(4, 4_000_000)
    now[0] += 1
    lines.done(Done(0, 1_000_000, 10, 0))
    assert out.getvalue() == ""
    now[0] += 9
    lines.retry(UNIT, "its worker died")
    lines.done(Done(1, 1_000_000, 10, 2))
    lines.end()
    assert out.getvalue().splitlines() == [
        "stepscope: /logs/ [31mred.log: its worker died; it will be tried again",
        "stepscope: 2 of 4 logs, 2.0 MB of 4.0 MB, 200.0 kB/s, 0:00:10 left, 2 retried",
        "stepscope: 2 of 4 logs, 2.0 MB of 4.0 MB, 200.0 kB/s, 0:00:10 left, 2 retried",
    ]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    out = Terminal()
    bar = progress.watcher(out)
    assert isinstance(bar, progress.ProgressBar)
    bar.begin(2, 1_000_000)
    bar.retry(UNIT, "its worker died")
    bar.done(Done(0, 500_000, 10, 0))
    bar.end()
    assert "1 of 2 logs, 500.0 kB of 1.0 MB" in out.getvalue()
    assert "[31mred.log: its worker died" in out.getvalue().replace("\x1b[31mred", "")
    assert "\x1b[31mred" not in out.getvalue()
