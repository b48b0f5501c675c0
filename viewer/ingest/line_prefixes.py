"""Removes prefixes that a launcher or a cluster wrote before each line of a log, such as ``[rank0]:`` or a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_RECORD = re.compile(rb"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d{6,9} +\d+ [^:\r\n]*:\d+\] (?:\[[^\]]*\] )?\{")
_VARYING = re.compile(rb"(\d+| +)")
_LONGEST = 200
_FIRST_BYTES, _PIECE_BYTES = 1 << 12, 1 << 20


def prefix_of(path: Path) -> re.Pattern[bytes] | None:
    """What stands before the lines of a file, numbers in it being any number; None where its first record begins its
    line, or there is none."""
    size = _FIRST_BYTES
    with path.open("rb") as file:
        while piece := file.read(size):
            before = before_record(piece + file.readline())
            if before is not None:
                return _pattern(before) if before else None
            size = _PIECE_BYTES
    return None


def before_record(text: bytes) -> bytes | None:
    """What stands in its line before the first record of `text`; None where there is no record."""
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        found = _RECORD.search(line)
        if found is not None and found.start() <= _LONGEST and not line.startswith(b"\t"):
            return line[: found.start()]
    return None


def without(prefix: re.Pattern[bytes], lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, also those that have none."""
    for line in lines:
        found = prefix.match(line)
        yield line[found.end() :] if found else line


def launcher_problem(prefix: re.Pattern[bytes]) -> tuple[str, str]:
    """(reason, text) that tells of it."""
    return "launcher_prefix", f"lines begin like {prefix.pattern.decode('utf-8', 'replace')}"


def _pattern(prefix: bytes) -> re.Pattern[bytes]:
    parts = _VARYING.split(prefix)
    return re.compile(b"".join(_any(part) if place % 2 else re.escape(part) for place, part in enumerate(parts)))


def _any(part: bytes) -> bytes:
    return rb"\d+" if part[:1].isdigit() else rb" +"
