"""`stepscope run`: a command with recording switched on through its environment."""

from __future__ import annotations

import os
import shutil
import sys
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


@dataclass(frozen=True)
class RunResult:
    ending: Ending
    logs: list[Path]
    """Logs that this run wrote, oldest first."""
    printed_launches: int | None = None
    """Launches that PyTorch's debug printer told of; None: it was not asked."""
    cache: CacheUse | None = None
    """None: it had no cache of its own."""

    @property
    def exit_code(self) -> int:
        """The command's own; 128 + n when signal n ended it, as shells say it."""
        return self.ending.exit_code


def run(
    command: Sequence[str], config: TraceConfig, *, fresh_cache: bool = False, aoti: str | None = None
) -> RunResult:
    """Run `command` and record it; how it ended is written behind its log, if it failed or did not end that itself.

    With `fresh_cache` it compiles into an empty cache, which is removed afterwards unless it failed. With `aoti`
    (``launches``, ``values``, ``save``) what it compiles into packages and C++ wrappers prints that much, and what is
    printed becomes a log.

    Raises FileNotFoundError when the command does not exist, PermissionError when it cannot be run.
    """
    result = recorded(command, config, fresh_cache=fresh_cache, aoti=aoti)
    ending = result.ending
    with suppress(OSError):  # a full disk, a folder that is gone: it said so itself
        own = [log for log in result.logs if process_end.pid_of(log) == ending.pid]
        untold = [log for log in own if ending.code or not process_end.has_ended(log)]
        process_end.append(process_end.record_of(ending), untold)
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
    try:
        ending = watch(argv(command), environment, timeout_s=timeout_s, keep_tail=keep_tail, output=printed)
    except BaseException:
        if cache is not None:
            cache.remove()
        raise
    cached = cache.end(failed=ending.exit_code != 0) if cache is not None else None
    if printed:
        printed.finish(ending.code, timed_out=ending.timed_out)
    logs = set(config.directory.glob("*.log")) - before
    in_order = sorted(logs, key=lambda path: path.stat().st_mtime)
    return RunResult(ending, in_order, printed.launches if printed else None, cached)


def argv(command: Sequence[str]) -> list[str]:
    """`command` as it is run: a script or ``-m module`` gets this Python in front."""
    first = command[0]
    if first.endswith(".py") or first == "-m" or first == "-c":
        return [sys.executable, *command]
    if first in ("python", "python3") and shutil.which(first) is None:
        return [sys.executable, *command[1:]]
    return list(command)
