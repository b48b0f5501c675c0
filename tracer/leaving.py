"""The ways in which a program leaves without the end that Python gives a process: the log is ended before.

`os._exit(0)`, as launchers, workers and forked servers leave; `os.exec…`, which makes another program of the process;
the end of a child that `multiprocessing` forked. Whatever else ends a process without a word is told as its death.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import util as multiprocessing_util
from typing import Any, Literal

Reason = Literal["_exit", "exec"]
LONGEST_WAIT_S = 1.0
"""For a thread that is writing to the log."""
_EXECS = ("execv", "execve")
"""All other forms of `os.exec…` call these."""


class Leaving:
    """Stands in for the functions while a recorder is attached, and calls `end` before them."""

    def __init__(self, end: Callable[[Reason], None], stop: Callable[[str], None]) -> None:
        self._end, self._stop = end, stop
        self._stand_ins: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
        """By name: the function, and what stands in for it."""

    def attach(self) -> None:
        multiprocessing_util.register_after_fork(self, Leaving._in_forked_child)
        self._stand_in("_exit", "_exit", lambda status: status == 0)
        for name in _EXECS:
            if hasattr(os, name):
                self._stand_in(name, "exec", lambda path, *_: os.access(path, os.X_OK))

    def detach(self) -> None:
        for name, (function, ours) in self._stand_ins.items():
            if getattr(os, name) is ours:  # else somebody stands in for ours: it passes on from now on
                setattr(os, name, function)
        self._stand_ins = {}

    def _stand_in(self, name: str, reason: Reason, is_well: Callable[..., bool]) -> None:
        function = getattr(os, name)

        @functools.wraps(function)
        def leave(*arguments: Any, **named: Any) -> Any:
            with suppress(Exception):
                if name in self._stand_ins and is_well(*arguments, **named):
                    self._end(reason)
            return function(*arguments, **named)

        self._stand_ins[name] = function, leave
        setattr(os, name, leave)

    def _in_forked_child(self) -> None:
        """`multiprocessing` leaves by `os._exit`, without atexit, and lets finalizers run before."""
        multiprocessing_util.Finalize(self, self._stop, args=("exit",), exitpriority=0)
