"""Compares the gradients of a compiled graph with those of its eager run, when the program runs its backward.

The program's own backward is watched with hooks on autograd's nodes, which see the gradients that come in and
go out and change nothing. No second compiled backward runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from stepscope.tracer.inductor import eager_runs, tensor_owners
from stepscope.tracer.judge.clones import Clones, NotComparable
from stepscope.tracer.judge.saved_tensors import SavedTensors
from stepscope.tracer.schema.constants import SAVED_CHANGED

COMPILED = "CompiledFunctionBackward"
"""Name of the autograd node of a compiled graph."""
COPY = "CopyBackwards"
"""Name of the node of an input into which AOTAutograd copied a result of the graph; its second edge leads there."""
_MOST_STEPS = 4
"""Views that AOTAutograd puts between a compiled graph's node and the tensor that the program gets."""

Guarded = Callable[[Literal["forward", "backward"], Callable[[], None]], None]


@dataclass(frozen=True)
class _Like:
    """What a clone needs to know of an input before the call."""

    requires_grad: bool
    is_leaf: bool


@dataclass(frozen=True)
class Before:
    """The inputs before the call, which may be changed by it."""

    like: list[_Like | None]
    nodes: list[tuple[Any, int] | None]
    """Autograd's node and the number of its output of each input that was computed."""
    known: set[int]
    """Nodes of compiled graphs that ran before."""

    @classmethod
    def of(cls, args: Sequence[Any]) -> Before:
        tensors = [value if isinstance(value, Tensor) else None for value in args]
        return cls(
            [None if one is None else _Like(one.requires_grad, one.is_leaf) for one in tensors],
            [None if one is None or one.grad_fn is None else (one.grad_fn, one.output_nr) for one in tensors],
            {id(node) for one in tensors if one is not None for node, _ in _path(one)},
        )


class BackwardCheck:
    """Waits for the backward of one call, and compares once."""

    def __init__(
        self,
        before: Before,
        clones: Clones,
        eager: list[Any],
        compare: Callable[[list[Any], list[Any], list[int], dict[int, Tensor]], None],
        guarded: Guarded,
    ) -> None:
        self._before, self._clones, self._eager = before, clones, eager
        self._compare, self._guarded = compare, guarded
        self._came: dict[int, Tensor] = {}
        self._handles: list[Any] = []
        self._is_over = False

    def watch(self, results: Sequence[Any], args: Sequence[Any], kept: Sequence[Any]) -> int:
        """Attach hooks to the node that computed `results`; none if nothing was computed with gradients.

        `kept` are copies of the inputs, so that saved inputs need no other copy. Return the number of results whose
        gradients pass the node by, as those of a view of an input do.
        """
        all_nodes = {position: self._compiled(one) for position, one in enumerate(results)}
        of_result = {position: node for position, node in all_nodes.items() if node is not None}
        nodes = {id(node): node for node in of_result.values()}
        inputs = {id(one) for one in args}
        past = sum(
            _requires_grad(self._eager[position]) and _requires_grad(one) and id(one) not in inputs
            for position, one in enumerate(results)
            if position not in of_result
        )
        if not nodes:
            return past
        if len(nodes) > 1:
            raise NotComparable("several backwards belong to the call")
        (node,) = nodes.values()
        with eager_runs.apart():
            saved = SavedTensors(tensor_owners.saved_by_compiled(node), kept)
        edges = [_edge_of(edge, args, self._before) for edge in node.next_functions]
        wanted = [position for position in of_result if _requires_grad(self._eager[position])]
        for position in _sources(results, wanted):
            result = results[position]
            hook = self._on_incoming(position, result.output_nr)
            self._handles.append(result.grad_fn.register_prehook(hook))
        self._handles.append(node.register_prehook(self._on_begin(saved)))
        self._handles.append(node.register_hook(self._on_done(edges)))
        return past

    def _compiled(self, result: Any) -> Any:
        if not isinstance(result, Tensor):
            return None
        nodes = (node for node, _ in _path(result) if type(node).__name__ == COMPILED)
        return next((node for node in nodes if id(node) not in self._before.known), None)

    def _on_incoming(self, position: int, number: int) -> Callable[..., None]:
        def hook(gradients: tuple[Tensor | None, ...]) -> None:
            gradient = gradients[number]
            if gradient is not None:
                self._guarded("backward", lambda: self._keep(position, gradient))

        return hook

    def _keep(self, position: int, gradient: Tensor) -> None:
        with torch.no_grad(), eager_runs.apart():
            self._came[position] = gradient.detach().clone()

    def _on_begin(self, saved: SavedTensors) -> Callable[..., None]:
        def verify() -> None:
            self._is_over = True  # also if the comparison of the tensors raises
            with eager_runs.apart():
                changed = saved.changed()
            self._is_over = changed > 0
            if changed:
                tensors, it = ("1 tensor", "it") if changed == 1 else (f"{changed} tensors", "them")
                raise NotComparable(f"{tensors} {SAVED_CHANGED}; record with --level values to find what changed {it}")

        return lambda gradients: self._guarded("backward", verify)

    def _on_done(self, edges: list[int | None]) -> Callable[..., None]:
        def hook(outgoing: tuple[Tensor | None, ...], incoming: Any) -> None:
            del incoming
            for handle in self._handles:
                handle.remove()
            self._handles.clear()
            self._guarded("backward", lambda: self._finish(edges, outgoing))
            self._eager, self._came, self._clones = [], {}, Clones([], [])

        return hook

    def _finish(self, edges: list[int | None], outgoing: tuple[Tensor | None, ...]) -> None:
        pairs = [
            (position, leaf, gradient)
            for position, gradient in zip(edges, outgoing, strict=True)
            if position is not None and (leaf := self._clones.leaves[position]) is not None
        ]
        if self._is_over or not pairs or not self._came:
            return
        wanted = [position for position, _, _ in pairs]
        with torch.no_grad():
            compiled = [torch.zeros_like(leaf) if one is None else one.detach() for _, leaf, one in pairs]
        states = eager_runs.generator_states()
        with eager_runs.apart(states):
            eager = gradients_of(self._eager, self._clones, self._came, wanted)
            if not eager_runs.states_equal(states, eager_runs.generator_states()):
                raise NotComparable("its backward draws random numbers, as recomputed activations do")
        self._compare(eager, compiled, wanted, self._came)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _sources(results: Sequence[Any], positions: Sequence[int]) -> list[int]:
    """Return the positions whose gradients are all that come in, each once.

    The gradient of a result has in it those of the results that are views of it, or the same tensor.
    """
    paths = {position: [(id(node), number) for node, number in _path(results[position])] for position in positions}
    first: dict[tuple[int, int], int] = {}
    for position, path in paths.items():
        first.setdefault(path[0], position)
    return [
        position
        for position, (own, *others) in paths.items()
        if first[own] == position and not any(one in first for one in others)
    ]


def _path(tensor: Tensor) -> Iterator[tuple[Any, int]]:
    """Yield the node of a tensor, with the number of its output, and those of what it is a view or a copy of."""
    node, number = tensor.grad_fn, tensor.output_nr
    for _ in range(_MOST_STEPS):
        if node is None:
            return
        yield node, number
        if type(node).__name__ == COMPILED or not node.next_functions:
            return
        copied = type(node).__name__ == COPY and len(node.next_functions) > 1
        node, number = node.next_functions[1 if copied else 0]


def _edge_of(edge: tuple[Any, int], args: Sequence[Any], before: Before) -> int | None:
    """Return the position of the input to which an edge of a node leads."""
    node, number = edge
    if node is None:
        return None
    variable = getattr(node, "variable", None)
    for position, (value, known) in enumerate(zip(args, before.nodes, strict=True)):
        if (variable is not None and variable is value) or (known is not None and known == (node, number)):
            return position
    return None


def gradients_of(results: list[Any], clones: Clones, gradients: dict[int, Tensor], wanted: list[int]) -> list[Any]:
    """Return the gradients of the inputs `wanted` of an eager run, zeros where there is none."""
    used = [position for position in gradients if results[position].requires_grad]
    leaves = [clones.leaves[position] for position in wanted]
    found: tuple[Tensor | None, ...] = (None,) * len(leaves)
    if used:
        found = _autograd(
            [results[position] for position in used],
            [leaf for leaf in leaves if leaf is not None],
            [gradients[position] for position in used],
        )
    return [torch.zeros_like(leaf) if one is None else one for one, leaf in zip(found, leaves, strict=True)]  # type: ignore[arg-type]


def _autograd(results: list[Tensor], leaves: list[Tensor], gradients: list[Tensor]) -> tuple[Tensor | None, ...]:
    try:
        return torch.autograd.grad(results, leaves, gradients, allow_unused=True)
    except (
        AssertionError,
        NotImplementedError,
    ) as error:  # not every operator that can be compiled has an eager backward
        text = (str(error).splitlines() or [""])[0]
        raise NotComparable(f"the eager backward raised {type(error).__name__}: {text}") from None
