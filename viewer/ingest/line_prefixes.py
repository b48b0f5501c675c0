"""Removes prefixes that a launcher or a cluster adds to each line of a log, such as ``[rank0]:`` or a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_RECORD = re.compile(rb"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d{6,9} +\d+ [^:\r\n]*:\d+\] (?:\[[^\]]*\] )?\{")
_VARYING = re.compile(rb"(\d+| +)")
_LONGEST = 200
_FIRST_BYTES, _PIECE_BYTES = 1 << 12, 1 << 20


def prefix_of(path: Path) -> re.Pattern[bytes] | None:
    """Return the pattern of the prefix of a file's lines, numbers varying; None without a prefix or a record."""
    size = _FIRST_BYTES
    with path.open("rb") as file:
        while piece := file.read(size):
            before = before_record(piece + file.readline())
            if before is not None:
                return _pattern(before) if before else None
            size = _PIECE_BYTES
    return None


def before_record(text: bytes) -> bytes | None:
    """Return the text before the first record of `text` in the same line, or None if there is no record."""
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        found = _RECORD.search(line)
        if found is not None and found.start() <= _LONGEST and not line.startswith(b"\t"):
            return line[: found.start()]
    return None


def without(prefix: re.Pattern[bytes], lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines without the prefix, and unchanged the lines that do not have it."""
    for line in lines:
        found = prefix.match(line)
        yield line[found.end() :] if found else line


def launcher_problem(prefix: re.Pattern[bytes]) -> tuple[str, str]:
    """Return (reason, text) of the problem that reports the prefix."""
    return "launcher_prefix", f"lines begin like {prefix.pattern.decode('utf-8', 'replace')}"


def _pattern(prefix: bytes) -> re.Pattern[bytes]:
    parts = _VARYING.split(prefix)
    return re.compile(b"".join(_any(part) if place % 2 else re.escape(part) for place, part in enumerate(parts)))


def _any(part: bytes) -> bytes:
    return rb"\d+" if part[:1].isdigit() else rb" +"
