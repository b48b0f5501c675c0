"""Queries losses outside of compiled code whose inputs do not fit them, by the paths of autograd that lead there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from stepscope.viewer.graphs.queries.dynamo_nodes import dynamo_graphs, functions_of, returned
from stepscope.viewer.graphs.queries.loss_inputs import (
    LAYERS,
    PER_ELEMENT_LOSSES,
    SAME_ELEMENTS,
    WRONG_INPUTS,
    LossInput,
    Mistake,
)
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_PATHS = """
    SELECT p.log, p.time_unix_ns, p.size, p.nodes, p.sizes, p.operands, p.file, p.line, f.compile_id, f.step, f.graph
    FROM loss_paths p ASOF JOIN (
        SELECT c.log, c.start_ns, c.step, g.graph, g.compile_id FROM calls c JOIN graphs g ON g.graph = c.graph
        WHERE g.phase = 'forward'
    ) f ON f.log = p.log AND f.start_ns < p.start_ns
    ORDER BY p.log, p.start_ns
"""
_BETWEEN = """
    SELECT after_line, line, function, code, lines_between FROM call_sites
    WHERE log = ? AND file = ? AND line = ? AND after_line IS NOT NULL ORDER BY time_unix_ns LIMIT 1
"""
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBERED = re.compile(r"Backward\d*$")
_OTHER_NAMES = {
    "addmm": "linear", "mm": "linear", "nll_loss2d": "nll_loss", "logit": "log", "sub": "-", "rsub": "-",
    "to_copy": "to", "unsafe_view": "view", "_ddp_sink": "view",
}  # fmt: skip
_ERRORS = {"pow", "abs"}
"""Functions of one tensor between a difference and the mean of its elements; a product may be one with weights."""
_COMPUTES_DIFFERENCE = re.compile(r" - |\bsub\(")
_COMPUTES_LOSS = re.compile(r"loss|criterion|cross_entropy|nll|mse|l1|bce|huber", re.IGNORECASE)


class _Path(NamedTuple):
    """A path from a result of compiled code to a loss."""

    log: int
    time_unix_ns: int
    size: Sequence[int]
    functions: Sequence[str]
    sizes: Sequence[Sequence[int]]
    operands: Sequence[int]
    file: str | None
    line: int | None
    compile_id: str | None
    """The compile of the forward graph that was called last before."""
    step: int
    graph: int


def eager_losses(trace: Trace) -> Iterator[LossInput]:
    """Yield the losses outside of compiled code that get what they do not expect, in their order."""
    for path in _paths(trace):
        found = _of_pairs(trace, path) or _of_probabilities(trace, path)
        if found is not None:
            mistake, loss, given, size = found
            line = _line(trace, path, _COMPUTES_DIFFERENCE if loss == "-" else _COMPUTES_LOSS)
            yield LossInput(path.log, path.graph, path.step, path.time_unix_ns, mistake, loss, given, line, None, size)


def _paths(trace: Trace) -> Iterator[_Path]:
    if not sql.has_rows(trace, "loss_paths"):
        return
    for log, time, *lists, file, line, compile_id, step, graph in sql.rows(trace, _PATHS):
        size, nodes, sizes, operands = map(orjson.loads, lists)
        yield _Path(log, time, size, [*map(_function, nodes)], sizes, operands, file, line, compile_id, step, graph)


def _function(node: str) -> str:
    """Return ``log_softmax`` for ``LogSoftmaxBackward0``."""
    name = _WORD.sub("_", _NUMBERED.sub("", node)).lower()
    return _OTHER_NAMES.get(name, name)


def _of_pairs(trace: Trace, path: _Path) -> tuple[Mistake, str, str, str] | None:
    """Return the loss of results of size (N, 1) that broadcast to (N, N), which becomes one number by errors of its
    elements and their sum or mean."""
    pairs = [*path.size[:1], *path.size[:1]]
    if len(path.size) != 2 or path.size[1] != 1 or path.size[0] < 2:
        return None
    at = next((number for number, size in enumerate(path.sizes) if size != path.size), None)
    if at is None or path.sizes[at] != pairs or not set(path.functions[:at]) <= SAME_ELEMENTS | _ERRORS:
        return None
    if path.functions[at] == "expand":  # of the predictions, before the loss
        at += 1
    crossing, end = path.functions[at], path.sizes.index([]) if [] in path.sizes[at:] else -1
    is_loss = crossing in (*PER_ELEMENT_LOSSES, "-") and path.operands[at] == 1
    is_reduced = end == at or (end > at and path.functions[end] in ("mean", "sum"))
    if not is_loss or not is_reduced or not set(path.functions[at + 1 : end]) <= _ERRORS:
        return None
    return "all pairs", crossing, _last_function(trace, path) or "", str(path.size[0])


def _of_probabilities(trace: Trace, path: _Path) -> tuple[Mistake, str, str, str] | None:
    """Return the loss that gets the results of a function which it does not expect."""
    for number, loss in enumerate(path.functions):
        wrong = WRONG_INPUTS.get(loss)
        if wrong is None:
            continue
        before = [name for name in path.functions[:number] if name not in SAME_ELEMENTS]
        given = before[-1] if before else _last_function(trace, path)
        is_gather = given == "linear" and path.sizes[number] != []
        if given is not None and given in wrong and not is_gather:
            name = "cross_entropy" if loss == "log_softmax" and "nll_loss" in path.functions[number:] else loss
            return wrong[given], name, given, ""
    return None


def _last_function(trace: Trace, path: _Path) -> str | None:
    """Return the function that computed all results of the compiled code that may have been the path's beginning."""
    records = [of.record for of in dynamo_graphs(trace) if (of.log, of.compile_id) == (path.log, path.compile_id)]
    found = set()
    for text, nodes in (functions_of(trace, record)[0] for record in records):
        for node in (nodes[name] for name in returned(text) if name in nodes):
            if node.sizes is not None and len(node.sizes) == len(path.size):
                if any(one.isdigit() and int(one) != size for one, size in zip(node.sizes, path.size, strict=True)):
                    continue
                while node.function in SAME_ELEMENTS and node.operands:
                    node = nodes[node.operands[0]]
                found.add("linear" if node.function in LAYERS else node.function)
    return found.pop() if len(found) == 1 else None


def _line(trace: Trace, path: _Path, likely: re.Pattern[str]) -> SourceLine | None:
    """Return the only line between the calls of the compiled code and of `backward`, or the only one there that looks
    `likely`, else the line that calls `backward`."""
    if path.file is None or path.line is None:
        return None
    found = sql.row(trace, _BETWEEN, [path.log, path.file, path.line])
    if found is None:
        return SourceLine(path.file, path.line, "", "")
    after, line, function, code, between = found
    lines = [one for one in enumerate(orjson.loads(between), after + 1) if _is_code(one[1])]
    matching = [one for one in lines if likely.search(one[1])] or lines
    number, text = matching[0] if len(matching) == 1 else (line, code)
    return SourceLine(path.file, number, function, text.strip())


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")
