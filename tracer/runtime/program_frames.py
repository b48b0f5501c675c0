"""Finds the program's own frames among those of PyTorch, of installed packages and of compiled code.

Frames of other threads are read in one call of C code, in which no thread runs Python: the garbage collector, which may
run code of the program, waits. In Python 3.11, what `f_back` gives for a frame that Dynamo has run and that has ended
in the meantime is no frame, or crashes the process.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, chain, islice, repeat
from operator import attrgetter, itemgetter
from types import CodeType, FrameType
from typing import Any, NamedTuple

_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3[.\d]*[/\\]|^<frozen ")
_SCRIPTS = sysconfig.get_path("scripts")
_OURS = __file__.partition(f"{os.sep}runtime{os.sep}")[0] + os.sep
_COMPILED = ("__compiled_fn", "__resume_at")
"""Beginnings of the names by which code of Dynamo calls its graphs, and what follows a graph break."""

_DEEPEST = 1_000
"""Number of frames of a thread that are read, which is the default of `sys.getrecursionlimit`."""
_STEP = attrgetter("f_code", "f_lineno", "f_lasti")


class Step(NamedTuple):
    """What a frame runs."""

    code: CodeType
    line: int | None
    instruction: int
    """Offset of the instruction in the code."""


def steps_of(thread: int) -> list[Step]:
    """Return what the frames of a thread run, innermost first; nothing if the thread has ended."""
    found: list[tuple[CodeType, int | None, int]] = []
    _collect(found, map(_STEP, _frames(thread)))
    return [Step(*one) for one in found]


def frames_of_threads() -> list[FrameType]:
    """Return the frames of all threads, without that of this function, which would keep itself alive. The caller must
    not read their `f_back`."""
    found: list[FrameType | None] = []
    for thread in sys._current_frames():
        _collect(found, _frames(thread))
    try:
        return [frame for frame in found if frame is not None and frame.f_code is not frames_of_threads.__code__]
    finally:
        found.clear()


def _collect(found: list[Any], frames: Iterator[Any]) -> None:
    """Add what is read of frames, up to the outermost one, which nothing has called."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        found.extend(frames)
    except (AttributeError, KeyError):
        pass
    finally:
        if was_enabled:
            gc.enable()


def _frames(thread: int) -> Iterator[FrameType]:
    """Return an iterator whose steps are C code: it looks at the thread in its first step."""
    innermost = map(itemgetter(thread), islice(iter(sys._current_frames, None), 1))
    return accumulate(chain(innermost, repeat("f_back", _DEEPEST)), getattr)


def program_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame that is not of an installed package, such as a progress bar, or None."""
    while frame is not None:
        if not is_installed(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def is_script(code: CodeType) -> bool:
    """Return whether the code is that of an installed command."""
    return os.path.dirname(code.co_filename) == _SCRIPTS


def calling_frame(frame: FrameType) -> FrameType | None:
    """Return the frame of the program that calls the generated code which runs in `frame`, or None."""
    generated = frame.f_code.co_filename
    found = program_frame(frame.f_back)
    while found is not None and (is_ours(found.f_code.co_filename) or found.f_code.co_filename == generated
                                 or is_compiled(found.f_code)):  # fmt: skip
        found = program_frame(found.f_back)
    return found if found is not None and not is_script(found.f_code) else None


def calling_place() -> tuple[str, int] | tuple[None, None]:
    """Return the file and the line of the program that calls the recorder, or None for both."""
    frame = calling_frame(sys._getframe(1))
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else (None, None)


def is_compiled(code: CodeType) -> bool:
    """Return whether Dynamo has made this code, whose line numbers mean nothing."""
    return any(name.startswith(_COMPILED) for name in code.co_names)


@cache
def is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package or to Python."""
    torch = sys.modules.get("torch")
    is_torchs = torch is not None and file.startswith(os.path.dirname(torch.__file__ or "-") + os.sep)
    return is_torchs or _INSTALLED.search(file) is not None


@cache
def is_ours(file: str) -> bool:
    """Return whether a file belongs to the recorder."""
    return file.startswith(_OURS)
