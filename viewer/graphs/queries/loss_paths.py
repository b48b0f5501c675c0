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
    WITH ran AS (
        SELECT c.log, c.thread, c.start_ns, c.step, g.graph, g.compile_id, g.phase
        FROM calls c JOIN graphs g ON g.graph = c.graph WHERE g.phase IN ('forward', 'backward')
    ), path AS (
        SELECT p.*, b.start_ns AS after_ns
        FROM loss_paths p ASOF LEFT JOIN (SELECT * FROM ran WHERE phase = 'backward') b
          ON b.log = p.log AND b.start_ns < p.start_ns
    )
    SELECT p.log, p.time_unix_ns, p.uses, p.size, p.nodes, p.sizes, p.operands, p.lines, p.file, p.line,
           list(DISTINCT f.compile_id) AS compile_ids, arg_max(f.step, f.start_ns) AS step,
           arg_max(f.graph, f.start_ns) AS graph
    FROM path p JOIN ran f ON f.log = p.log AND f.thread = p.thread AND f.phase = 'forward'
     AND f.start_ns < p.start_ns AND f.start_ns > coalesce(p.after_ns, 0)
    GROUP BY ALL ORDER BY p.log, p.time_unix_ns
"""
_CALLED = """
    SELECT max(s.line) FROM call_sites s JOIN graphs g ON g.log = s.log AND g.local_graph = s.graph
    WHERE g.phase = 'forward' AND s.log = ? AND list_contains(?, g.compile_id) AND s.file = ? AND s.line <= ?
"""
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBERED = re.compile(r"Backward\d*$")
_OTHER_NAMES = {
    "addmm": "linear", "mm": "linear", "nll_loss2d": "nll_loss", "sub": "-", "rsub": "-",
    "to_copy": "to", "unsafe_view": "view", "_ddp_sink": "view",
}  # fmt: skip
_ERRORS = {"pow", "abs"}
"""Functions of one tensor between a difference and the mean of its elements; a product may be one with weights."""
_COMPUTES_DIFFERENCE = re.compile(r" - |\bsub\(")
_COMPUTES_LOSS = re.compile(r"loss|criterion|cross_entropy|nll|(?<![a-z])(?:mse|l1|bce|kl)|huber", re.IGNORECASE)


class _Path(NamedTuple):
    """A path from a result of compiled code to a loss."""

    log: int
    time_unix_ns: int
    uses: int
    size: Sequence[int]
    functions: Sequence[str]
    sizes: Sequence[Sequence[int]]
    operands: Sequence[int]
    lines: Sequence[str]
    """The lines of the program up to the backward pass."""
    file: str | None
    line: int | None
    compile_ids: Sequence[str | None]
    """The compiles of the forward graphs that were called after the backward pass before."""
    step: int
    graph: int


def eager_losses(trace: Trace) -> Iterator[LossInput]:
    """Yield the losses outside of compiled code that get what they do not expect, in their order."""
    for path in _paths(trace):
        found = _of_pairs(trace, path) or _of_probabilities(trace, path)
        if found is not None:
            mistake, loss, given, size = found
            line = _line(trace, path, loss)
            yield LossInput(path.log, path.graph, path.step, path.time_unix_ns, mistake, loss, given, line, None, size)


def _paths(trace: Trace) -> Iterator[_Path]:
    if not sql.has_rows(trace, "loss_paths"):
        return
    for log, time, uses, *lists, file, line, compile_ids, step, graph in sql.rows(trace, _PATHS):
        size, nodes, sizes, operands, lines = map(orjson.loads, lists)
        functions = [*map(_function, nodes)]
        yield _Path(log, time, uses, size, functions, sizes, operands, lines, file, line, compile_ids, step, graph)


def _function(node: str) -> str:
    """Return ``log_softmax`` for ``LogSoftmaxBackward0``."""
    name = _WORD.sub("_", _NUMBERED.sub("", node)).lower()
    return _OTHER_NAMES.get(name, name)


def _of_pairs(trace: Trace, path: _Path) -> tuple[Mistake, str, str, str] | None:
    """Return the loss of results of size (N, 1) that broadcast to (N, N), which becomes one number by errors of its
    elements and their sum or mean. Nothing else may use the results, such as their differences from one another."""
    pairs = [*path.size[:1], *path.size[:1]]
    if len(path.size) != 2 or path.size[1] != 1 or path.size[0] < 2 or path.uses != 1:
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
    given = _last_function(trace, path)
    return ("all pairs", crossing, given, str(path.size[0])) if given == "linear" else None


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
    graphs = [of for of in dynamo_graphs(trace) if of.log == path.log and of.compile_id in path.compile_ids]
    found = set()
    for text, nodes in (functions_of(trace, of.record)[0] for of in graphs):
        for node in (nodes[name] for name in returned(text) if name in nodes):
            if node.sizes is not None and len(node.sizes) == len(path.size):
                if any(one.isdigit() and int(one) != size for one, size in zip(node.sizes, path.size, strict=True)):
                    continue
                while node.function in SAME_ELEMENTS and node.operands:
                    node = nodes[node.operands[0]]
                found.add("linear" if node.function in LAYERS else node.function)
    return found.pop() if len(found) == 1 else None


def _line(trace: Trace, path: _Path, loss: str) -> SourceLine | None:
    """Return the first line from the call of the compiled code to that of the backward pass that looks as if it
    computed the loss, else the line of the backward pass."""
    if path.file is None or path.line is None:
        return None
    called = sql.number(trace, _CALLED, [path.log, path.compile_ids, path.file, path.line])
    lines = [*enumerate(path.lines, path.line - len(path.lines) + 1)]
    between = [(number, text) for number, text in lines if called is not None and called <= number < path.line]
    for likely in [_COMPUTES_DIFFERENCE, _COMPUTES_LOSS] if loss == "-" else [_COMPUTES_LOSS]:
        for number, text in between or lines[-1:]:
            if likely.search(text.partition("#")[0]):
                return SourceLine(path.file, number, "", text.strip())
    return SourceLine(path.file, path.line, "", path.lines[-1].strip() if path.lines else "")
