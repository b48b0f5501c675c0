"""Recognises exceptions that a signal handler of the program raises while a hook of the recorder runs."""

from __future__ import annotations

import signal
import traceback
from types import FunctionType, MethodType


def is_from_handler(error: BaseException) -> bool:
    """Return whether an installed signal handler has raised `error`; then it is the program's, as for a time limit."""
    codes = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        function = handler.__func__ if isinstance(handler, MethodType) else handler
        if isinstance(function, FunctionType) and function.__code__ in codes:
            return True
    return False
