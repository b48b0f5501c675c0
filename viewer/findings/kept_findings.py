"""Keeps the findings of a trace beside its index: to find them takes longer than everything else on the first page."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from stepscope import viewer
from stepscope.tracer import schema, wrapper
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.store.cache_folder import kept_file

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace

_CODE = (viewer, schema, wrapper)
"""Packages whose code decides what is found in an index."""


def kept(trace: Trace) -> list[Finding] | None:
    """Return the findings that this version of the code found in the index; None if they are not kept."""
    file = kept_file(trace.index)
    try:
        key, _, text = file.read_bytes().partition(b"\n") if file is not None else (b"", b"", b"")
        return _findings(text) if key == _key() else None
    except (OSError, ValueError, TypeError):
        return None


def keep(trace: Trace, findings: list[Finding]) -> None:
    """Keep the findings, unless JSON would change them, a process may have died since (its log stays as it was), or
    parts of the trace are missing now."""
    file = kept_file(trace.index)
    if file is None or trace.notices or any(run.complete is False for run in list_runs(trace)):
        return
    try:
        text = orjson.dumps(findings)
        if _findings(text) == findings:
            new = file.with_name(f"{file.name}-{os.getpid()}")
            new.write_bytes(_key() + b"\n" + text)
            new.replace(file)
    except (OSError, ValueError, TypeError):
        pass  # they are found again the next time


def _findings(text: bytes) -> list[Finding]:
    names = {field.name for field in fields(Finding)}
    found = []
    for row in orjson.loads(text):
        if row.keys() != names:
            raise ValueError("another version wrote these findings")
        source, links = row.pop("source"), [ProofLink(**link) for link in row.pop("links")]
        found.append(Finding(**row, source=None if source is None else SourceLine(**source), links=links))
    return found


@cache
def _key() -> bytes:
    digest = hashlib.sha256()
    for package in _CODE:
        for folder in package.__path__:
            for path, size, changed_ns in _modules(folder):
                digest.update(f"{path}\0{size}\0{changed_ns}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest().encode()


def _modules(folder: str) -> Iterator[tuple[str, int, int]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _modules(entry.path)
        elif Path(entry.name).suffix == ".py":
            stat = entry.stat()
            yield entry.path, stat.st_size, stat.st_mtime_ns
