"""Finds the frames of tracebacks in texts."""

from __future__ import annotations

import re

from stepscope.viewer.graphs.rows import SourceLine

_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)(?:\n {4,}([^\n]+))?', re.MULTILINE)


def traceback_frames(text: str) -> list[SourceLine]:
    """Return the frames of a Python traceback, outermost first."""
    found = _FRAME.findall(text)
    return [SourceLine(file, int(line), function, code) for file, line, function, code in found]


def user_frames(text: str) -> list[SourceLine]:
    """Return the program's own frames in Dynamo's text about a break or an error, outermost first."""
    _, mark, users = text.partition("\nfrom user code:")
    return traceback_frames((users if mark else text).split("Traceback (most recent call last)", 1)[0])
