"""`stepscope sql` leaves nothing running: a daemon thread that wakes while the interpreter ends aborts the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.search.ask import ask
from stepscope.viewer.store.open import open_trace
from tests.logs.synthetic import recorded
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


LONG = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
WATCHED = """
import atexit, sys, threading

@atexit.register  # what is no daemon has been joined by then
def tell():
    running = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    print("still running:", running, file=sys.stderr)

from stepscope.viewer.cli import main
main()
"""
STATEMENTS = [
    (["SELECT kernel FROM sites"], 0),
    (["SELECT * FROM range(1000000)", "--limit", "3"], 0),
    (["DROP TABLE sites"], 2),
    (["SELECT nothing"], 2),
    ([LONG, "--max-seconds", "0.3"], 2),
]


@pytest.mark.parametrize(("arguments", "code"), STATEMENTS)
def test_no_thread_is_left_when_the_command_ends(tmp_path: Path, arguments: list[str], code: int) -> None:
    log = recorded().write(tmp_path / "x.log")
    command = [sys.executable, "-c", WATCHED, "sql", str(log), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (run.returncode, run.stderr.splitlines()[-1]) == (code, "still running: []")


def test_an_answer_leaves_no_thread_and_no_process(tmp_path: Path) -> None:
    children = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children")
    with open_trace(recorded().write(tmp_path / "x.log")) as trace:
        before, born = set(threading.enumerate()), children.read_text() if children.exists() else ""
        assert ask(trace, "SELECT 1").rows == [[1]]
        for statement, seconds in (("DROP TABLE sites", 10.0), (LONG, 0.2)):
            with pytest.raises(StepscopeError):
                ask(trace, statement, seconds=seconds)
        assert set(threading.enumerate()) == before
        assert (children.read_text() if children.exists() else "") == born
