"""What compute-sanitizer's tool memcheck found, from the text that it writes (as of CUDA 11 to 13)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from stepscope.tracer.schema.records import ToolError

TOOL = ("compute-sanitizer", "--tool", "memcheck")
_LEADER = "========="
_AT = re.compile(r"at (?P<kernel>\S.*)\+0x[0-9a-f]+(?: in (?P<file>.+):(?P<line>\d+))?$")
_OLDER_AT = re.compile(r"at 0x[0-9a-f]+ in (?:(?P<file>[^()<>]+?):(?P<line>\d+):)?(?P<kernel>\S.*)$")
_BY = re.compile(r"by thread (\(\d+,\d+,\d+\)) in block (\(\d+,\d+,\d+\))")
_ABOUT_ITSELF = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "Program hit", "Target application", "Error: process")
MOST_BYTES = 16 << 20
MOST_ERRORS = 32


def command(report: Path) -> list[str]:
    """What stands before a command for the tool to write `report`. Errors of API calls are the program's business."""
    return [*TOOL, "--report-api-errors", "no", "--log-file", str(report)]


def read_report(report: Path) -> list[ToolError]:
    """The errors, those alike as one, in the order in which the first of each came. Empty: there is no such file."""
    try:
        with report.open("rb") as file:
            return errors_in(file.read(MOST_BYTES).decode(errors="replace"))
    except OSError:
        return []


def errors_in(text: str) -> list[ToolError]:
    """At most `MOST_ERRORS`."""
    found: dict[tuple[str, str | None, str | None, int | None], list[ToolError]] = {}
    for headline, details in _blocks(text):
        error = _error(headline, details)
        found.setdefault((error.text, error.kernel, error.file, error.line), []).append(error)
    return [replace(alike[0], times=len(alike)) for alike in list(found.values())[:MOST_ERRORS]]


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """(headline, the lines below it that are no frames of a stack)."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if not line.startswith(_LEADER):
            continue
        said = line[len(_LEADER) :]
        told = said.strip()
        if said.startswith("     "):
            if found and not told.startswith(("Saved host backtrace", "Host Frame:", "Device Frame:")):
                found[-1][1].append(told)
        elif told:
            found.append((told, []))
    return [block for block in found if not block[0].startswith(_ABOUT_ITSELF)]


def _error(headline: str, details: list[str]) -> ToolError:
    kernel = file = line = where = None
    rest = []
    for detail in details:
        at, by = _AT.match(detail) or _OLDER_AT.match(detail), _BY.match(detail)
        if at is not None and kernel is None:
            kernel, file = at["kernel"], at["file"]
            line = int(at["line"]) if at["line"] else None
        elif by is not None:
            where = f"thread {by[1]} in block {by[2]}"
        else:
            rest.append(detail)
    return ToolError(headline, kernel, file, line, where, rest)
