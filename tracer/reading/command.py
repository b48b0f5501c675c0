"""Asks the command `stepscope` about a log, in another process: the recorder never imports the viewer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_FOLDER = Path(__file__).parents[3]
"""Folder from which this package was imported."""
_LONGEST_S = 600
_MOST_NOTE = 2000


class NotRead(Exception):
    """The command could not answer; the text is its sentence."""


def ask(*words: str | Path) -> str:
    """Return what ``stepscope WORDS`` prints. Raises NotRead."""
    environment = {name: value for name, value in os.environ.items() if name != "STEPSCOPE_TRACE"}
    paths = [str(_FOLDER), *filter(None, [environment.get("PYTHONPATH")])]
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "stepscope", *map(str, words)]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST_S, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise NotRead(f"The command `stepscope` could not be run: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise NotRead(said[-1].removeprefix("stepscope: ") if said else f"It ended with code {done.returncode}.")
    return done.stdout.decode(errors="replace")


def write_report(log: Path, report: Path, note: str) -> str:
    """Write the report of a log, with `note` on its first page; return a sentence about it, also if that failed."""
    shown = note[:_MOST_NOTE].replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
    try:
        ask("report", log, "--out", report, f"--note={shown}")
    except NotRead as error:
        return f"The report of {log} could not be written: {error}"
    return f"The report of the recorded run is {report}"
