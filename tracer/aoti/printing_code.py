"""Looks up the generated code of printed launches (`CppCode`) in the logs of the processes that compiled.

The code shows what the launches compute and which numbers they get, which are not printed.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from stepscope.tracer.aoti.printed_launches import ModelRun
from stepscope.tracer.schema.constants import ARTIFACT_PREFIX
from stepscope.tracer.schema.graphs import Argument, CppCode, Graph, LaunchSite
from stepscope.tracer.schema.log_format import HEADER
from stepscope.tracer.schema.scalars import InputSize, Scalar
from stepscope.tracer.wrapper.expressions import SYMBOL

_NAME = f"{ARTIFACT_PREFIX}{CppCode.KIND}"
_SYMBOLS = re.compile(rf"\b(?:{SYMBOL.pattern})\b")
_MARK = f'"name":"{_NAME}"'.encode()


class PrintingCodes:
    """The code records in a folder's logs, which may grow meanwhile; each part of a log is read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._codes: dict[Path, list[CppCode]] = {}
        self._read: dict[Path, int] = {}

    def of(self, run: ModelRun) -> CppCode | None:
        """Return the code that prints the launches of `run` from the last log that has it, or None.

        Facts in which several fitting codes of that log differ are left out.
        """
        for path in self._in_order():
            try:
                self._read_on(path)
            except (OSError, ValueError):
                continue
            fitting = [code for code in self._codes.get(path, []) if fits(code, run)]
            if fitting:
                return agreed(fitting)
        return None

    def _in_order(self) -> list[Path]:
        """Return the logs, the last written one first."""
        found = []
        for path in self._folder.glob("*.log"):
            try:
                found.append((path.stat().st_mtime_ns, path))
            except OSError:  # it was removed
                continue
        return [path for _, path in sorted(found, reverse=True)]

    def _read_on(self, path: Path) -> None:
        with path.open("rb") as file:
            begin, size = self._read.get(path, 0), file.seek(0, 2)
            if begin >= size:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                codes, self._read[path] = _codes(data, begin)
            self._codes.setdefault(path, []).extend(codes)


def _codes(data: mmap.mmap, begin: int) -> tuple[list[CppCode], int]:
    """Return the records after `begin`, and where to continue: the last record may be incomplete yet."""
    codes: list[CppCode] = []
    while (found := data.find(_MARK, begin)) >= 0:
        start = data.rfind(b"\n", 0, found) + 1
        header_end = data.find(b"\n", found)
        payload_end = data.find(b"\n", header_end + 1) if header_end >= 0 else -1
        if payload_end < 0:
            return codes, start
        code = _decoded(data[header_end + 1 : payload_end].strip()) if HEADER.match(data[start:header_end]) else None
        codes += [code] if code is not None else []
        begin = payload_end
    return codes, max(begin, data.rfind(b"\n") + 1)


def _decoded(payload: bytes) -> CppCode | None:
    """Return the decoded record, or None if it is torn or of another version."""
    try:
        content = orjson.loads(payload)
        return CppCode([_site(one) for one in content["sites"]], [InputSize(**one) for one in content["sizes"]])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _site(one: dict[str, Any]) -> LaunchSite:
    arguments = [Argument(given["name"], given["role"], given["buffer"]) for given in one["arguments"]]
    return LaunchSite(**{**one, "arguments": arguments, "scalars": [Scalar(**given) for given in one["scalars"]]})


def fits(code: CppCode, run: ModelRun) -> bool:
    """Return whether the code prints the launches of `run`, the last of which may be cut off."""
    if len(code.sites) < len(run.launches):
        return False
    *whole, (last_site, last) = zip(code.sites, run.launches, strict=False)
    names = tuple(one.name for one in last_site.arguments)
    return (
        all(_is_site(site, launch.kernel, launch.arguments) for site, launch in whole)
        and last_site.kernel == last.kernel
        and names[: len(last.arguments)] == last.arguments
    )


def _is_site(site: LaunchSite, kernel: str, arguments: tuple[str, ...]) -> bool:
    return site.kernel == kernel and tuple(one.name for one in site.arguments) == arguments


def agreed(codes: list[CppCode]) -> CppCode:
    """Return the facts that are the same in all `codes`."""
    first, *others = codes
    sites = [_agreed([site, *(other.sites[place] for other in others)]) for place, site in enumerate(first.sites)]
    return CppCode(sites, [size for size in first.sizes if all(size in other.sizes for other in others)])


def _agreed(sites: list[LaunchSite]) -> LaunchSite:
    first = sites[0]
    return replace(
        first,
        source_nodes=first.source_nodes if all(one.source_nodes == first.source_nodes for one in sites) else [],
        aten=first.aten if all(one.aten == first.aten for one in sites) else [],
        scalars=first.scalars if all(one.scalars == first.scalars for one in sites) else [],
    )


def with_code(known: Graph, code: CppCode) -> Graph:
    """Return the graph of printed text with the facts of its code; printed numbers, which have values, are kept."""
    sites = [
        replace(site, source_nodes=one.source_nodes, aten=one.aten, scalars=site.scalars or one.scalars)
        for site, one in zip(known.sites, code.sites, strict=False)
    ]
    names = (name for site in sites for scalar in site.scalars for name in _SYMBOLS.findall(scalar.expression))
    return replace(known, sites=sites, symbols=list(dict.fromkeys((*known.symbols, *names))))
