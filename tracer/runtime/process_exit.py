"""Ends the log before a process ends without running Python's exit functions.

This covers `os._exit(0)`, used by launchers, workers and forked servers; `os.exec…`, which replaces the program; and
the end of a child of `multiprocessing`, with the exception that left its function. At SIGTERM, which ends servers,
compiled code notes the signal in the launch ring; this module also notices when a program resets the signal to its
default handler, since many programs then raise it again. Every other end is reported as the death of the process.
"""

from __future__ import annotations

import functools
import os
import signal
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing import util as multiprocessing_util
from typing import Any, Literal

from stepscope.tracer.runtime.process import ending_child
from stepscope.tracer.schema.process_ends import UncaughtException

Reason = Literal["_exit", "exec"]
LONGEST_WAIT_S = 1.0
"""Maximum time to wait for a thread that is writing to the log."""
_FIRST = 1_000_000
"""Priority of a finalizer that runs before those of the program, which may raise others."""
_EXECS = ("execv", "execve")
"""Functions that all other forms of `os.exec…` call."""


class ProcessExit:
    """Replaces these functions while a recorder is attached.

    It calls `end` before the process ends, `stop` at the end of a child of `multiprocessing`, `given_back` when a
    signal has its default handler again, and `stays` if `end` has ended a log but the process continues.
    """

    def __init__(
        self,
        end: Callable[[Reason], bool],
        stop: Callable[[str], None],
        given_back: Callable[[], None],
        stays: Callable[[], None],
    ) -> None:
        self._end, self._stop, self._given_back, self._stays = end, stop, given_back, stays
        self._stand_ins: dict[tuple[Any, str], tuple[Callable[..., Any], Callable[..., Any]]] = {}
        """Replaced function and its replacement, by module and name."""
        self.exception: UncaughtException | None = None
        """The exception that ends this process, if it is a child of `multiprocessing`."""
        self._handled: BaseException | None = None
        """The exception that the parent was handling when it forked this process."""

    def attach(self) -> None:
        multiprocessing_util.register_after_fork(self, ProcessExit._in_child)
        if parent_process() is not None:
            self._in_child()
        self._stand_in("_exit", "_exit", lambda status: status == 0)
        for name in _EXECS:
            if hasattr(os, name):
                self._stand_in(name, "exec", _can_be_run)
        self._follow_signals()

    def detach(self) -> None:
        for (module, name), (function, ours) in self._stand_ins.items():
            if getattr(module, name) is ours:  # else other code has wrapped ours, which only passes calls on now
                setattr(module, name, function)
        self._stand_ins = {}

    def _stand_in(self, name: str, reason: Reason, is_well: Callable[..., bool]) -> None:
        function = getattr(os, name)

        @functools.wraps(function)
        def leave(*arguments: Any, **named: Any) -> Any:
            has_ended = False
            with suppress(Exception):
                if (os, name) in self._stand_ins and is_well(*arguments, **named):
                    has_ended = self._end(reason)
            try:
                return function(*arguments, **named)
            finally:  # it failed
                if has_ended:
                    with suppress(Exception):
                        self._stays()

        self._replace(os, name, leave)

    def _follow_signals(self) -> None:
        function = signal.signal

        @functools.wraps(function)
        def set_handler(*arguments: Any, **named: Any) -> Any:
            before = function(*arguments, **named)
            with suppress(Exception):
                if (signal, "signal") in self._stand_ins and signal.SIG_DFL in arguments:
                    self._given_back()
            return before

        self._replace(signal, "signal", set_handler)

    def _replace(self, module: Any, name: str, ours: Callable[..., Any]) -> None:
        ours.__module__ = module.__name__  # which is not that of `os._exit`: a program may pickle it by its name
        self._stand_ins[module, name] = getattr(module, name), ours
        setattr(module, name, ours)

    def _in_child(self) -> None:
        """End the log in a finalizer, since `multiprocessing` ends forked children by `os._exit`, which runs no atexit
        functions."""
        self._handled = sys.exc_info()[1]
        multiprocessing_util.Finalize(self, self._look_at_exception, exitpriority=_FIRST)
        multiprocessing_util.Finalize(self, self._stop, args=("exit",), exitpriority=0)

    def _look_at_exception(self) -> None:
        """Describe the exception now: Python forgets it before atexit functions run, and its frames keep tensors."""
        with suppress(Exception):
            error = sys.exc_info()[1]
            self.exception = ending_child(error) if error is not self._handled else None


def _can_be_run(path: Any, *_: Any, **__: Any) -> bool:
    """Return whether this process may execute the file `path`, or descriptor. May raise OSError."""
    if isinstance(path, int):
        return stat.S_ISREG(mode := os.stat(path).st_mode) and bool(mode & 0o111)
    return os.path.isfile(path) and os.access(path, os.X_OK)
