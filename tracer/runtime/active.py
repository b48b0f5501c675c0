"""Keeps the one recorder that is attached to this process.

A recording that the environment started gives way to one that the program's code starts, and continues in another log
when that one has ended.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any, Protocol

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.runtime.calls import forget_parent_process
from stepscope.tracer.runtime.lifetimes import lifecycle_checks


class Recording(Protocol):
    """The part of a recorder that this module and the functions of the package use."""

    config: TraceConfig
    gives_way: bool

    def start(self) -> Any: ...
    def give_way(self, other: TraceConfig) -> None: ...
    def before_fork(self) -> None: ...
    def after_fork(self) -> None: ...
    def configure(self, config: TraceConfig) -> None: ...
    def step(self) -> None: ...
    def judging(self) -> AbstractContextManager[None]: ...
    def flush(self, wait: bool = False) -> None: ...


_lock = threading.RLock()  # a signal handler of the program may start a recording meanwhile
_active: Recording | None = None
_waiting: Recording | None = None


def current() -> Recording | None:
    """Return the attached recorder, or None."""
    return _active


def what_runs() -> str:
    """Describe why another recorder cannot attach now."""
    recorder = _active
    return f"{recorder.config.directory} is being recorded" if recorder else "another recording has just started"


def take(recorder: Recording) -> bool:
    """Return whether `recorder` may attach now; a recorder that gives way to it is stopped."""
    global _active, _waiting
    with _lock:
        before = _active
        if before is None:
            _active = recorder
        elif recorder.gives_way:
            _waiting = recorder
    if before is None or recorder.gives_way or not before.gives_way:
        return before is None
    before.give_way(recorder.config)
    with _lock:
        _waiting = before
        if _active is None:
            _active = recorder
        return _active is recorder


def release(recorder: Recording) -> bool:
    """Detach `recorder`; return whether it was the attached one."""
    global _active
    with _lock:
        was = _active is recorder
        if was:
            _active = None
        return was


def go_on() -> None:
    """Start the recorder that gave way or is waiting."""
    global _waiting
    with _lock:
        recorder, _waiting = _waiting, None
    if recorder is not None:
        recorder.start()


def _before_fork() -> None:
    if _active is not None:
        _active.before_fork()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    forget_parent_process()
    lifecycle_checks.forget()
    if _active is not None:
        _active.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
