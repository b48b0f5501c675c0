"""Implements `stepscope run`: runs a command with recording switched on through its environment."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stepscope.tracer.aoti.live import LiveCapture, line_buffered
from stepscope.tracer.aoti.live import environment as printer_environment
from stepscope.tracer.command import process_end
from stepscope.tracer.command.fresh_cache import CacheUse, FreshCache
from stepscope.tracer.command.watch import Ending, watch
from stepscope.tracer.config import TraceConfig, to_environment
from stepscope.tracer.schema.constants import CALLED, FAILED, LOADED

WAITS = "STEPSCOPE_WAITS"
"""Variable with the path of the file that `_stepscope_autostart` creates where the recorder waits for a compile."""


@dataclass(frozen=True)
class RunResult:
    ending: Ending
    logs: list[Path]
    """Logs that this run wrote, oldest first."""
    printed_launches: int | None = None
    """Number of launches that PyTorch's debug printer printed; None if its output was not read."""
    cache: CacheUse | None = None
    """Use of the run's own cache; None if it had none."""
    has_waited: bool = False
    """Whether a process of the program imported torch and the recorder waited for a compile there."""
    has_called_compile: bool = False
    """Whether such a process has told at its end that it had called `torch.compile`."""
    has_loaded_package: bool = False
    """Whether such a process has told at its end that it had loaded a package of AOTInductor."""
    has_earlier_logs: bool = False
    """Whether the folder held logs before the run."""
    has_failed: bool = False
    """Whether the recorder could not start in such a process, which has said why."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command; 128 + n if signal n ended it, as in shells."""
        return self.ending.exit_code

    @property
    def why_no_log(self) -> str:
        """Return the reason for which a run without a log has none, as a clause."""
        end = self.ending.text
        if self.has_failed:
            return "the recorder could not start, for the reason that was said above"
        if self.has_waited:
            return f"{end} before anything was compiled" if self.ending.code else self._why_nothing_compiled
        if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
            return "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps `import torch` from starting it"
        if self.ending.code:
            return f"{end} before it had imported torch, or stepscope is not installed for its Python"
        return "the program did not import torch, or stepscope is not installed for its Python"

    @property
    def _why_nothing_compiled(self) -> str:
        if os.environ.get("TORCH_COMPILE_DISABLE") == "1":
            return "TORCH_COMPILE_DISABLE=1 switches torch.compile off"
        if self.has_called_compile:
            return _UNCALLED
        if self.has_loaded_package:
            return _LOADED if self.printed_launches is None else _SILENT
        return "the program compiled nothing: no call of torch.compile was seen"


_UNCALLED = (
    "the program called torch.compile, but no code that it compiles. Methods of a compiled module other than forward,"
    " such as training_step, run the module's own code, and the method compile() of nn.Sequential and of other modules"
    " that torch.nn defines has no effect up to torch 2.13"
)
_SILENT = (
    "the program compiled nothing. It loaded a package of AOTInductor, which prints no launches; with"
    " AOTI_RUNTIME_CHECK_INPUTS=1 it checks its inputs"
)
_LOADED = (
    "the program compiled nothing. It loaded a package of AOTInductor, whose launches are recorded with --aoti launches"
    " if the package was compiled under `stepscope run --aoti launches` as well; with AOTI_RUNTIME_CHECK_INPUTS=1 the"
    " package checks its inputs"
)


def run(
    command: Sequence[str], config: TraceConfig, *, fresh_cache: bool = False, aoti: str | None = None
) -> RunResult:
    """Run `command` and record it; append how it ended to its log if it failed or the log has no end.

    With `fresh_cache` it compiles into an empty cache, which is removed afterwards unless the command failed. With
    `aoti` (``launches``, ``values``, ``save``) the packages and C++ wrappers that it compiles print at that level, and
    the output is converted to a log.

    Raises FileNotFoundError if the command does not exist, PermissionError if it cannot be run.
    """
    result = recorded(command, config, fresh_cache=fresh_cache, aoti=aoti)
    ending = result.ending
    with suppress(OSError):  # a full disk or a missing folder, which the command has reported itself
        own = [log for log in result.logs if process_end.pid_of(log) == ending.pid]
        without_end = [log for log in own if ending.code or not process_end.has_ended(log)]
        process_end.append(process_end.record_of(ending), without_end)
    return result


def recorded(
    command: Sequence[str],
    config: TraceConfig,
    *,
    fresh_cache: bool = False,
    more: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    keep_tail: bool = False,
    aoti: str | None = None,
) -> RunResult:
    """Run `command` to its end with `more` in its environment. Raises like `run`."""
    before = set(config.directory.glob("*.log"))
    printed = LiveCapture(config, aoti, command) if aoti else None
    asked = {**printer_environment(aoti, config.kernels), **line_buffered()} if aoti else {}
    environment = {**os.environ, **to_environment(config), **asked, **(more or {})}
    cache = FreshCache() if fresh_cache else None
    environment |= cache.environment if cache is not None else {}
    with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
        waits = Path(folder, "waits")
        environment[WAITS] = str(waits)
        try:
            ending = watch(argv(command), environment, timeout_s=timeout_s, keep_tail=keep_tail, output=printed)
        except BaseException:
            if cache is not None:
                cache.remove()
            raise
        has_waited = waits.exists()
        told = waits.read_text() if has_waited else ""
    cached = cache.end(failed=ending.exit_code != 0) if cache is not None else None
    if printed:
        printed.finish(ending.code, timed_out=ending.timed_out)
    logs = set(config.directory.glob("*.log")) - before
    in_order = sorted(logs, key=lambda path: path.stat().st_mtime)
    return RunResult(
        ending,
        in_order,
        printed.launches if printed else None,
        cached,
        has_waited,
        CALLED in told,
        LOADED in told,
        bool(before),
        FAILED in told,
    )


def argv(command: Sequence[str]) -> list[str]:
    """Return the command to run; a script, ``-m`` and ``-c`` are run by this Python."""
    first = command[0]
    if first.endswith(".py") or first == "-m" or first == "-c":
        return [sys.executable, *command]
    if first in ("python", "python3") and shutil.which(first) is None:
        return [sys.executable, *command[1:]]
    return list(command)
