"""Describes exceptions that leave calls of generated code, which the program may catch."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from traceback import walk_tb
from types import FrameType

from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.process import exception_text, type_name
from stepscope.tracer.runtime.program_frames import is_compiled
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.process_ends import Frame
from stepscope.tracer.schema.raised_calls import RaisedCall

MOST = 32
"""Number of exceptions of a log that are described."""
MOST_FRAMES, MOST_TEXT = 16, 4_000
_OURS = __file__.partition(f"{os.sep}runtime{os.sep}")[0]
_PER_LAUNCH = 3
CALL = "_ss_call"
"""Name of the variable of instrumented functions that holds their call (`code_swap.FRAME`)."""


class RaisedCalls:
    """Writes a record of each exception, once for all the nested calls that it leaves."""

    def __init__(self, write: Callable[[RaisedCall | Skipped], None]) -> None:
        self._write = write
        self._count = 0

    def add(self, call: GraphCall, error: BaseException) -> None:
        """Record that `error` leaves `call`; must be called from the hook that the frame of the call calls."""
        if not isinstance(error, Exception) or _has_left_another_call(error):
            return
        self._count += 1
        if self._count <= MOST:
            self._write(_record(call, error))
        elif self._count == MOST + 1:
            self._write(Skipped("exceptions of compiled calls", f"the first {MOST} of a log are recorded"))


def _has_left_another_call(error: Exception) -> bool:
    """Return whether `error` comes from a call that is nested in the one it leaves; that call has recorded it."""
    inner = error.__traceback__.tb_next if error.__traceback__ is not None else None
    return any(CALL in frame.f_code.co_varnames for frame, _ in walk_tb(inner))


def _record(call: GraphCall, error: Exception) -> RaisedCall:
    begun = len(call.rows)
    launches, open_items = divmod(begun, _PER_LAUNCH)
    site = call.rows[-open_items or -_PER_LAUNCH] if begun else None
    trace = error.__traceback__
    line = trace.tb_lineno if trace is not None else None
    path = trace.tb_frame.f_code.co_filename if trace is not None else ""
    statement = linecache.getline(path, line).strip() if line is not None else ""
    return RaisedCall(
        graph=call.graph,
        call=call.number,
        step=call.step,
        site=site,
        returned=launches > 0 and not open_items,
        line=line,
        statement=statement or None,
        type=type_name(error),
        text=exception_text(error)[:MOST_TEXT],
        frames=_program_frames(trace.tb_frame if trace is not None else None),
    )


def _program_frames(frame: FrameType | None) -> list[Frame]:
    """Return the frames of the program around a call, outermost first."""
    torch = os.path.dirname(sys.modules["torch"].__file__ or "") + os.sep
    found: list[Frame] = []
    frame = frame.f_back if frame is not None else None
    while frame is not None and len(found) < MOST_FRAMES:
        code = frame.f_code
        if not is_compiled(code) and not code.co_filename.startswith((torch, _OURS, "<frozen")):
            text = linecache.getline(code.co_filename, frame.f_lineno).strip()
            found.append(Frame(code.co_filename, frame.f_lineno, code.co_name, text))
        frame = frame.f_back
    return found[::-1]
