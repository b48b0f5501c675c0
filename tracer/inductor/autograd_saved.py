"""Finds the tensors that autograd has saved for the backward, without unpacking them.

Unpack hooks would run the program's own code (offloading, recomputation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Any

_names: dict[type, tuple[str, ...]] = {}


def saved_tensors(tensors: Iterable[Any], deadline: float) -> Iterator[tuple[str, Any]]:
    """Yield (``MulBackward0``, tensor) for each tensor that the graphs behind `tensors` have saved without a pack hook.

    Stops at `deadline` (`time.monotonic`). Source: torch/csrc/autograd/python_saved_variable_hooks.h.
    """
    waiting = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen: set[Any] = set()
    while waiting and monotonic() < deadline:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
        for tensor in _saved_by(node):
            yield node.name(), tensor


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
