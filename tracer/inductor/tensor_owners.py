"""Finds what keeps a tensor's memory alive outside of Python: autograd, other tensors and C++ code.

Tensors that autograd has saved are not unpacked, since unpack hooks run the program's own code (offloading,
recomputation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
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


def only_one_holds(value: Any) -> bool:
    """Return whether no other tensor shares the memory of `value`, and nothing in C++, like autograd, refers to it.

    References to the Python object are ignored. False if `value` is not a plain tensor, or torch has no such counts.
    """
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
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
