"""Notes how losses are computed from the results of compiled code, which the graphs do not show."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns
from typing import Any

import torch

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.losses import LossPath

MOST_CALLS = 16
"""Number of first calls of `backward` that are looked at."""
MOST_NODES, MOST_LENGTH, MOST_PATHS = 512, 16, 8
"""Largest number of nodes that are visited in a call, of nodes on a path, and of paths that are noted in a call."""
COMPILED = "CompiledFunctionBackward"

Path = tuple[Any, ...]
"""Nodes of autograd, from the one after compiled code to that of the loss."""


class LossPaths:
    """Wraps `torch.autograd.backward`, which `Tensor.backward` calls, while it is attached, and writes a record of each
    new path from a result of compiled code to the tensor that it is called for."""

    def __init__(self, write: Callable[[LossPath], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._wrapped = WrappedFunctions()
        self._left = MOST_CALLS
        self._told: set[object] = set()

    def attach(self) -> None:
        if not self._wrapped:
            self._wrapped.wrap(torch.autograd, "backward", self._noting)

    def detach(self) -> None:
        self._wrapped.restore()

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        paths, note = self, compat.hidden(self._note)

        @functools.wraps(original, updated=())
        def backward(*arguments: Any, **named: Any) -> Any:
            if paths._left and paths._wrapped:
                note(arguments, named)
            return original(*arguments, **named)

        wrapper: Callable[..., Any] = compat.left_to_python(backward, original)
        return wrapper

    def _note(self, arguments: Sequence[Any], named: dict[str, Any]) -> None:
        try:
            self._left -= 1
            tensors = arguments[0] if arguments else named.get("tensors")
            for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors or ():
                if tensor.grad_fn is not None:
                    self._tell(tensor.grad_fn)
        except Exception as error:
            self._failed("paths to losses", error)

    def _tell(self, loss: Any) -> None:
        for size, path in _paths(loss):
            nodes, sizes = [node.name() for node in path], [_size(node) for node in path]
            operands = [sum(one is not None for one, _ in node.next_functions) for node in path]
            file, line = calling_place()
            key = (tuple(size), *nodes, *map(tuple, sizes), file, line)
            if key not in self._told:
                self._told.add(key)
                thread = threading.get_native_id()
                self._write(LossPath(thread, perf_counter_ns(), size, nodes, sizes, operands, file, line))


def _paths(loss: Any) -> Iterator[tuple[list[int], Path]]:
    """Yield the size of each result of compiled code that a loss was computed from, and a shortest path from there."""
    waiting: deque[Path] = deque([(loss,)] if loss.name() != COMPILED else [])
    seen: set[Any] = {loss}
    found: set[tuple[Any, int]] = set()
    while waiting and len(seen) < MOST_NODES:
        path = waiting.popleft()
        for node, number in path[0].next_functions:
            if node is None:
                continue
            if node.name() == COMPILED:
                if (node, number) not in found and len(found) < MOST_PATHS:
                    found.add((node, number))
                    yield _size(node, number), path
            elif node not in seen and len(path) < MOST_LENGTH:
                seen.add(node)
                waiting.append((node, *path))


def _size(node: Any, number: int = 0) -> list[int]:
    """Return the size of a result of a node's function in the forward pass."""
    return [int(size) for size in node._input_metadata[number].shape]
