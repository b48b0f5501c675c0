"""Python programs that tests start, most of them in children of a process that has imported torch (`python_server`)."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[1]
READ_AT_IMPORT = ("TORCH", "PYTORCH", "PYTHON", "OMP_", "MKL_", "LD_", "CUDA", "TRITON", "INDUCTOR", "AOT_", "NCCL")
"""Beginnings of the names of variables that Python and torch read when they start."""
HAS_GPU = Path("/dev/nvidiactl").exists()
"""Whether a process may have asked for CUDA devices, which its forked children cannot use then."""
READ_LATER = ("TORCHINDUCTOR_CACHE_DIR", "TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCHELASTIC_", "TORCH_NCCL_")


def run(
    command: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    timeout: float = PATIENCE_S,
    check: bool = False,
    alone: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `subprocess.run` does with its output captured as text.

    A command of this interpreter runs in a forked child, unless it has options of the interpreter or is to be `alone`,
    which programs need whose exceptions come up to the outermost frame. Raises CalledProcessError with `check` if it
    fails, TimeoutExpired after `timeout` seconds."""
    words = [str(word) for word in command]
    environment = dict(os.environ if env is None else env)
    if not alone and can_fork(words, environment, environment) and _has_server(environment):
        done = _forked(words, environment, cwd, timeout)
    else:
        done = subprocess.run(words, env=environment, cwd=cwd, timeout=timeout, capture_output=True, text=True)
    if check:
        done.check_returncode()
    return done


def can_fork(command: Sequence[str], environment: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether `command` is Python without options but `-u`, and torch would be imported alike with `other`."""
    what = next((word for word in command[1:] if word != "-u"), "-")
    is_plain = what in ("-c", "-m") or not what.startswith("-")
    can = sys.platform == "linux" and not HAS_GPU and command[0] == sys.executable and is_plain
    return can and read_at_import(environment) == read_at_import(other)


def read_at_import(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (name, value)
        for name, value in environment.items()
        if name.startswith(READ_AT_IMPORT) and not name.startswith(READ_LATER)
    )


class Server:
    """A process of `tests.python_server`, which runs one command at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        own = {name: value for name, value in environment.items() if not name.startswith("STEPSCOPE_")}
        own["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.python_server", str(theirs.fileno())],
                cwd=ROOT, env=own, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        with ours:
            self._lines = ours.makefile("rw")

    def ask(self, request: dict[str, Any]) -> int | None:
        """The return code of a command, or None if it took too long."""
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        code: int | None = json.loads(self._lines.readline())
        return code

    def end(self) -> None:
        """End the process, which is idle."""
        self._lines.close()
        self._process.kill()
        self._process.wait()


MOST_ENVIRONMENTS = 2
"""A server takes the memory of torch; for other environments it would not pay."""
_IDLE: defaultdict[frozenset[tuple[str, str]], list[Server]] = defaultdict(list)
"""Servers by the variables that their interpreter and torch have read. They end when this process does."""


_OWNER = os.getpid()


@atexit.register
def _end_servers() -> None:
    while os.getpid() == _OWNER and _IDLE:  # a child that a test forks has none
        _, servers = _IDLE.popitem()
        for server in servers:
            server.end()


def _has_server(environment: Mapping[str, str]) -> bool:
    return len(_IDLE) < MOST_ENVIRONMENTS or read_at_import(environment) in _IDLE


def _forked(
    command: list[str], environment: dict[str, str], cwd: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    idle = _IDLE[read_at_import(environment)]
    try:
        server = idle.pop()
    except IndexError:
        server = Server(environment)
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as errors:
        code = server.ask(
            {
                "command": command[1:],
                "environment": environment,
                "folder": str(cwd),
                "stdout": out.name,
                "stderr": errors.name,
                "timeout_s": timeout,
            }
        )
        idle.append(server)
        if code is None:
            raise subprocess.TimeoutExpired(command, timeout, out.read(), errors.read())
        return subprocess.CompletedProcess(command, code, out.read(), errors.read())
