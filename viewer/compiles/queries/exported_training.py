"""Queries the operators that behave as in training in programs of torch.export: in packages of AOTInductor, and in
graphs without gradients that torch.compile made of such a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.compiles.provenance_lines import kernel_stacks
from stepscope.viewer.compiles.queries.details import written_by
from stepscope.viewer.graphs.queries.dynamo_nodes import Function, dynamo_graphs, functions_of
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.ingest.torch_trace.kinds import NO_ID
from stepscope.viewer.ingest.torch_trace.torch_text import is_of_torch
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_STACKS = "inductor_provenance_tracking_kernel_stack_traces"
# The records of a package follow each other; the first one has the exported graph.
_PACKAGES = f"""
    WITH marks AS (
        SELECT log, compile_id, record, time_unix_ns, name,
               sum((name = 'before_pre_grad_graph')::INT) OVER (PARTITION BY log, compile_id ORDER BY record) AS part
        FROM records
        WHERE list_contains(['before_pre_grad_graph', 'inductor_aot_wrapper_code', '{_STACKS}'], name)
    )
    SELECT log, compile_id, min(record) FILTER (name = 'before_pre_grad_graph') AS graph, min(time_unix_ns),
           min(record) FILTER (name = '{_STACKS}')
    FROM marks GROUP BY log, compile_id, part HAVING bool_or(name = 'inductor_aot_wrapper_code') AND graph IS NOT NULL
    ORDER BY log, graph
"""
_PHASE = "SELECT phase FROM graphs WHERE graph = ?"
_OF_COMPILE = f"""
    SELECT min(record) FROM records WHERE log = ? AND compile_id = ? AND record > ? AND name = '{_STACKS}'
"""
_ATTENTION = "scaled_dot_product_attention"
_RATE = r"(?P<rate>[\d.e+-]+)"
_OPERATORS = tuple(
    re.compile(rf"torch\.ops\.aten\.{pattern}")
    for pattern in (
        rf"(?P<name>\w*dropout_?)\.default\(\w+, {_RATE}, True\)",
        rf"(?P<name>{_ATTENTION})\.default\((?:\w+, ){{4}}{_RATE}\b",
        rf"(?P<name>lstm|gru|rnn_\w+)\.input\(.*\], \w+, (?!1,)\d+, {_RATE}, True,",
        r"(?:_native_|native_)?(?P<name>batch_norm)\w*\.default\((?:\w+, ){3}(?!None)\w+, \w+, True,(?P<rate>)",
    )
)
"""Calls that draw random numbers or use the statistics of a batch, because the model trains. Batch norm without running
statistics uses those of the batch in evaluations, too."""
_IN_EVAL = re.compile(
    rf"torch\.ops\.aten\.(?:\w*dropout_?\.default\(\w+, {_RATE}, False\)"
    r"|\w*batch_norm\w*\.default\((?:\w+, ){3}(?!None)\w+, \w+, False,)"
)
"""Calls of such operators in eval mode."""
_FUNCTION = re.compile(r"\b(?:F|functional|torch)\.\w*(?:dropout|batch_norm)\w*\(")
_BY_DEFAULT = re.compile(r"\b(?:F|functional)\.(\w*dropout\w*)\((?![^#]*train)[^,]+(?:, *(?:p ?= ?)?[\w.]+)?\)")
"""A call with one or two arguments."""
_ON_PURPOSE = re.compile(r"\b\w*(?:dropout|batch_norm)\w*\(.*\bTrue\b")
_OF_MODE = re.compile(r"\.training\b")


@dataclass(frozen=True)
class TrainingOperator:
    """An operator that behaves as in training."""

    name: str
    """Such as ``dropout`` or ``batch_norm``."""
    cause: Literal["mode", "function"] | None
    """``mode``: of the module that has it; ``function``: the program calls it without its argument `training`."""
    lines: tuple[SourceLine, ...]
    """The lines of the program that call it; of several in one module of PyTorch, those of all."""


@dataclass(frozen=True)
class ExportedTraining:
    """An exported program for inference with such operators."""

    log: int
    compile_id: str
    """``-`` if the compile has none, as that of most packages."""
    record: int
    """The record with its graph."""
    time_unix_ns: int
    compiled_at: SourceLine | None
    """The line that compiles the package; None for a graph of torch.compile, and if the log does not tell it."""
    graph: int | None
    """None for a package."""
    step: int | None
    operators: tuple[TrainingOperator, ...]
    is_mixed: bool
    """Whether other such operators of it are in eval mode."""


def exported_training(trace: Trace) -> Iterator[ExportedTraining]:
    """Yield the packages, then the graphs of torch.compile."""
    for log, compile_id, record, time_unix_ns, stacks in sql.rows(trace, _PACKAGES):
        if operators := _operators(trace, list(calls(functions_of(trace, record))), stacks):
            place = written_by(trace, log, record)
            is_mixed = _has_eval(trace, record)
            yield ExportedTraining(
                log, compile_id or NO_ID, record, time_unix_ns, place, None, None, operators, is_mixed
            )
    for of in dynamo_graphs(trace):
        is_inference = sql.row(trace, _PHASE, [of.graph]) == ("inference",)
        if is_inference and (found := list(calls(functions_of(trace, of.record)))):
            stacks = sql.number(trace, _OF_COMPILE, [of.log, of.compile_id, of.record])
            if operators := _operators(trace, found, stacks):
                is_mixed = _has_eval(trace, of.record)
                yield ExportedTraining(
                    of.log, of.compile_id, of.record, of.start_ns, None, of.graph, of.step, operators, is_mixed
                )


def _has_eval(trace: Trace, record: int) -> bool:
    nodes = (node for function in functions_of(trace, record) for node in function.nodes.values())
    return any(_IN_EVAL.match(node.text) for node in nodes)


def _operators(
    trace: Trace, found: Sequence[tuple[str, SourceLine | None]], stacks: int | None
) -> tuple[TrainingOperator, ...]:
    """Return the operators among such calls; `stacks` is the record with the stacks of the kernels."""
    known = kernel_stacks(loads(trace.payload(stacks))) if found and stacks is not None else {}
    frames = [stack for of_kernel in known.values() for stack in of_kernel]
    return tuple(dict.fromkeys(one for name, source in found if (one := _operator(name, source, frames)) is not None))


def calls(graph: Iterable[Function]) -> Iterator[tuple[str, SourceLine | None]]:
    """Yield the names of the operators of a graph that behave as in training, each with the line that it states."""
    for function in graph:
        for node in function.nodes.values():
            for operator in _OPERATORS:
                called = operator.match(node.text)
                if called is not None and (not called["rate"] or float(called["rate"])):
                    yield called["name"].removeprefix("native_").removesuffix("_"), node.source


def _operator(name: str, source: SourceLine | None, stacks: Sequence[Sequence[SourceLine]]) -> TrainingOperator | None:
    """Return None if the program asks for the operator's behaviour in training."""
    if source is None:
        return TrainingOperator(name, None, ())
    if is_of_torch(source.file):
        return TrainingOperator(name, "mode", _callers(source, stacks))
    if _ON_PURPOSE.search(source.code):
        return None
    function = _BY_DEFAULT.search(source.code)
    if function is not None:
        return TrainingOperator(function[1], "function", (source,))
    is_told = _OF_MODE.search(source.code) or not (name == _ATTENTION or _FUNCTION.search(source.code))
    return TrainingOperator(name, "mode" if is_told else None, (source,))


def _callers(source: SourceLine, stacks: Sequence[Sequence[SourceLine]]) -> tuple[SourceLine, ...]:
    """Return the lines of the program from which a line of torch was called, in the stacks of the kernels."""
    place = source.file, source.line
    ends = [stack for stack in stacks if stack and (stack[-1].file, stack[-1].line) == place]
    own = ([line for line in stack if not is_of_torch(line.file)][-1:] for stack in ends)
    return tuple(sorted({line for found in own for line in found}, key=lambda line: (line.file, line.line)))
