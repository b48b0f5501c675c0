"""Counts the losses that a backward pass adds up although each could have a backward pass of its own."""

from __future__ import annotations

from typing import Any

SUMS = {"AddBackward0", "SubBackward0", "DivBackward0", "MulBackward0", "NegBackward0", "StackBackward0"}
"""Nodes of autograd that combine losses of one element; a product counts if only one of its factors has a gradient."""
REDUCTIONS = {"SumBackward0", "MeanBackward0"}
"""Nodes that combine the elements of stacked losses."""
LEAF = "torch::autograd::AccumulateGrad"
COMPILED = "CompiledFunctionBackward"
LEAST_LOSSES, MOST_NODES = 4, 2048


def independent_losses(total: Any) -> int:
    """Return how many losses the loss of the node `total` is a sum of, if each is computed from results of compiled
    code and nothing but leaves, such as parameters, belongs to two of them; at most 1 if this is not known."""
    terms = _terms(total)
    reached: set[Any] = set()
    for term in terms:
        own = _reached(term, MOST_NODES - len(reached))
        if own is None or not reached.isdisjoint(own) or all(name_of(node) != COMPILED for node in own):
            return 1
        reached |= own
    return len(terms)


def name_of(node: Any) -> str:
    """Return the name of a node of autograd, whatever attributes a function of the program has set on it."""
    name: str = type(node).name(node)
    return name


def _inputs(node: Any) -> list[Any]:
    return [one for one, _ in node.next_functions if one is not None]


def _terms(total: Any) -> list[Any]:
    """Return the nodes of the losses that are added up; none if there are too many."""
    terms, waiting = list[Any](), [total]
    while waiting and len(terms) + len(waiting) <= MOST_NODES:
        node = waiting.pop()
        name, inputs = name_of(node), _inputs(node)
        is_sum = name in SUMS and (name not in ("MulBackward0", "DivBackward0") or len(inputs) == 1)
        is_stacked = name in REDUCTIONS and [name_of(one) for one in inputs] == ["StackBackward0"]
        waiting += inputs if (is_sum or is_stacked) and inputs else []
        terms += [] if (is_sum or is_stacked) and inputs else [node]
    return [] if waiting else terms


def _reached(term: Any, most: int) -> set[Any] | None:
    """Return the nodes that a loss was computed by, without leaves; None if there are too many."""
    found, waiting = {term}, [term]
    while waiting:
        for node in _inputs(waiting.pop()):
            if name_of(node) != LEAF and node not in found:
                found.add(node)
                waiting.append(node)
        if len(found) > most:
            return None
    return found
