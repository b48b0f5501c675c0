"""Names that the user's program gives to the inputs and outputs of a graph, as far as the log tells them.

Dynamo logs the expression that each input comes from, in the program's own words, and its graph with the inputs in
order. AOTAutograd numbers those inputs; the generated code uses AOTAutograd's names. A name that this chain does not
reach, or that it does not reach without doubt, stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from stepscope.tracer.schema.constants import OUTPUT_CODE
from stepscope.viewer.graphs.queries.aot_roles import input_name, output_name, position_of
from stepscope.viewer.graphs.queries.signatures import (
    Placeholder,
    code_inputs,
    code_results,
    may_be_same,
    placeholders,
    result_roles,
)
from stepscope.viewer.graphs.rows import ArgumentRow, InputKind, MemoryStatementRow, ProgramName, SiteRow
from stepscope.viewer.ingest.torch_trace.torch_text import is_wrapper
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

KEPT = 64
"""Number of graphs whose names an open trace keeps in memory."""
# A forked process calls graphs that its parent compiled, whose records are in the parent's log.
_GRAPH = """
    SELECT g.compile_id, g.phase, coalesce(g.output_code, (
               SELECT min(r.record) FROM records r WHERE r.log = g.log AND r.name = $2 || g.local_graph), (
               SELECT min(o.output_code) FROM graphs o WHERE o.wrapper_key = g.wrapper_key)) AS code,
           [g.log, (SELECT min(o.log) FROM graphs o WHERE o.wrapper_key = g.wrapper_key AND o.log <> g.log
                    AND o.compile_id = g.compile_id AND o.output_code IS NOT NULL)] AS logs
    FROM graphs g WHERE g.graph = $1 AND g.compile_id IS NOT NULL
"""
_LOGGED = """
    SELECT record, event FROM records WHERE log = ? AND compile_id = ? AND list_contains($3, event) ORDER BY record DESC
"""
_DYNAMO = "dynamo_output_graph"
_AOT = ("aot_inference_graph", "aot_forward_graph", "aot_backward_graph")
_DESCRIBED = ("describe_source", "describe_tensor")
_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")
_SCOPE = re.compile(r"\b[LG]\['([^']+)'\]")
_PLACE_OF_SIZE = re.compile(r"\.(size|stride)\(\)\[(\d+)\]")
_OWN = ("call", "partition_")
"""Prefixes of wrapper functions in which a name stands for the graph's own buffer."""
_WRAPPED = re.compile(r"(?<![\w.])fn(?=\.)")
_MODULE = re.compile(r"\b__import_(\w+)\.")
_STACK = re.compile(r"___stack(\d+)")
_UNNAMEABLE = re.compile(r"[^a-zA-Z0-9]+")
_PLAIN = re.compile(r"L_([a-zA-Z0-9]+)_$")


def program_names(trace: Trace, graph: int) -> Mapping[str, ProgramName]:
    """Return the program's names of a graph's inputs and outputs, keyed by their names in the generated code.

    An input whose name is unknown may still have a known kind. Names that are missing are those of buffers inside the
    graph, or of a graph whose log says nothing about them."""
    return trace.once(_read, graph, most=KEPT)


def name_in_program(trace: Trace, graph: int | None, name: str) -> str | None:
    """Return the program's name of an input or output of a graph, or None if it has none or it is unknown."""
    known = program_names(trace, graph).get(name) if graph is not None else None
    return known.name if known else None


def names_of_dynamo(trace: Trace, log: int, compile_id: str, record: int) -> Mapping[str, ProgramName]:
    """Return the program's names of the inputs of a graph of Dynamo, keyed by their names in the graph."""
    return {one.placeholder.name: one.name for one in _program(trace, _Compile(log, compile_id, ()), record)}


def with_program_names(trace: Trace, sites: Sequence[SiteRow]) -> list[SiteRow]:
    """Return launch sites of a graph whose arguments have the program's names, as far as these are known."""
    return [replace(site, arguments=[_named(trace, site.graph, one) for one in site.arguments]) for site in sites]


def statements_named(trace: Trace, graph: int, rows: Sequence[MemoryStatementRow]) -> list[MemoryStatementRow]:
    """Return memory statements of a graph with the program's names of the buffers, as far as these are known."""
    return [
        replace(row, program_name=name_in_program(trace, graph, row.buffer)) if row.function.startswith(_OWN) else row
        for row in rows
    ]


def _named(trace: Trace, graph: int, argument: ArgumentRow) -> ArgumentRow:
    known = name_in_program(trace, graph, argument.buffer or argument.name)
    return argument if known is None else replace(argument, program_name=known)


def _read(trace: Trace, graph: int) -> Mapping[str, ProgramName]:
    facts = sql.row(trace, _GRAPH, [graph, OUTPUT_CODE])
    if facts is None or facts[2] is None:
        return {}
    compile_id, phase, code_record, logs = facts
    code = trace.payload(code_record).decode("utf-8", "replace")
    for log in logs:
        logged = sql.rows(trace, _LOGGED, [log, compile_id, [*_AOT, _DYNAMO]]) if log is not None else []
        if logged:
            return _names(trace, _Compile(log, compile_id, logged), code, phase)
    return {}


@dataclass(frozen=True)
class _Compile:
    """The graphs that PyTorch logged for one compile."""

    log: int
    compile_id: str
    graphs: Sequence[tuple[int, str]]
    """Record and event of each, the last first."""

    def before(self, record: int, event: str) -> int | None:
        """Return the last graph of a kind before `record`."""
        return next((one for one, kind in self.graphs if kind == event and one < record), None)


def _names(trace: Trace, of: _Compile, code: str, phase: str | None) -> Mapping[str, ProgramName]:
    found = _graph_with(trace, of, code_inputs(code), phase)
    if found is None:
        return {}
    record, event, text = found
    dynamo = record if event == _DYNAMO else of.before(record, _DYNAMO)
    program = _program(trace, of, dynamo)
    if event == _DYNAMO:
        return _of_dynamo(program)
    inputs = placeholders(text)
    is_divided = sum(kind == event and (dynamo is None or one > dynamo) for one, kind in of.graphs) > 1
    if is_divided or not _agree(inputs, program, _counted(trace, of, event, record, inputs)):
        program = []
    of_inputs = {one.name: input_name(one, [given.name for given in program]) for one in inputs}
    return {**_of_results(text, code, [given.name for given in program]), **of_inputs}


def _counted(trace: Trace, of: _Compile, event: str, record: int, inputs: Sequence[Placeholder]) -> int:
    """Return how many of Dynamo's inputs AOTAutograd took, which the forward graph tells for the backward graph."""
    if event == "aot_backward_graph":
        forward = of.before(record, "aot_forward_graph")
        inputs = placeholders(trace.payload(forward).decode("utf-8", "replace")) if forward is not None else ()
    return sum(position_of(one) is not None for one in inputs)


def _agree(inputs: Sequence[Placeholder], program: Sequence[_Given], counted: int) -> bool:
    """Return whether each numbered input may be the one that Dynamo's graph has at that place."""
    if not any(one.role for one in inputs) and counted != len(program):
        return False  # PyTorch left inputs out or added some, and does not say which
    places = [(one, position_of(one)) for one in inputs]
    return all(
        place < len(program) and may_be_same(one, program[place].placeholder)
        for one, place in places
        if place is not None
    )


def _of_results(graph: str, code: str, program: Sequence[ProgramName]) -> dict[str, ProgramName]:
    """Return the names of the buffers that the generated code returns."""
    roles, buffers = result_roles(graph), code_results(code)
    found: dict[str, ProgramName] = {}
    if len(roles) == len(buffers):
        for role, buffer in zip(roles, buffers, strict=True):
            if buffer is not None and buffer not in found:  # a result of the program is also saved
                found[buffer] = output_name(role, program)
    return found


def _graph_with(trace: Trace, of: _Compile, names: Sequence[str], phase: str | None) -> tuple[int, str, str] | None:
    """Return the last logged graph whose inputs have the names of the generated code: (record, event, its text)."""
    wanted = f"aot_{phase}_graph"
    for record, event in sorted(of.graphs, key=lambda one: one[1] != wanted and phase is not None):
        text = trace.payload(record).decode("utf-8", "replace")
        inputs = [one.name for one in placeholders(text)]
        if inputs and (set(inputs) == set(names) or (not names and event == wanted)):
            return record, event, text
    return None


@dataclass(frozen=True)
class _Given:
    """An input of Dynamo's graph with its name in the program."""

    placeholder: Placeholder
    name: ProgramName


def _program(trace: Trace, of: _Compile, dynamo: int | None) -> list[_Given]:
    """Return the inputs of Dynamo's graph in order."""
    if dynamo is None:
        return []
    described = _described(trace, of, dynamo)
    sizes: dict[str, str] = dict(
        sql.rows(
            trace,
            "SELECT symbol, source FROM symbols WHERE log = ? AND compile_id = ? AND source IS NOT NULL"
            " ORDER BY record",
            [of.log, of.compile_id],
        )
    )
    inputs = placeholders(trace.payload(dynamo).decode("utf-8", "replace"))
    return [_Given(one, _given_name(one, described, sizes)) for one in inputs]


def _given_name(one: Placeholder, described: Mapping[str, set[ProgramName]], sizes: Mapping[str, str]) -> ProgramName:
    symbol = re.fullmatch(r"Sym\((\w+)\)", one.annotation)
    if symbol is not None:
        source = sizes.get(symbol[1])
        return ProgramName(program_expression(source) if source else None, "size")
    known = described.get(one.name) or described.get(re.sub(r"_\d+$", "", one.name), set())
    if len(known) == 1:
        return next(iter(known))
    if known:
        kinds = {name.kind for name in known}
        return ProgramName(None, kinds.pop() if len(kinds) == 1 else None)
    plain = _PLAIN.match(one.name)
    return ProgramName(plain[1] if plain else None, None)


def _described(trace: Trace, of: _Compile, until: int) -> dict[str, set[ProgramName]]:
    """Return the program's names of the tensors that Dynamo described, keyed by the names of their placeholders."""
    records = sql.rows(
        trace,
        "SELECT record, event FROM records WHERE log = ? AND compile_id = ? AND record < ?"
        " AND list_contains($4, event) ORDER BY record",
        [of.log, of.compile_id, until, list(_DESCRIBED)],
    )
    compiled = sql.row(trace, "SELECT file FROM compiles WHERE log = ? AND compile_id = ?", [of.log, of.compile_id])
    file = compiled[0] if compiled else None
    headers = trace.headers([record for record, _ in records])
    of_event: dict[str, list[dict[str, Any]]] = {event: [] for event in _DESCRIBED}
    for record, event in records:
        value = _header_value(headers.get(record, b""), event)
        if value is not None:
            of_event[event].append(value)
    tensors = {(one.get("describer_id"), one.get("id")): one for one in of_event["describe_tensor"]}
    found: dict[str, set[ProgramName]] = {}
    for one in of_event["describe_source"]:
        source = one.get("source")
        if isinstance(source, str):
            tensor = tensors.get((one.get("describer_id"), one.get("id")))
            expression = in_wrapped_module(file, program_expression(source))
            name = ProgramName(expression, _kind(source, tensor))
            found.setdefault(_UNNAMEABLE.sub("_", source), set()).add(name)
    return found


def _header_value(header: bytes, event: str) -> dict[str, Any] | None:
    try:
        value = orjson.loads(header[header.index(b"{") :]).get(event)
    except (ValueError, AttributeError):
        return None
    return value if isinstance(value, dict) else None


def _kind(source: str, tensor: Mapping[str, Any] | None) -> InputKind | None:
    if "._buffers['" in source:
        return "buffer"
    if tensor is None:
        return "parameter" if "._parameters['" in source else None
    return "parameter" if tensor.get("is_parameter") else "input"


def program_expression(source: str) -> str:
    """Return Dynamo's expression for a value as the program would write it: ``self.layers.3.weight``."""
    plain = _MEMBER.sub(r".\1", in_modules(_SCOPE.sub(r"\1", source)))
    return _STACK.sub(r"stack value \1 of the graph break", _PLACE_OF_SIZE.sub(r".\1(\2)", plain))


def in_modules(expression: str) -> str:
    """Return an expression with the names of modules in place of those that Dynamo gives to modules whose variables
    compiled code reads: ``pack.data.mean`` for ``__import_pack_dot_data.mean``, ``keep`` for that of the program."""
    return _MODULE.sub(lambda found: f"{found[1].replace('_dot_', '.')}.".removeprefix("__main__."), expression)


def in_wrapped_module(file: str | None, expression: str) -> str:
    """Return the program's expression for a value in a compiled function of a file: what a wrapper of torch has in its
    variable `fn` is `self` to its parts."""
    return as_part(expression) if file is not None and is_wrapper(file) else expression


def as_part(expression: str) -> str:
    """Return ``self.0.weight`` for ``fn.0.weight``."""
    return _WRAPPED.sub("self", expression)


def _of_dynamo(program: Sequence[_Given]) -> dict[str, ProgramName]:
    """Return the names of a graph that runs as Dynamo made it, which gives each input a second, lower-case name."""
    named = {given.placeholder.name: given.name for given in program}
    return {**{name.lower(): known for name, known in named.items()}, **named}
