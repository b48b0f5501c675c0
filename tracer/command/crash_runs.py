"""Implements `stepscope run --crash`, which runs a command that dies again, each time with another check."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Protocol

from stepscope.tracer.aoti.live import AS_COMPILED, LEVELS, about_printed
from stepscope.tracer.aoti.live import environment as printer_environment
from stepscope.tracer.command import process_end, sanitizer
from stepscope.tracer.command.run import RunResult, argv, recorded
from stepscope.tracer.config import TraceConfig
from stepscope.tracer.schema.process_ends import CrashRun

MOST_RUNS = 5
CPP_STACKS = {"TORCH_SHOW_CPP_STACKTRACES": "1"}
"""Adds the C++ stack to exceptions from C++; it takes time, and does not help with signals."""
SERIAL = {"CUDA_LAUNCH_BLOCKING": "1", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
NAN_ASSERTS = {"TORCHINDUCTOR_NAN_ASSERTS": "1"}
CHECK_INPUTS = {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
SANITIZER_REPORT = "compute-sanitizer.txt"
RERUN_FACTOR, RERUN_S = 10, 60
"""Time limit of a rerun, unless one is given: a multiple of the first run's time, plus seconds."""


class Look(Protocol):
    """The findings in the trace of a run."""

    @property
    def symptom(self) -> str | None:
        """Cause of death, equal for the same symptom; None if the command did not die."""

    @property
    def kernels(self) -> Sequence[str]:
        """Suspect kernels and those that computed their inputs; empty if there are none."""

    @property
    def compiles(self) -> bool:
        """Whether Inductor compiled in this process."""

    @property
    def is_packaged(self) -> bool:
        """Whether the command may run a package of AOTInductor."""


Examine = Callable[[Path], Look]
"""Function that examines the logs in a folder after the command has ended."""


@dataclass(frozen=True)
class CrashPlan:
    purpose: str
    config: TraceConfig
    environment: Mapping[str, str] = field(default_factory=dict)
    tool: Sequence[str] = ()
    printed: str = "launches"
    """What C++ code that the run compiles prints, if printing is requested."""


@dataclass(frozen=True)
class Limits:
    most_runs: int = MOST_RUNS
    timeout_s: float | None = None
    """Time limit of each run; None if the first run has none."""
    with_sanitizer: bool = False


class CrashRuns:
    """The runs of one command; `say` is called with a sentence before each run."""

    def __init__(
        self,
        command: Sequence[str],
        config: TraceConfig,
        limits: Limits,
        examine: Examine,
        say: Callable[[str], None],
        *,
        fresh_cache: bool = False,
        aoti: str | None = None,
    ) -> None:
        """Prepare the runs; `aoti` is the most that C++ code prints, for suspects, or None to ignore its output."""
        self.command, self.config, self.limits = argv(command), config, limits
        self.results: list[RunResult] = []
        self._examine, self._say, self._fresh_cache, self._aoti = examine, say, fresh_cache, aoti
        self._stdin = _place()
        self._seen: list[tuple[CrashPlan, Look]] = []

    def run(self) -> int:
        """Run the command, and again while it dies and checks are left; return the first run's exit code.

        Raises FileExistsError if the folder already contains such runs, and FileNotFoundError and PermissionError like
        `stepscope.tracer.command.run.run`.
        """
        first = self._one(CrashPlan("as it is", self.config, printed=AS_COMPILED))
        if self._seen[0][1].symptom is None:
            self._say("it did not die, so nothing is run again")
            return first.exit_code
        for make in (self._serial, self._values, self._checks, self._sanitized):
            if self._is_over():
                break
            plan = make()
            if plan is not None:
                self._one(plan)
        if self._aoti:
            launches = sum(result.printed_launches or 0 for result in self.results)
            logs = [log for result in self.results for log in result.logs]
            if about := about_printed(launches, logs, failed=True):
                self._say(about)
        return first.exit_code

    def _is_over(self) -> bool:
        last = self.results[-1].ending
        return last.interrupted or len(self.results) >= self.limits.most_runs or self.results[0].ending.timed_out

    def _one(self, plan: CrashPlan) -> RunResult:
        number = len(self.results) + 1
        folder = self.config.directory / f"run-{number}"
        folder.mkdir(parents=True)
        report = folder / SANITIZER_REPORT
        config = replace(plan.config, directory=folder)
        printer = printer_environment(plan.printed, config.kernels) if self._aoti else {}
        environment = {**plan.environment, **printer}
        crash_run = CrashRun(number, plan.purpose, environment, config.level, list(config.kernels), list(plan.tool))
        self._say(f"run {number}{f' of at most {self.limits.most_runs}' if number > 1 else ''}: {_asked(crash_run)}")
        self._rewind()
        result = recorded(
            [*(sanitizer.command(report) if plan.tool else []), *self.command],
            config,
            fresh_cache=self._fresh_cache,
            more=environment,
            timeout_s=self._timeout_s(),
            keep_tail=True,
            aoti=plan.printed if self._aoti else None,
        )
        self.results.append(result)
        if result.cache is not None:
            self._say(result.cache.text)
        end = process_end.record_of(result.ending, crash_run, sanitizer.read_report(report) if plan.tool else [])
        with suppress(OSError):  # if the disk is full, this run lacks its end
            process_end.append(end, result.logs)
            if not result.logs:
                process_end.write_log(end, folder, self.command, config.level)
        self._seen.append((plan, self._examine(folder)))
        return result

    def _timeout_s(self) -> float | None:
        if self.limits.timeout_s is not None or not self.results:
            return self.limits.timeout_s
        return RERUN_FACTOR * self.results[0].ending.duration_ns / 1e9 + RERUN_S

    def _rewind(self) -> None:
        """Reset a file on standard input to its position before the first run; a pipe cannot be read again."""
        if self._stdin is not None:
            with suppress(OSError):
                os.lseek(0, self._stdin, os.SEEK_SET)

    # Plans of the reruns, in this order.

    def _serial(self) -> CrashPlan:
        symptom = self._seen[0][1].symptom or ""
        raised = not symptom.startswith("SIG") or symptom == "SIGABRT"  # an uncaught exception
        flags = SERIAL | (CPP_STACKS if raised else {})
        return CrashPlan("one launch at a time", replace(self.config, level="launches"), flags)

    def _values(self) -> CrashPlan | None:
        """Plan to read the suspects' values, with the flags of the last run if the symptom was the same."""
        look = self._suspect()
        if look is None:
            self._say("no launch is suspected, so no values are read")
            return None
        level = "save" if self.config.level == "save" else "values"
        kernels = tuple(escape(kernel) for kernel in look.kernels if "," not in kernel)
        config = replace(self.config, level=level, kernels=kernels)
        printed = self._aoti if self._aoti in LEVELS else "launches"
        return CrashPlan("values of the suspect", config, SERIAL if self._survived(-1) else {}, printed=printed)

    def _checks(self) -> CrashPlan | None:
        look = self._seen[0][1]
        flags = (NAN_ASSERTS if look.compiles else {}) | (CHECK_INPUTS if look.is_packaged else {})
        return CrashPlan("sanity checks", replace(self.config, level="launches"), flags) if flags else None

    def _sanitized(self) -> CrashPlan | None:
        if not self.limits.with_sanitizer:
            return None
        if shutil.which(sanitizer.TOOL[0]) is None:
            self._say(f"{sanitizer.TOOL[0]} is not installed, so the program is not run under it")
            return None
        caching = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        # It keeps the frames of each launch and their variables alive, which is not a leak of the program.
        config = replace(self.config, level="launches", lifetimes="off")
        return CrashPlan("compute-sanitizer", config, caching, sanitizer.TOOL)

    def _survived(self, run: int) -> bool:
        return self._seen[run][1].symptom == self._seen[0][1].symptom

    def _suspect(self) -> Look | None:
        """Return the findings of the last run that has the first run's symptom and suspects, or None."""
        named = (look for run, (_, look) in reversed(list(enumerate(self._seen))) if self._survived(run))
        return next((look for look in named if look.kernels), None)


def _asked(run: CrashRun) -> str:
    flags = [f"{name}={value}" for name, value in run.environment.items()]
    kernels = [f"({', '.join(run.kernels)})"] if run.kernels else []
    return ", ".join([" ".join([run.purpose, *kernels]), *flags])


def _place() -> int | None:
    """Return the position of standard input, or None if it is not a file."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(os.fstat(0).st_mode) else None
    except OSError:
        return None
