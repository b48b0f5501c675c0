"""Finds the local variables of running functions by the identity of their values, without side effects.

Up to Python 3.12 reading `f_locals` fills a dict that stays on the frame and keeps the values alive. It is emptied
again at once; frames in which other code may use that dict (a debugger, `locals()`) are left out.
"""

from __future__ import annotations

import sys
from inspect import CO_OPTIMIZED
from pathlib import PurePath
from types import FrameType
from typing import Any

USES_LOCALS = {"locals", "vars", "dir", "eval", "exec"}
MOST_NAMES = 100_000


def locals_by_identity() -> tuple[dict[int, list[str]], set[int]]:
    """Return ``local variable h of train() at train.py:31`` by the `id` of the variable's value, for all threads.

    Also returns the `id` of every running frame, and of the values of the recorder's own variables.
    """
    words: dict[int, list[str]] = {}
    ours: set[int] = set()
    frames = list(sys._current_frames().values())
    try:
        while frames:
            frame = frames.pop()
            _read(frame, words, ours)
            if frame.f_back is not None and len(ours) < MOST_NAMES:
                frames.append(frame.f_back)
    finally:
        del frame, frames  # they include this function's own frame: a cycle that would keep all locals alive
    return words, ours


def _read(frame: FrameType, words: dict[int, list[str]], ours: set[int]) -> None:
    ours.add(id(frame))
    held = _held_by(frame)
    if str(frame.f_globals.get("__name__", "")).startswith("stepscope."):
        ours.update(held)
        return
    where = f"{frame.f_code.co_name}() at {PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"
    for identity, name in held.items():
        words.setdefault(identity, []).append(f"local variable {name} of {where}")


def _held_by(frame: FrameType) -> dict[int, str]:
    """Return a frame's local variables by the `id` of their values; empty if they cannot be read safely."""
    code = frame.f_code
    if not code.co_flags & CO_OPTIMIZED:  # its f_locals is its namespace
        return {}
    if sys.version_info >= (3, 13):
        return {id(value): name for name, value in frame.f_locals.items()}
    if _has_debugger(frame) or sys.gettrace() is not None or USES_LOCALS.intersection(code.co_names):
        return {}
    snapshot: dict[str, Any] = frame.f_locals
    held = {id(value): name for name, value in snapshot.items()}
    snapshot.clear()
    return held


def _has_debugger(frame: FrameType) -> bool:
    """Return whether a debugger traces `frame`; `lifecycle_checks` also sets `f_trace`."""
    return frame.f_trace is not None and not type(frame.f_trace).__module__.startswith("stepscope.")
