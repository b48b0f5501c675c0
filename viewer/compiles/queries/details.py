"""Queries details of one compile: shape symbols and specialisations, cache lookups, and failed guards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.viewer.compiles.rows import CompileDetail
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.torch_trace.torch_text import UserFrame, caller_of
from stepscope.viewer.records.queries.artifacts import header_json
from stepscope.viewer.records.queries.record_view import strings_of
from stepscope.viewer.records.rows import RecordRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MOST_SHAPES = 400
_SHAPES = {
    "create_symbol": ("symbol", "symbol", "val", "vr"),
    "create_unbacked_symbol": ("unbacked symbol", "symbol", "", "vr"),
    "symbolic_shape_specialization": ("specialised", "symbol", "value", ""),
    "guard_added_fast": ("guard", "expr", "", ""),
    "guard_added": ("guard", "expr", "", ""),
    "guard_on_data_dependent_error": ("data-dependent", "expr", "", ""),
    "propagate_real_tensors": ("real value", "expr", "result", ""),
}
"""Kind of each event, and the names of its fields for subject, value and value range."""
_FAILED = re.compile(r"((?:r\d+:)?!?\d+(?:/\d+)+): (.*)", re.DOTALL)
_COMMENT = re.compile(r"\s{2,}# ")
_OF_TENSOR = re.compile(r"tensor '(.+?)' ")


@dataclass(frozen=True)
class ShapeFact:
    """A symbol, specialisation or guard of a compile's symbolic shapes."""

    kind: str
    subject: str
    """Symbol, or expression of a guard."""
    source: str
    """Expression that the symbol represents, such as ``L['x'].size()[0]``."""
    value: str
    value_range: str
    reason: str
    where: SourceLine | None
    record: int


@dataclass(frozen=True)
class CompileLookup:
    record: int
    cache: str
    state: str
    detail: str | None
    key: str | None
    reason: str | None
    time_saved_ns: int | None
    components: int | None


@dataclass(frozen=True)
class GuardFailure:
    """A guard that failed at a later call and caused a recompile."""

    of: str
    """Compile id that the guard belongs to."""
    by: str
    """Compile id of the recompile that the failure caused."""
    code: str
    text: str
    """PyTorch's full description of the failure."""

    def is_at(self, guard: str) -> bool:
        """Return whether `guard`, the code of a leaf of the guard tree, is the one that failed."""
        if self.code == guard:
            return True
        tensor = _OF_TENSOR.match(self.code)
        names = (tensor[1], f"L['{tensor[1]}']") if tensor else ()
        return any(guard.startswith(f"check_tensor({name},") for name in names)


def shape_facts(trace: Trace, rows: Sequence[RecordRow]) -> tuple[list[ShapeFact], int]:
    """Return at most `MOST_SHAPES` symbols, specialisations and shape guards of `rows`, and their total number."""
    wanted = [row for row in rows if row.event in _SHAPES]
    shown = wanted[:MOST_SHAPES]
    headers = trace.headers([row.record for row in shown])
    values = [(row, header_json(headers[row.record]).get(row.event)) for row in shown]
    found = [(row, value) for row, value in values if isinstance(value, dict)]
    names = _file_names(trace, shown[0].log, [value for _, value in found]) if found else {}
    return [_shape(row, value, names) for row, value in found], len(wanted)


def written_by(trace: Trace, log: int, record: int) -> SourceLine | None:
    """Return the line of the program that called torch when it wrote a record, if the record has a stack."""
    value = header_json(trace.header(record))
    return _caller(value, _file_names(trace, log, [value]))


def _file_names(trace: Trace, log: int, values: Sequence[dict[str, Any]]) -> Mapping[int, str]:
    """Return the names of the files in stacks, by number."""
    files = {frame["filename"] for value in values for frame in _frames(value) if type(frame.get("filename")) is int}
    return strings_of(trace, log, {file for file in files if 0 <= file < 1 << 62})


def _frames(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the frames of the user stack, else of the full stack, outermost first."""
    stack = value.get("user_stack") or value.get("stack")
    return [frame for frame in (stack if isinstance(stack, list) else ()) if isinstance(frame, dict)]


def _shape(row: RecordRow, value: dict[str, Any], names: Mapping[int, str]) -> ShapeFact:
    kind, subject, held, value_range = _SHAPES[row.event]

    def text(name: str) -> str:
        item = value.get(name)
        return ", ".join(map(str, item)) if isinstance(item, list) else "" if item is None else str(item)

    source = text("source") or text("sources")
    where = _caller(value, names)
    return ShapeFact(kind, text(subject), source, text(held), text(value_range), text("reason"), where, row.record)


def _caller(value: dict[str, Any], names: Mapping[int, str]) -> SourceLine | None:
    caller = caller_of([_frame(frame, names) for frame in _frames(value)])
    return SourceLine(caller.file, caller.line, caller.function, caller.code) if caller else None


def _frame(frame: dict[str, Any], names: Mapping[int, str]) -> UserFrame:
    file, line = frame.get("filename"), frame.get("line")
    name = names.get(file, f"<file {file}>") if isinstance(file, int) else str(file)
    return UserFrame(
        name, line if isinstance(line, int) else 0, str(frame.get("name") or ""), str(frame.get("loc") or "")
    )


def cache_lookups(trace: Trace, log: int, compile_id: str) -> list[CompileLookup]:
    """Return the cache lookups of one compile, in log order."""
    return sql.records(
        CompileLookup,
        trace,
        "SELECT record, cache, state, detail, key, reason, time_saved_ns, components FROM cache_lookups"
        " WHERE log = ? AND compile_id = ? ORDER BY record",
        [log, compile_id],
    )


def failed_guards(trace: Trace, detail: CompileDetail) -> list[GuardFailure]:
    """Return the guards of this compile that failed later, and those of earlier compiles whose failure caused it."""
    here = detail.row.compile_id
    found = sql.rows(
        trace,
        "SELECT compile_id, text FROM compile_events"
        " WHERE log = ? AND kind = 'recompile' AND starts_with(compile_id, ?) ORDER BY record",
        [detail.row.log, here.rsplit("/", 1)[0] + "/"],
    )
    return [
        failed for compile_id, text in found for failed in _failures(compile_id, text) if here in (failed.of, failed.by)
    ]


def _failures(compile_id: str, text: str) -> Iterator[GuardFailure]:
    """Split `text` into reasons, each of which starts with a compile id and continues on lines without one."""
    parts: list[str] = []
    for line in text.split("\n"):
        if _FAILED.fullmatch(line) or not parts:
            parts.append(line)
        else:
            parts[-1] += f"\n{line}"
    for part in parts:
        named = _FAILED.fullmatch(part)
        if named:
            code = _COMMENT.split(named[2].split("\n", 1)[0], maxsplit=1)[0].strip()
            yield GuardFailure(named[1], compile_id, code, named[2])
