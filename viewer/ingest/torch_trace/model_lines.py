"""Finds the lines of the model that launch sites compute, in the provenance record of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from stepscope.tracer.schema.graphs import ChangedLine, Provenance
from stepscope.tracer.schema.process_ends import Frame
from stepscope.viewer.ingest.torch_trace.torch_text import UserFrame

MOST_MODULES = 4


@dataclass(frozen=True)
class ModelLine:
    """A line of the model as a row of the index."""

    file: str
    line: int
    function: str
    code: str
    as_compiled: str | None = None
    """Description of the line when it was compiled, if the graph came from a cache and the line has changed since."""


Stacks = dict[int, list[list[ModelLine]]]


def model_lines(value: Provenance | None, sites: Iterable[int], caller: UserFrame | None) -> Stacks:
    """Return stacks by site. Sites without a known line have the line `caller`."""
    if value is None:
        return {}
    lines = _lines(value)
    stacks = {site.site: [[lines[i] for i in stack if i in lines] for stack in site.stacks] for site in value.sites}
    if caller is not None:
        modules: Mapping[int, list[str]] = {site.site: site.modules for site in value.sites}
        for number in sites:
            if not any(stacks.get(number, ())):
                stacks[number] = [[_called(caller, modules.get(number, []))]]
    return stacks


def _lines(value: Provenance) -> dict[int, ModelLine]:
    lines = {number: _line(frame) for number, frame in enumerate(value.frames)}
    for changed in value.changed:
        if changed.frame in lines:
            words = _as_compiled(changed, value.compiled_unix_ns)
            lines[changed.frame] = replace(lines[changed.frame], as_compiled=words)
    return lines


def _line(frame: Frame | UserFrame) -> ModelLine:
    return ModelLine(frame.file, frame.line, frame.function, frame.code)


def _as_compiled(changed: ChangedLine, unix_ns: int | None) -> str:
    when = "earlier" if unix_ns is None else f"on {_date(unix_ns)}"
    if changed.was is None:
        return f"as compiled {when}, since changed"
    was = changed.was
    return f"as compiled {when} it was {was.file}:{was.line} {was.code}, since changed"


def _date(unix_ns: int) -> str:
    try:
        return f"{datetime.fromtimestamp(unix_ns / 1e9, timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return "a date that cannot be"


def _called(caller: UserFrame, modules: list[str]) -> ModelLine:
    """Return the modules and the line that called them, for a model without known lines such as an `nn.Sequential`."""
    named = modules[:MOST_MODULES]
    if len(modules) > MOST_MODULES:
        named.append(f"{len(modules) - MOST_MODULES:,} more")
    if caller.code:
        named = [f"{', '.join([*named, 'called by'])}: {caller.code}"]
    return replace(_line(caller), code=", ".join(named))
