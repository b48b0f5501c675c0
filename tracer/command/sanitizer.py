"""Reads the report of compute-sanitizer's tool memcheck (CUDA 11 to 13)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from stepscope.tracer.schema.process_ends import ToolError

TOOL = ("compute-sanitizer", "--tool", "memcheck")
_LEADER = "========="
_AT = re.compile(r"at (?P<kernel>\S.*)\+0x[0-9a-f]+(?: in (?P<file>.+):(?P<line>\d+))?$")
_OLDER_AT = re.compile(r"at 0x[0-9a-f]+ in (?:(?P<file>[^()<>]+?):(?P<line>\d+):)?(?P<kernel>\S.*)$")
_BY = re.compile(r"by thread (\(\d+,\d+,\d+\)) in block (\(\d+,\d+,\d+\))")
_ABOUT_ITSELF = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "Program hit", "Target application", "Error: process")
MOST_BYTES = 16 << 20
MOST_ERRORS = 32


def command(report: Path) -> list[str]:
    """Return the arguments before a command that make the tool write `report`, without errors of API calls."""
    return [*TOOL, "--report-api-errors", "no", "--log-file", str(report)]


def read_report(report: Path) -> list[ToolError]:
    """Return the distinct errors in the order of their first occurrence; empty if the report does not exist."""
    try:
        with report.open("rb") as file:
            return errors_in(file.read(MOST_BYTES).decode(errors="replace"))
    except OSError:
        return []


def errors_in(text: str) -> list[ToolError]:
    """Return the distinct errors in the text of a report, at most `MOST_ERRORS`."""
    found: dict[tuple[str, str | None, str | None, int | None], list[ToolError]] = {}
    for headline, details in _blocks(text):
        error = _error(headline, details)
        found.setdefault((error.text, error.kernel, error.file, error.line), []).append(error)
    return [replace(alike[0], times=len(alike)) for alike in list(found.values())[:MOST_ERRORS]]


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """Return (headline, the lines below it that are not stack frames) for each error."""
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
