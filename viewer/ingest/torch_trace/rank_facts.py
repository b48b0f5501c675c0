"""Reads the facts by which ranks are compared: digests of traced graphs and of tensor metadata, collectives, and the
order of execution.

A digest covers only what ranks of one program share. It leaves out device numbers, names of process groups, source
locations and estimated times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import md5
from pathlib import Path
from typing import Any

from stepscope.viewer.ingest.damage import Damage
from stepscope.viewer.ingest.lenient_json import dumps, loads, text
from stepscope.viewer.ingest.reader import LogRecord
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.torch_trace.event_kinds import EVENTS

_RANK_IN_NAME = re.compile(r"dedicated_log_torch_trace_rank_(\d{1,9})(?!\d)")
_SOURCE_PLACE = b"# File: "
_DEVICE_KINDS = (b"cuda", b"xpu", b"hpu", b"mtia", b"npu", b"privateuseone")
_C10D = b"c10d"
_GROUP = re.compile(rb"(torch\.ops\.\w*c10d\w*\.[^\n]*)'[^'\n]*'\)")
_STATEMENT = re.compile(
    r"^[ \t]+(?:"
    r"(?:(?P<result>\w+) = )?(?P<operator>torch\.ops\.\w*c10d\w*\.\w+\.\w+)\((?P<arguments>[^\n]*)\)"
    r"|assert_(?:size_stride|tensor_metadata)\((?P<checked>\w+), (?P<checked_size>\([^()]*\))"
    r"|assert_size_stride_grouped\((?P<group>\([^()]*\)), \((?P<group_sizes>(?:\([^()]*\),? ?)*)\)"
    r"|(?P<made>\w+) = empty_strided\w*\((?P<made_size>\([^()]*\)), \([^()]*\), (?:[^\n]*?)torch\.(?P<dtype>\w+)"
    r"|(?P<view>\w+) = reinterpret_tensor\((?P<viewed>\w+), (?P<view_size>\([^()]*\))"
    r"|(?P<new>\w+) = (?P<old>\w+)(?:;|$)"
    r")",
    re.MULTILINE,
)
_SIZE = re.compile(r"\([^()]*\)")
_INLINE_VIEW = re.compile(r"reinterpret_tensor\((\w+), (\([^()]*\))")
_QUOTED = re.compile(r"'([^']*)'")
_LITERAL = re.compile(r"(?:-?\d+(?:\.\d+)?|True|False|None)$")
_KERNELS_END = "async_compile.wait(globals())"
_LONGEST_CODE = 1 << 24
_MOST_COLLECTIVES = 20_000

Collective = list[str | None]
"""[operator, process group, size, dtype, other constants], or [operator] if no wrapper matches the schedule."""


def rank_in_name(path: Path) -> int | None:
    """Return the rank in the log's name, or None if it has none."""
    found = _RANK_IN_NAME.match(path.name)
    return int(found[1]) if found else None


class RankFacts:
    """Reads these records of one log into rows of `rank_facts`."""

    def __init__(self, log: int, rows: IndexRows, damage: Damage) -> None:
        self.log, self.rows, self.damage = log, rows, damage
        self._readers: Mapping[str, Callable[[LogRecord], None]] = {
            **{name: self._graph for name, kind in EVENTS.items() if kind.ranks_compare},
            "inductor_output_code": self._output_code,
            "inductor_collective_schedule": self._schedule,
            "inductor_runtime_and_tensor_meta": self._tensors,
            "graph_execution": self._execution,
        }
        self._wrappers: dict[str | None, tuple[int, list[Collective]]] = {}
        """Compile id -> the last wrapper with collectives, whose schedule may follow."""

    def reader_of(self, event: str, name: str | None) -> Callable[[LogRecord], None] | None:
        """Return what reads records with this event and name, or None; an invalid form is counted, never raised."""
        return self._readers.get((name or "") if event == "artifact" else event)

    def _output_code(self, record: LogRecord) -> None:
        """Keep the operators, sizes and groups of the collectives in a generated wrapper."""
        self._add_wrapper(record.compile_id)
        payload = record.payload or b""
        if _C10D in payload and len(payload) <= _LONGEST_CODE:
            found = collectives_of(payload.decode("utf-8", "replace"))
            if found:
                self._wrappers[record.compile_id] = (record.record, found)

    def finish(self) -> None:
        for compile_id in list(self._wrappers):
            self._add_wrapper(compile_id)

    def _add(
        self, record: int, compile_id: str | None, kind: str, stage: str | None, compared: bytes,
        items: object = None, estimated_ns: float | None = None,
    ) -> None:  # fmt: skip
        digest = md5(compared, usedforsecurity=False).hexdigest()[:16]
        listed = None if items is None else dumps(items)
        self.rows.add(
            "rank_facts",
            log=self.log,
            record=record,
            compile_id=compile_id,
            kind=kind,
            stage=stage,
            digest=digest,
            items=listed,
            estimated_ns=estimated_ns,
        )

    def _graph(self, record: LogRecord) -> None:
        if record.compile_id is not None and record.payload is not None:
            self._add(record.record, record.compile_id, "graph", record.event, comparable_graph(record.payload))

    def _add_wrapper(self, compile_id: str | None) -> None:
        """Add the collectives of a wrapper without a schedule, which a compile that was served from a cache lacks."""
        found = self._wrappers.pop(compile_id, None)
        if found is not None:
            self._add(found[0], compile_id, "collectives", "wrapper", dumps(found[1]).encode(), found[1])

    def _schedule(self, record: LogRecord) -> None:
        names = self._payload(record)
        if not isinstance(names, list):
            self._unreadable(record, "a schedule is a list of operators")
            return
        items: list[Collective] = [[text(name)] for name in names[:_MOST_COLLECTIVES]]
        wrapper = self._wrappers.pop(record.compile_id, None)
        if wrapper is not None and [item[0] for item in wrapper[1]] == [item[0] for item in items]:
            items = wrapper[1]
        self._add(record.record, record.compile_id, "collectives", "schedule", dumps(items).encode(), items)

    def _tensors(self, record: LogRecord) -> None:
        payload = self._payload(record)
        ops = payload.get("ops") if isinstance(payload, dict) else None
        if not isinstance(ops, list):
            self._unreadable(record, "tensor metadata has a list `ops`")
            return
        times = [op.get("estimated_runtime_ns") for op in ops if isinstance(op, dict)]
        known = [float(time) for time in times if isinstance(time, (int, float)) and not isinstance(time, bool)]
        compared = dumps([tensor_text(op) for op in ops]).encode()
        total = sum(known) if known else None
        self._add(record.record, record.compile_id, "tensors", None, compared, None, total)

    def _execution(self, record: LogRecord) -> None:
        payload = self._payload(record)
        order = payload.get("graph_execution_order") if isinstance(payload, dict) else None
        if isinstance(order, list):
            self._add(record.record, None, "execution", None, dumps(execution_order(order)).encode())
        else:
            self._unreadable(record, "an order of graphs has a list `graph_execution_order`")

    def _unreadable(self, record: LogRecord, rule: str) -> None:
        if record.sound:
            self.damage.add("broken_payload", f"{record.name}: {rule}", *record.place)

    def _payload(self, record: LogRecord) -> Any:
        try:
            return loads(record.payload or b"")
        except ValueError:
            return None


def comparable_graph(payload: bytes) -> bytes:
    """Return the text of a traced graph without the parts in which ranks of one program may differ."""
    if _SOURCE_PLACE in payload:
        first, *others = payload.split(_SOURCE_PLACE)
        payload = first + b"".join(other[max(0, other.find(b"\n")) :] for other in others)
    for kind in _DEVICE_KINDS:
        own = re.search(kind + rb":\d+", payload)  # the first is the device of this rank; others stay
        if own is not None:
            payload = re.sub(own[0] + rb"(?!\d)", kind, payload)
    return _GROUP.sub(rb"\1<group>)", payload) if _C10D in payload else payload


def tensor_text(op: object) -> str:
    """Return an operation and its outputs without times, like ``all_gather → float32[8, 4] stride [4, 1]``."""
    if not isinstance(op, dict):
        return "?"
    outputs = op.get("outputs")
    made = [_output_text(output) for output in outputs if isinstance(output, dict)] if isinstance(outputs, list) else []
    return f"{text(op.get('name')) or '?'} → {', '.join(made) or 'nothing'}"


def _output_text(output: dict[str, Any]) -> str:
    return f"{text(output.get('dtype')) or '?'}{_numbers(output.get('shape'))} stride {_numbers(output.get('stride'))}"


def _numbers(value: object) -> str:
    return dumps(value).replace(",", ", ") if isinstance(value, list) else "?"


def execution_order(order: list[Any]) -> list[str | None]:
    """Return the compile ids of the graphs in the order of their runs; None where the log has no id."""
    return [text(entry.get("compile_id")) if isinstance(entry, dict) else text(entry) for entry in order]


def collectives_of(code: str) -> list[Collective]:
    """Return the collectives that a generated wrapper launches, including waits, in the order of its text."""
    sizes: dict[str, tuple[str | None, str | None]] = {}
    found: list[Collective] = []
    for match in _STATEMENT.finditer(code, max(0, code.find(_KERNELS_END))):
        if match["operator"]:
            if len(found) < _MOST_COLLECTIVES:
                found.append(_collective(match["operator"], match["arguments"], sizes))
        elif match["checked"] or match["group"]:
            names = re.findall(r"\w+", match["checked"] or match["group"])
            for name, size in zip(names, _SIZE.findall(match["checked_size"] or match["group_sizes"]), strict=False):
                sizes[name] = (size, sizes.get(name, (None, None))[1])
        elif match["made"]:
            sizes[match["made"]] = (match["made_size"], match["dtype"])
        elif match["view"]:
            sizes[match["view"]] = (match["view_size"], sizes.get(match["viewed"], (None, None))[1])
        elif match["old"] in sizes:
            sizes[match["new"]] = sizes[match["old"]]
    return found


def _collective(operator: str, arguments: str, sizes: Mapping[str, tuple[str | None, str | None]]) -> Collective:
    quoted = _QUOTED.findall(arguments)
    group = quoted[-1] if quoted and "wait_tensor" not in operator else None
    inline = _INLINE_VIEW.findall(arguments)
    names = inline or [(name, None) for name in re.findall(r"\b[A-Za-z_]\w*\b", _QUOTED.sub("", arguments))]
    known = [
        (size or sizes[name][0], sizes.get(name, (None, None))[1]) for name, size in names if size or name in sizes
    ]
    size = ", ".join(size for size, _ in known if size) or None
    dtype = known[0][1] if known else None
    constants = [part for part in map(str.strip, arguments.split(",")) if _LITERAL.match(part)]
    return [operator, group, size, dtype, ", ".join([*quoted[:-1], *constants]) or None]
