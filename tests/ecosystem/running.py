"""Runs one program as it is and recorded, and asks the command line what the recording tells."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ecosystem.catalogue import Entry, command, entry, expected_iterations
from tests.variables import without_ours_and_torchs

STEPSCOPE = (sys.executable, "-m", "stepscope")
AT_THE_END = re.compile(r"stepscope: (\d+ log|read it with)")
"""What `stepscope run` says when the program has ended."""
SPEED = "_per_second'"
STEPS = "select log, kind, by_what, count(*) as n from steps group by all order by all"


@dataclass(frozen=True)
class Ran:
    """How a process ended, and what it wrote."""

    code: int | None
    """None: it had to be stopped."""
    stdout: str
    stderr: str
    seconds: float


@dataclass
class Told:
    """What one recording tells, beside what the program does when nothing records it."""

    program: str
    way: str
    plain: Ran
    recorded: Ran
    iterations: int | None
    comparable: bool = True
    steps: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(log, kind, what they were found by) -> number of steps."""
    warnings: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    not_recorded: list[str] = field(default_factory=list)
    incomplete: int = 0
    logs: int = 0

    @property
    def extra_stderr(self) -> list[str]:
        """Lines on standard error that the program alone does not write, whatever numbers stand in them."""
        missing = Counter(map(without_numbers, self.plain.stderr.splitlines()))
        extra = []
        for line in self.recorded.stderr.splitlines():
            key = without_numbers(line)
            if missing[key]:
                missing[key] -= 1
            elif line.strip() and not AT_THE_END.match(line):
                extra.append(line)
        return extra

    @property
    def same(self) -> bool:
        """Whether both runs ended alike and printed the same, but for lines that tell how fast they were."""
        if not self.comparable:
            return self.plain.code == self.recorded.code
        plain, recorded = ([line for line in run.stdout.splitlines() if SPEED not in line] for run in self.both)
        return plain == recorded and self.plain.code == self.recorded.code

    @property
    def both(self) -> tuple[Ran, Ran]:
        return self.plain, self.recorded


def without_numbers(line: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", line)


def ran(arguments: list[str], folder: Path, environment: dict[str, str], timeout_s: int) -> Ran:
    """Run a command in a process group of its own; nothing of it is left after its time."""
    start = time.monotonic()
    with (folder / "stdout").open("w+") as out, (folder / "stderr").open("w+") as errors:
        process = subprocess.Popen(
            arguments, cwd=folder, env=environment, stdout=out, stderr=errors, start_new_session=True
        )
        code: int | None
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        seconds = time.monotonic() - start
        out.seek(0)
        errors.seek(0)
        return Ran(code, out.read(), errors.read(), seconds)


def clean_environment(folder: Path, known: Entry, **more: str) -> dict[str, str]:
    """A compile cache of its own and none of our variables but `more`."""
    own = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "XDG_CACHE_HOME": str(folder / "xdg")}
    return {**without_ours_and_torchs(), **own, "OMP_NUM_THREADS": "1", **known.environment, **more}


class Comparison:
    """One program in one folder: the unrecorded run is made once."""

    def __init__(self, program: Path, folder: Path, level: str) -> None:
        self.program, self.folder = program, folder
        self.known = entry(program)
        self.level = self.known.level or level
        self.plain = self.run("plain", command(program))
        if self.plain.code is None:  # a compiler that is stopped leaves half a library
            shutil.rmtree(folder / "cache", ignore_errors=True)

    def run(self, name: str, arguments: list[str], **more: str) -> Ran:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        environment = clean_environment(self.folder, self.known, **more)
        return ran(arguments, folder, environment, self.known.timeout_s)

    def by_environment(self) -> Told:
        recorded = self.run("environment", command(self.program), STEPSCOPE_TRACE="trace", STEPSCOPE_LEVEL=self.level)
        return self.told("environment", recorded)

    def by_command(self) -> Told:
        options = ["--level", self.level, "-o", "trace", *self.known.options]
        recorded = self.run("command", [*STEPSCOPE, "run", *options, "--", *command(self.program)])
        return self.told("command", recorded)

    def warm(self) -> float:
        """How many times as long a recorded run takes as another one, both with everything compiled before."""
        recorded = self.run("warm", command(self.program), STEPSCOPE_TRACE="trace", STEPSCOPE_LEVEL=self.level)
        return recorded.seconds / self.run("plain", command(self.program)).seconds

    def told(self, way: str, recorded: Ran) -> Told:
        iterations = expected_iterations(self.program, self.plain.stdout)
        told = Told(self.program.stem, way, self.plain, recorded, iterations, self.known.comparable)
        traces = sorted({log.parent for log in (self.folder / way).rglob("stepscope_trace_*.log")})
        if not traces:
            told.problems.append("there is no log")
        for trace in traces:
            self.read(trace, told)
        return told

    def read(self, trace: Path, told: Told) -> None:
        summary = self.asked("summary", str(trace), "--json")
        if summary.code or summary.stderr:
            told.problems.append(f"summary ends with {summary.code}: {summary.stderr.strip()}")
            return
        (trace / "summary.json").write_text(summary.stdout)
        facts: dict[str, Any] = json.loads(summary.stdout)
        for finding in facts["findings"]:
            kept = told.others if finding["severity"] == "info" else told.warnings
            kept.append(f"{finding['severity']} {finding['kind']}: {finding['title']}")
        told.problems += [str(problem["text"]) for problem in facts["ingest"]["problems"]]
        told.problems += [f"{number} skipped: {reason}" for reason, number in facts["ingest"]["skipped"].items()]
        told.not_recorded += [f"{row['what']}: {row['why']}" for row in facts["ingest"]["not_recorded"]]
        told.incomplete += sum(not run["complete"] for run in facts["runs"])
        told.logs += len(facts["runs"])
        for row in csv.DictReader(self.asked("sql", str(trace), STEPS).stdout.splitlines()):
            key = (row["log"], row["kind"], row["by_what"])
            told.steps[key] = told.steps.get(key, 0) + int(row["n"])

    def asked(self, *arguments: str) -> Ran:
        return self.run("asked", [*STEPSCOPE, *arguments])
