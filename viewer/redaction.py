"""What a report leaves out when it goes to strangers: places of files, source text, payloads, command lines."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from stepscope.viewer.formats import basename
from stepscope.viewer.queries.rows import SourceLine

T = TypeVar("T")

_DROPPED: dict[str, Any] = {
    "argv": [], "config": {}, "payload": None, "code_lines": [], "stack": [], "text": "", "said": [],
}  # fmt: skip
_PLACES = {"file", "path"}
"""Whole texts that are one path: these may hold spaces."""
_NAMES = {"page", "compile_id", "compile_ids", "graph_label"}
"""Have slashes and are no paths."""
_QUOTED = re.compile(r"""(["'])(?:~|[A-Za-z]:)?[/\\][^"'\n]*[/\\]([^"'/\\\n]*)\1""")
_PATH = re.compile(
    r"""(?<![\w!/\\])(?:[A-Za-z]{2,12}:(?=//)|~|\.{1,2}|[A-Za-z]:)?[/\\]+(?:[^\s/\\:'"<>|]+[/\\])+([^\s/\\:'"<>|]*)"""
)
_RELATIVE = re.compile(r"""(?<![\w.+!/-])[A-Za-z_.][\w.+-]*/(?:[\w.+-]+/)*([\w.+-]*\.[A-Za-z]\w*)""")
_QUOTED_CODE = re.compile(r"(?<![ \t])[ \t]+# .*")
"""Guards quote the line of source that made them behind a #."""


def scrub(text: str) -> str:
    """Every path in `text` cut down to its last part, without source that is quoted in it."""
    text = _QUOTED.sub(r"\1\2\1", _QUOTED_CODE.sub("", text))
    return _RELATIVE.sub(r"\1", _PATH.sub(r"\1", text))


def redact(value: T, key: str = "") -> T:
    """A copy of rows, lists or JSON without what could tell about the program's source or the machine."""
    result: Any = value
    if key in _DROPPED:
        result = _DROPPED[key]
    elif key == "metrics" and isinstance(value, dict):
        result = {name: number for name, number in value.items() if isinstance(number, int | float)}
    elif key == "code":
        result = None
    elif isinstance(value, str):
        if key not in _NAMES:
            result = basename(value) if key in _PLACES else scrub(value)
    elif isinstance(value, SourceLine):
        result = replace(value, file=basename(value.file), code="")
    elif is_dataclass(value) and not isinstance(value, type):
        result = replace(value, **{f.name: redact(getattr(value, f.name), f.name) for f in fields(value)})
    elif isinstance(value, dict):
        result = {name: redact(item, str(name)) for name, item in value.items()}
    elif isinstance(value, list | tuple):
        result = type(value)(redact(item, key) for item in value)
    return result  # type: ignore[no-any-return]
