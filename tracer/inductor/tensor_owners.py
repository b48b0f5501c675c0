"""Finds what keeps a tensor's memory alive outside of Python: autograd, other tensors and C++ code.

Tensors that autograd has saved are not unpacked, since unpack hooks run the program's own code (offloading,
recomputation).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from time import monotonic
from typing import Any

from stepscope.tracer.inductor.compat import without_modes

_names: dict[type, tuple[str, ...]] = {}


def saved_tensors(tensors: Iterable[Any], deadline: float) -> Iterator[tuple[Any, str, Any]]:
    """Yield (tensor, ``MulBackward0``, saved) for each saved tensor of the graphs behind `tensors` without a pack hook.

    Of several tensors that share a part of a graph, the one made last is yielded, because its graph is the largest.
    Stops at `deadline` (`time.monotonic`). Source: torch/csrc/autograd/python_saved_variable_hooks.h.
    """
    seen: set[Any] = set()
    for tensor in sorted(tensors, key=lambda one: -one.grad_fn._sequence_nr()):
        waiting = [tensor.grad_fn]
        while waiting and monotonic() < deadline:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
            for saved in _saved_by(node):
                yield tensor, node.name(), saved


def _saved_by(node: Any) -> Iterator[Any]:
    kind = type(node)
    names = _names.get(kind)
    if names is None:
        names = _names[kind] = tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
    for name in names:
        try:
            saved = getattr(node, name)
            for one in saved if isinstance(saved, (tuple, list)) else (saved,):
                if one.unpack_hook is None and one.data is not None:
                    yield one.data
        except (AttributeError, RuntimeError):  # freed by a backward, or not readable
            continue


def saved_by_compiled(node: Any) -> Iterator[Any]:
    """Yield what the node of a compiled graph has saved, with the tensors that AOTAutograd keeps there itself."""
    return chain(_saved_by(node), getattr(node, "_tensors_no_vc_check", None) or ())


def held_by_call(inputs: Sequence[Any]) -> list[bool]:
    """Return for each input of a call whether nothing but the call and its callers in torch refers to it: no other
    tensor shares its memory, nothing in C++ refers to it, like autograd, and no variable of the program.

    What calls generated code refers to all inputs alike, so an input with more references than another one has a holder
    of its own, as an output of integers has that a forward pass returned and saved. False for what is not a plain
    tensor, and if torch has no such counts.
    """
    import torch

    kinds = torch.Tensor, torch.nn.Parameter
    references = [sys.getrefcount(value) if type(value) in kinds else None for value in inputs]
    least = min((one for one in references if one is not None), default=None)
    return [one is not None and one == least and _is_one(value) for value, one in zip(inputs, references, strict=True)]


def references(value: Any) -> tuple[int, int] | None:
    """Return how many references Python has to a tensor, and how many tensors and others share its storage; None for
    what is not a plain tensor."""
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    try:
        return sys.getrefcount(value), _counts(value)[1]
    except (RuntimeError, NotImplementedError, AttributeError):
        return None


def _is_one(value: Any) -> bool:
    try:
        return _counts(value) == _of_one()
    except (RuntimeError, NotImplementedError, AttributeError):
        return False


def _counts(value: Any) -> tuple[int, int]:
    import torch

    storage = value.untyped_storage()
    of_storage: Callable[[int], int] = torch._C._storage_Use_Count
    return value._use_count(), of_storage(storage._cdata)


@cache
def _of_one() -> tuple[int, int]:
    import torch

    with without_modes():
        return _counts(torch.empty(1, device="cpu"))
