"""Queries results of graphs that lie in memory which no launch names, so that nothing has written them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.graphs import code_of_graph
from stepscope.viewer.graphs.queries.program_names import name_in_program
from stepscope.viewer.graphs.queries.signatures import call_code, code_results
from stepscope.viewer.graphs.rows import SourceLine, commented_line, commented_lines, of_program
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_ALLOCATED = """
    SELECT g.log, g.graph, coalesce(g.compile_id, ''), n.name AS buffer, n.storage_bytes, min(l.first_call) AS call,
           sum(l.calls)::BIGINT AS calls
    FROM graphs g JOIN layouts l ON l.graph = g.graph AND l.calls > 0 AND l.function = 'call'
    JOIN layout_storages n ON n.layout = l.layout
    WHERE g.not_recorded IS NULL AND g.operands_left_out IS NULL
      AND n.kind = 'allocated' AND n.dead IS NULL AND n.storage_bytes > 0
      AND NOT EXISTS (FROM arguments a JOIN sites s ON s.site = a.site
                      WHERE s.graph = g.graph AND n.name IN (a.storage, a.buffer))
      AND EXISTS (FROM memory_statements m WHERE m.graph = g.graph AND m.event = 'allocate' AND m.buffer = n.name
                    AND m.function = 'call')
    GROUP BY ALL ORDER BY call, buffer
"""
_CALL = "SELECT step, start_ns FROM calls WHERE call = ?"
_LAUNCH = "SELECT min(launch) FROM launches WHERE call = ?"
_DYNAMO = """
    SELECT max(r.record) FROM records r JOIN graphs g ON g.log = r.log AND g.compile_id = r.compile_id
    WHERE g.graph = ? AND r.event = 'dynamo_output_graph'
"""
# A compiler may divide Dynamo's graph, and what one part allocates may be written between two parts.
_PARTS = """
    SELECT count(*) FROM records r JOIN graphs g ON g.log = r.log AND g.compile_id = r.compile_id
    WHERE g.graph = $1 AND r.record > $2 AND list_contains(['aot_inference_graph', 'aot_forward_graph'], r.event)
"""
_OWN_OPERATOR = re.compile(r"\btorch\.ops\.((?!aten\.|prims\.|prim\.|higher_order\.)\w+\.\w+)")
_WRITES = re.compile(r"torch\.ops\.(?!aten\.|prims\.|prim\.|higher_order\.)\w+\.|.*triton_kernel|.*\w_$")
"""Calls that may write into a tensor that they are given."""
_EMPTY = re.compile(r"\btorch\.(empty(?:_like|_strided|_permuted)?)\(|\.(new_empty(?:_strided)?)\(")
_VIEWS = re.compile(
    "contiguous|detach|expand|flatten|movedim|narrow|permute|reshape|select|squeeze|t|transpose|unflatten|unsqueeze"
    "|view|view_as"
)


_Told = tuple[str, str | None, SourceLine | None]


@dataclass(frozen=True)
class UnwrittenResult:
    """A result of a graph in memory that its calls allocate and that no launch names."""

    log: int
    graph: int
    compile_id: str
    buffer: str
    storage_bytes: int
    call: int
    """The first call that returned it."""
    calls: int
    step: int
    start_ns: int
    launch: int | None
    """The first launch of that call; None if it has none."""
    name: str
    """The variable that holds it, or of which it is a view, in Dynamo's graph."""
    given_to: str | None
    """The operator to which the program gives it to be written, such as ``torch.ops.mine.fill``; None if there is none.
    """
    source: SourceLine | None
    """The line that gave it to that operator, else the line that made it."""


def unwritten_results(trace: Trace) -> list[UnwrittenResult]:
    """Return the results in order of time, without those of graphs whose place in the program is unknown."""
    found = []
    for log, graph, compile_id, buffer, size, call, calls in sql.rows(trace, _ALLOCATED):
        code = code_of_graph(trace, graph) or ""
        if buffer in code_results(code) and not _is_used(call_code(code), buffer):
            told = _in_program(trace, graph, buffer)
            step, start_ns = sql.row(trace, _CALL, [call]) or (0, 0)
            launch = sql.number(trace, _LAUNCH, [call])
            if told is not None:
                found.append(
                    UnwrittenResult(log, graph, compile_id, buffer, size, call, calls, step, start_ns, launch, *told)
                )
    return found


def left_out(trace: Trace, graph: int) -> tuple[str, SourceLine | None] | None:
    """Return the first operator of the program's own that the generated code of a graph lacks, and its line."""
    code, record = code_of_graph(trace, graph), sql.number(trace, _DYNAMO, [graph])
    if not code or record is None or sql.number(trace, _PARTS, [graph, record]) != 1:
        return None
    for line, source in commented_lines(trace.payload(record).decode("utf-8", "replace")):
        called = _OWN_OPERATOR.search(line)
        if called is not None and f"torch.ops.{called[1]}" not in code:
            return called[1], of_program(source)
    return None


def allocations(trace: Trace, graph: int) -> list[tuple[str, SourceLine | None]]:
    """Return the operators by which the program of a graph allocates memory without writing it, such as
    ``empty_like``, and their lines; none if the program has a NaN constant of its own."""
    record = sql.number(trace, _DYNAMO, [graph])
    if record is None or sql.number(trace, _PARTS, [graph, record]) != 1:
        return []
    text = trace.payload(record).decode("utf-8", "replace")
    found: dict[tuple[str, SourceLine | None], None] = {}
    for line, source in () if re.search(r"\bnan\b", text) else commented_lines(text):
        called = _EMPTY.search(line)
        if called is not None:
            found[called[1] or called[2], of_program(source)] = None
    return list(found)


def _is_used(code: str, buffer: str) -> bool:
    """Return whether a statement other than its allocation, its check, its end and the return names a buffer."""
    name = re.compile(rf"\b{re.escape(buffer)}\b")
    plain = re.compile(rf"\s*(?:#|return\b|del\b|assert_\w+\(|{re.escape(buffer)} = empty_strided\w*\()")
    return any(name.search(line) and not plain.match(line) for line in code.splitlines())


def _in_program(trace: Trace, graph: int, buffer: str) -> _Told | None:
    """Return what Dynamo's graph tells of a result: its variable, the operator that gets it, and the line of it."""
    place = re.fullmatch(r"output (\d+)", name_in_program(trace, graph, buffer) or "")
    record = sql.number(trace, _DYNAMO, [graph])
    if place is None or record is None or sql.number(trace, _PARTS, [graph, record]) != 1:
        return None
    return _of_dynamo(trace.payload(record).decode("utf-8", "replace"), int(place[1]))


def _of_dynamo(text: str, place: int) -> _Told | None:
    try:
        function = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    except (SyntaxError, ValueError, RecursionError, MemoryError, StopIteration):
        return None
    *statements, last = function.body
    results = last.value.elts if isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple) else ()
    result = results[place] if place < len(results) else None
    if not isinstance(result, ast.Name):
        return None
    made: ast.stmt | None = None
    given: tuple[ast.stmt, str] | None = None
    bases: dict[str, str] = {}

    def based(name: str) -> str:
        return bases.get(name, name)

    for statement in statements:
        target, value = _assigned(statement)
        viewed = _viewed(value)
        if target is not None and viewed is not None:
            bases[target] = based(viewed)
    tensor = based(result.id)
    for statement in statements:
        target, value = _assigned(statement)
        if target == tensor:
            made = statement
        elif given is None and isinstance(value, ast.Call) and _WRITES.match(ast.unparse(value.func)):
            given = (statement, ast.unparse(value.func)) if tensor in map(based, _names(value)) else None
    return tensor, given[1] if given else None, _line(text, given[0] if given else made)


def _assigned(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    target = targets[0]
    return target.id if isinstance(target, ast.Name) else None, getattr(statement, "value", None)


def _viewed(value: ast.expr | None) -> str | None:
    """Return the variable of which an expression is a view."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and _VIEWS.fullmatch(value.func.attr):
        value = value.func.value
    elif isinstance(value, ast.Subscript):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None


def _names(call: ast.Call) -> Iterator[str]:
    return (node.id for node in ast.walk(call) if isinstance(node, ast.Name))


def _line(text: str, statement: ast.stmt | None) -> SourceLine | None:
    """Return the line of the model that the last comment before a statement names."""
    above = text.splitlines()[: statement.lineno] if statement is not None else ()
    return of_program(next(filter(None, map(commented_line, reversed(above))), None))
