"""Finds the program's own frames among those of PyTorch, of installed packages and of compiled code."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from functools import cache
from types import CodeType, FrameType

_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3[.\d]*[/\\]|^<frozen ")
_SCRIPTS = sysconfig.get_path("scripts")
_OURS = __file__.partition(f"{os.sep}runtime{os.sep}")[0] + os.sep
_COMPILED = ("__compiled_fn", "__resume_at")
"""Beginnings of the names by which code of Dynamo calls its graphs, and what follows a graph break."""


def program_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame that is not of an installed package, such as a progress bar, or None.

    Under Python 3.11, what called a frame may be no frame while Dynamo runs the code that it has made of it."""
    while frame is not None and hasattr(frame, "f_code"):
        if not _is_installed(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def is_script(frame: FrameType) -> bool:
    """Return whether the frame is that of an installed command."""
    return os.path.dirname(frame.f_code.co_filename) == _SCRIPTS


def calling_frame(frame: FrameType) -> FrameType | None:
    """Return the frame of the program that calls the generated code which runs in `frame`, or None."""
    generated = frame.f_code.co_filename
    found = program_frame(frame.f_back)
    while found is not None and (is_ours(found.f_code.co_filename) or found.f_code.co_filename == generated
                                 or is_compiled(found.f_code)):  # fmt: skip
        found = program_frame(found.f_back)
    return found if found is not None and not is_script(found) else None


def calling_place() -> tuple[str, int] | tuple[None, None]:
    """Return the file and the line of the program that calls the recorder, or None for both."""
    frame = calling_frame(sys._getframe(1))
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else (None, None)


def is_compiled(code: CodeType) -> bool:
    """Return whether Dynamo has made this code, whose line numbers mean nothing."""
    return any(name.startswith(_COMPILED) for name in code.co_names)


@cache
def _is_installed(file: str) -> bool:
    torch = sys.modules.get("torch")
    is_torchs = torch is not None and file.startswith(os.path.dirname(torch.__file__ or "-") + os.sep)
    return is_torchs or _INSTALLED.search(file) is not None


@cache
def is_ours(file: str) -> bool:
    """Return whether a file belongs to the recorder."""
    return file.startswith(_OURS)
