"""Runs Python programs in children of one process that has imported torch, which takes longer than most programs.

It has also imported stepscope and the modules that torch imports in its first compile, and has done what torch does
once in each process that compiles: `make_ready`. A child ends without taking its interpreter apart, which takes long
as well.

Reads requests from the socket whose descriptor is its argument, one JSON object per line: `command` (what follows the
interpreter: ``-c CODE``, ``-m MODULE`` or a file, and the arguments), `environment`, `folder`, `timeout_s`, and the
paths `stdout` and `stderr`. Answers each with a line: the child's return code, or null after `timeout_s`.

What a child starts with the same interpreter is forked as well, so `stepscope run` has a program that is imported, too.
The ranks that torchrun starts are forked from a process beside it: `Nursery`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import duckdb  # noqa: F401  # for programs that read logs
import sympy.physics.units  # type: ignore[import-untyped]  # noqa: F401  # Inductor simplifies sizes with it
import torch
import torch._dynamo
import torch._inductor.codegen.cpp
import torch._inductor.codegen.cpp_wrapper_cpu
import torch._inductor.compile_fx
import torch._inductor.cpu_vec_isa
import torch.distributed.tensor.experimental._func_map
import torch.export._trace
import torch.utils.cpp_extension
from torch._dynamo.backends.registry import list_backends
from torch._inductor.codecache import CppPythonBindingsCodeCache, torch_key
from torch._inductor.codegen.common import init_backend_registration
from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad

import stepscope.tracer.recorder
import stepscope.viewer.cli.reading
import stepscope.viewer.cli.recording
import stepscope.viewer.overview.summary  # noqa: F401
from tests.python_processes import can_fork

_ENVIRONMENT = dict(os.environ)
_EXIT = os._exit
"""Not what a recorder has put in its place."""
LAUNCHER = ["-m", "torch.distributed.run"]
_SET_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of sys/prctl.h."""


class ForkingPopen(subprocess.Popen[Any]):
    """A `Popen` whose child is forked from this process if it would run the same interpreter.

    A child that is to have another user, mask or process group is not; one that is to have a session of its own, as
    torchrun's ranks, is forked by `nursery`, because torchrun has threads, which may hold locks."""

    nursery: Nursery | None = None

    def _execute_child(self, args: Any, executable: Any, *rest: Any) -> None:
        preexec_fn, _, _, cwd, env, _, _, shell, *pipes = rest[:14]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = pipes
        _, gid, gids, uid, umask, has_session, *group = rest[14:]
        is_special = any(value not in (None, False, -1) for value in (gid, gids, uid, umask, *group))
        is_special = is_special or (has_session and self.nursery is None)
        environment = dict(os.environ if env is None else env)
        is_plain = not (executable or preexec_fn or shell or isinstance(args, str) or is_special)
        if not is_plain or not can_fork(args, environment, _ENVIRONMENT):
            super()._execute_child(args, executable, *rest)  # type: ignore[misc]
            return
        if has_session:
            assert self.nursery is not None
            self.pid = self.nursery.bear(args[1:], environment, cwd, (p2cread, c2pwrite, errwrite))
            self._child_created = True
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
            return
        self.pid = fork()
        if self.pid == 0:
            for ours in {p2cwrite, c2pread, errread} - {-1}:
                os.close(ours)
            forget_handlers()
            become(args[1:], environment, cwd, (p2cread, c2pwrite, errwrite))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class Nursery:
    """A process without threads, which forks the programs that a launcher of ranks starts in sessions of their own.

    It is started before the launcher's first statement. A program's parent ends at once, so that the launcher adopts
    the program and can wait for it."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        launcher = os.getpid()
        self._nursery, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            if fork() == 0:
                self._nursery.close()
                _bear_asked(theirs, launcher)

    def bear(
        self, command: Sequence[str], environment: Mapping[str, str], folder: str | None, streams: Sequence[int]
    ) -> int:
        """Start `python COMMAND` with the standard streams, of which -1 are the launcher's; return its process id."""
        sys.stdout.flush()
        sys.stderr.flush()
        request = json.dumps([[str(word) for word in command], dict(environment), folder or os.getcwd()])
        descriptors = [number if stream == -1 else stream for number, stream in enumerate(streams)]
        socket.send_fds(self._nursery, [request.encode()], descriptors)
        pid = int(self._nursery.recv(64))
        assert self._nursery.recv(64) == b"adopted"
        return pid


def _bear_asked(asked: socket.socket, launcher: int) -> NoReturn:
    """Fork a program for each request, until the launcher has ended."""
    while True:
        request, streams, *_ = socket.recv_fds(asked, 1 << 20, 3)
        if not request:
            _EXIT(0)
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                asked.close()
                while os.getppid() != launcher:
                    time.sleep(0.001)
                os.setsid()
                forget_handlers()
                command, environment, folder = json.loads(request)
                become(command, environment, folder, streams)
            asked.send(str(pid).encode())
            _EXIT(0)
        os.waitpid(between, 0)
        for stream in streams:
            os.close(stream)
        asked.send(b"adopted")


def fork() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fork()


def forget_handlers() -> None:
    """Handle signals as a new interpreter does, not as the program that forked this process."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def become(
    command: Sequence[str], environment: Mapping[str, str], folder: str | None, streams: Sequence[int]
) -> NoReturn:
    """Be `python COMMAND` from its first statement to its exit. A standard stream that is -1 in `streams` stays."""
    for number, stream in enumerate(streams):
        if stream not in (-1, number):
            os.dup2(stream, number)
    # Not reconfigured: these objects know whether what they wrote to before can be sought in.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    if folder is not None:
        os.chdir(folder)
    subprocess.Popen = ForkingPopen  # type: ignore[misc]
    ForkingPopen.nursery = Nursery() if list(command[:2]) == LAUNCHER else None
    gc.set_threshold(*_THRESHOLD)
    code = 0
    try:
        if torch._is_device_backend_autoload_enabled():
            torch._import_device_backends()  # type: ignore[no-untyped-call]
        _execute([str(word) for word in command])
    except SystemExit as end:
        code = _exit_code(end.code)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        code = 1
    leave(code)


def leave(code: int) -> NoReturn:
    """End as the interpreter does, but leave its objects to the operating system."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # of a reader that has gone, or a stream that the program has closed
                stream.flush()
    finally:
        _EXIT(code & 0xFF)


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    sys.stderr.write(f"{code}\n")
    return 1


def _execute(command: list[str]) -> None:
    sys.orig_argv = [sys.executable, *command]
    while command[0] == "-u":
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        command = command[1:]
    what, *rest = command
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if what == "-c":
        sys.path[0], sys.argv = "", ["-c", *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
    elif what == "-m":
        sys.path[0], name = os.getcwd(), rest[0]
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        assert spec is not None, f"no module {name}"
        main.__spec__, main.__file__, main.__package__ = spec, spec.origin, spec.parent
        sys.argv = [str(spec.origin), *rest[1:]]
        code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    else:
        sys.path[0], sys.argv = str(Path(what).resolve().parent), [what, *rest]
        main.__file__ = what
        code = compile(Path(what).read_bytes(), what, "exec")
    exec(code, main.__dict__)


def _answer(request: dict[str, Any], connection: socket.socket) -> int | None:
    child = fork()
    if child == 0:
        connection.close()
        streams = [os.open(request[name], os.O_WRONLY | os.O_TRUNC | os.O_APPEND) for name in ("stdout", "stderr")]
        become(request["command"], request["environment"], request["folder"], (-1, *streams))
    with os.fdopen(os.pidfd_open(child)) as ended:
        in_time = bool(select.select([ended], [], [], request["timeout_s"])[0])
    if not in_time:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status) if in_time else None


def make_ready() -> None:
    """Read the patterns of Inductor's passes, ask the compiler for its version and for the vector instructions that it
    knows, and compile the header of kernels."""
    torch_key()
    init_backend_registration()
    list_backends()
    pre_grad.lazy_init()
    post_grad.lazy_init()
    with suppress(TypeError):  # older versions of torch read the same patterns for each device
        joint_graph.lazy_init(torch.device("cpu"))
    if "COMPILED" not in os.environ:  # then no test may compile
        return
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder):
        torch._inductor.cpu_vec_isa.pick_vec_isa()
        CppPythonBindingsCodeCache.load_pybinding([], 'extern "C" void kernel() {}')
        CppPythonBindingsCodeCache.cache_clear()


def main() -> int:
    make_ready()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rw") as lines:
        for line in lines:
            lines.write(json.dumps(_answer(json.loads(line), connection)) + "\n")
            lines.flush()
    return 0


_THRESHOLD = gc.get_threshold()

if __name__ == "__main__":
    sys.exit(main())
