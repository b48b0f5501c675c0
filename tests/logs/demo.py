"""A recording of the program of `stepscope demo`, which compiles."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import python_processes


def record_demo(folder: Path) -> None:
    """Record the demo into `folder`."""
    code = "from stepscope.viewer.cli import main; main()"
    command = [sys.executable, "-c", code, "run", "--out", str(folder), "--", "-m", "stepscope.tracer.demo"]
    done = python_processes.run(command, timeout=500)
    assert done.returncode == 0, done.stderr
