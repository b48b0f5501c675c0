"""Frames of tracebacks that stand in texts."""

from __future__ import annotations

import re

from stepscope.viewer.graphs.rows import SourceLine

_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)(?:\n {4,}([^\n]+))?', re.MULTILINE)


def traceback_frames(text: str) -> list[SourceLine]:
    """Frames of a Python traceback, outermost first."""
    found = _FRAME.findall(text)
    return [SourceLine(file, int(line), function, code) for file, line, function, code in found]


def user_frames(text: str) -> list[SourceLine]:
    """Of what Dynamo says about a break or an error: the program's own frames, outermost first."""
    _, mark, users = text.partition("\nfrom user code:")
    return traceback_frames((users if mark else text).split("Traceback (most recent call last)", 1)[0])
