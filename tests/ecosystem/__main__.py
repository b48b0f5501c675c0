"""Runs programs unrecorded and recorded and prints what differs: ``python -m tests.ecosystem [PROGRAM...]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.ecosystem.catalogue import NAMES, located
from tests.ecosystem.running import Comparison, Told

WAYS = ("environment", "command")


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.ecosystem", description=__doc__)
    asked.add_argument("programs", nargs="*", metavar="PROGRAM", help="a name in programs/ or a path; default: all")
    asked.add_argument("--level", default="launches", choices=("launches", "values", "save"))
    asked.add_argument("--ways", default="environment,command", help="how recording is asked for, with commas between")
    asked.add_argument("--warm", action="store_true", help="measure the time of a warm run as well")
    asked.add_argument("--folder", type=Path, help="where everything is kept; default: a temporary folder")
    given = asked.parse_args()
    try:
        programs = [located(name) for name in given.programs or NAMES]
    except FileNotFoundError as error:
        asked.error(str(error))
    with tempfile.TemporaryDirectory() as temporary:
        for program in programs:
            folder: Path = (given.folder or Path(temporary)).absolute() / f"{program.stem}_{given.level}"
            comparison = Comparison(program, folder, given.level)
            for way in given.ways.split(","):
                show(comparison.by_environment() if way == "environment" else comparison.by_command())
            if given.warm:
                print(f"  warm, recorded: {comparison.warm():.2f} times as long", flush=True)
    return 0


def show(told: Told) -> None:
    """Print one row of the table, and below it each line that a healthy run would not have."""
    steps = ", ".join(f"{n} {kind} by {by} (log {log})" for (log, kind, by), n in told.steps.items()) or "none"
    result = "equal" if told.same else "DIFFERS"
    ends = f"exit {told.plain.code}/{told.recorded.code}"
    ratio = told.recorded.seconds / told.plain.seconds
    print(f"{told.program:22} {told.way:12} result {result:8} {ends:12} iterations {told.iterations}; steps: {steps}")
    print(f"  {told.logs} logs, {told.incomplete} incomplete; {told.recorded.seconds:.0f} s, {ratio:.2f} of unrecorded")
    rows = {
        "finding": told.warnings,
        "info": told.others,
        "problem": told.problems,
        "not recorded": told.not_recorded,
        "stderr": told.extra_stderr,
    }
    for label, lines in rows.items():
        for line in lines[:30]:
            print(f"  {label}: {line}")
        if len(lines) > 30:
            print(f"  {label}: and {len(lines) - 30} more")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
