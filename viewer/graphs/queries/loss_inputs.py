"""Queries losses whose inputs do not fit them: what Dynamo's graphs compute from the results of layers and the targets.

The functions are those of `torch.nn.functional`, whose documentation says what each expects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.graphs.queries.dynamo_nodes import Function, Node, Nodes, dynamo_graphs, functions_of
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store.trace import Trace

_WHOLE = re.compile(r"(?:\.(?:mean|sum)\(\)|torch\.(?:mean|sum)\(\w+\))")
"""A reduction to one number."""
_INPUT = re.compile(r"\binput ?= ?(\w+)")
_PARAMETER = re.compile(r"_(?:parameters|buffers)_")
LAYERS = {"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "@"}
SAME_ELEMENTS = {
    "index", "view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "t", "contiguous", "clone",
    "float", "double", "half", "bfloat16", "to", "type",
}  # fmt: skip
"""Functions whose result has the elements of their first input."""
PER_ELEMENT_LOSSES = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}
_CROSSING = PER_ELEMENT_LOSSES | {"-", "sub"}
_ERRORS = {"pow", "**", "square", "abs", "*", "/", "mul", "div"}
"""Functions between a difference and the mean of its elements in losses of pairs of a prediction and a target."""
_ERRORS_OF_CASES = _ERRORS | {
    "where", "maximum", "max", "<", "<=", ">", ">=", "lt", "le", "gt", "ge", "+", "-", "add", "sub",
}  # fmt: skip
"""Functions by which such losses combine several results of the difference, as those of Huber and of quantiles do."""
Mistake = Literal["all pairs", "probabilities", "no logarithm"]
"""``all pairs``: each prediction is combined with all targets; ``probabilities``: the loss applies softmax or sigmoid
again; ``no logarithm``: the loss expects logarithms of probabilities."""
_AGAIN: Mistake = "probabilities"
_NO_LOGARITHM: Mistake = "no logarithm"
WRONG_INPUTS: Mapping[str, Mapping[str, Mistake]] = {
    "cross_entropy": {"softmax": _AGAIN},
    "log_softmax": {"softmax": _AGAIN},
    "binary_cross_entropy_with_logits": {"sigmoid": _AGAIN},
    "nll_loss": dict.fromkeys(("softmax", "sigmoid", "linear"), _NO_LOGARITHM),
    "kl_div": dict.fromkeys(("softmax", "sigmoid", "linear"), _NO_LOGARITHM),
}
"""What a function's first input must not have been computed by."""


@dataclass(frozen=True)
class LossInput:
    """A loss that gets what it does not expect."""

    log: int
    graph: int
    step: int
    """The step of the first call of the graph."""
    start_ns: int
    mistake: Mistake
    loss: str
    """The function, such as ``cross_entropy``, or the operator ``-``."""
    given: str
    """The function that computed the input, such as ``softmax`` or ``linear``."""
    source: SourceLine | None
    given_source: SourceLine | None
    size: str
    """The number of predictions that are combined with all targets, or its symbol; "" for other mistakes."""


def loss_inputs(trace: Trace) -> Iterator[LossInput]:
    """Yield the losses in the order of their graphs."""
    for of in dynamo_graphs(trace):
        for mistake, loss, given, size in mistakes(functions_of(trace, of.record)):
            yield LossInput(
                of.log,
                of.graph,
                of.step,
                of.start_ns,
                mistake,
                loss.function,
                given.function,
                loss.source,
                given.source,
                size,
            )


def mistakes(graph: Sequence[Function]) -> Iterator[tuple[Mistake, Node, Node, str]]:
    """Yield the mistakes in a graph of Dynamo: the loss, what it gets, and the number of predictions."""
    for number, (_, nodes) in enumerate(graph):
        for node in nodes.values():
            yield from _of_probabilities(node, nodes)
            if number == 0:  # the inputs of other functions may be results of layers
                yield from _of_pairs(node, nodes)


def _of_probabilities(loss: Node, nodes: Nodes) -> Iterator[tuple[Mistake, Node, Node, str]]:
    wrong = WRONG_INPUTS.get(loss.function)
    if wrong is None or not loss.operands:
        return
    named = _INPUT.search(loss.text)
    given = nodes[named[1] if named and named[1] in nodes else loss.operands[0]]
    while given.function in SAME_ELEMENTS and given.operands:
        given = nodes[given.operands[0]]
    is_gather = given.function == "linear" and "'none'" in loss.text
    if given.function in wrong and not is_gather:
        yield wrong[given.function], loss, given, ""


def _of_pairs(loss: Node, nodes: Nodes) -> Iterator[tuple[Mistake, Node, Node, str]]:
    """Yield a loss of predictions of size (N, 1) and targets of size (N), which broadcast to (N, N)."""
    if loss.function not in _CROSSING or len(loss.operands) < 2:
        return
    one, other = sorted((nodes[name] for name in loss.operands[:2]), key=lambda node: -len(node.sizes or ()))
    if other.sizes is None or len(other.sizes) != 1 or one.sizes != (*other.sizes, "1") or other.sizes == ("1",):
        return
    layer = next((node for node in _before(one, nodes, one.sizes) if node.function in LAYERS), None)
    if layer is not None and _is_target(other, nodes) and _is_averaged(loss, one, nodes, other.sizes * 2):
        yield "all pairs", loss, layer, other.sizes[0]


def _before(node: Node, nodes: Nodes, sizes: tuple[str, ...] | None = None) -> Iterator[Node]:
    """Yield a node and those that it is computed from; only those of these sizes, if they are given."""
    waiting, seen = [node], set[str]()
    while waiting:
        node = waiting.pop()
        if node.name not in seen and (sizes is None or node.sizes == sizes):
            seen.add(node.name)
            yield node
            waiting += [nodes[name] for name in node.operands]


def _is_target(node: Node, nodes: Nodes) -> bool:
    """Return whether a node is computed from inputs of the graph alone, without layers and parameters."""
    before = [*_before(node, nodes)]
    inputs = [one.name for one in before if one.function == "placeholder"]
    return (
        bool(inputs) and not any(one.function in LAYERS for one in before) and not any(map(_PARAMETER.search, inputs))
    )


def _is_averaged(loss: Node, prediction: Node, nodes: Nodes, sizes: tuple[str, ...]) -> bool:
    """Return whether a loss is one number, or becomes one by errors of its elements and their sum or mean. Predictions
    that are also compared with each other are meant to be compared with all."""
    if loss.sizes == ():
        return loss.function in PER_ELEMENT_LOSSES
    reached, is_averaged = {loss.name} if loss.sizes == sizes else set(), False
    for node in nodes.values():
        if not reached.isdisjoint(node.operands):
            is_of_errors = len(node.operands) == 1 or reached.issuperset(node.operands)
            if node.sizes == sizes and is_of_errors and node.function in _ERRORS_OF_CASES:
                reached.add(node.name)
            is_averaged |= node.sizes == () and _WHOLE.search(node.text) is not None
        elif node.sizes == sizes and node.name not in reached and prediction in _before(node, nodes):
            return False
    return is_averaged
