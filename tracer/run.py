"""`stepscope run`: a command with recording switched on through its environment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracer.config import TraceConfig, to_environment

FORWARDED = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass(frozen=True)
class RunResult:
    exit_code: int
    """The command's own; 128 + n when signal n ended it, as shells say it."""
    logs: list[Path]
    """Logs that this run wrote, oldest first."""


def run(command: Sequence[str], config: TraceConfig, *, fresh_cache: bool = False) -> RunResult:
    """Run `command` and record it. With `fresh_cache` it compiles into an empty cache that is removed afterwards.

    Raises FileNotFoundError when the command does not exist, PermissionError when it cannot be run.
    """
    before = set(config.directory.glob("*.log"))
    environment = {**os.environ, **to_environment(config)}
    cache = tempfile.mkdtemp(prefix="stepscope-cache-") if fresh_cache else None
    if cache is not None:
        environment |= {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": str(Path(cache, "triton"))}
    try:
        exit_code = _wait(argv(command), environment)
    finally:
        if cache is not None:
            shutil.rmtree(cache, ignore_errors=True)
    logs = set(config.directory.glob("*.log")) - before
    return RunResult(exit_code, sorted(logs, key=lambda path: path.stat().st_mtime))


def argv(command: Sequence[str]) -> list[str]:
    """`command` as it is run: a script or ``-m module`` gets this Python in front."""
    first = command[0]
    if first.endswith(".py") or first == "-m" or first == "-c":
        return [sys.executable, *command]
    if first in ("python", "python3") and shutil.which(first) is None:
        return [sys.executable, *command[1:]]
    return list(command)


def _wait(command: list[str], environment: Mapping[str, str]) -> int:
    child = subprocess.Popen(command, env=environment)
    restore = {number: signal.signal(number, lambda n, _: child.send_signal(n)) for number in FORWARDED}
    # Ctrl-C reaches the child too; it decides what to do with it.
    restore[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = child.wait()
    finally:
        for number, handler in restore.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code
