"""Notes how losses are computed from the results of compiled code, which the graphs do not show."""

from __future__ import annotations

import functools
import linecache
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

import torch

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.summed_losses import COMPILED, LEAST_LOSSES, independent_losses, name_of
from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions
from stepscope.tracer.runtime.program_frames import calling_frame
from stepscope.tracer.schema.losses import LossPath, SummedLosses

MOST_CALLS = 16
"""Number of first backward passes that are looked at."""
MOST_NODES, MOST_LENGTH, MOST_PATHS = 512, 16, 8
"""Largest number of nodes that are visited in a call, of nodes on a path, and of paths that are noted in a call."""
MOST_LINES = 16
"""Largest number of lines before the backward pass that are noted."""

Path = tuple[Any, ...]
"""Nodes of autograd, from the one after compiled code to that of the loss."""


class LossPaths:
    """Wraps what `torch.autograd.backward` and `torch.autograd.grad` call while it is attached, and writes a record of
    each new path from a result of compiled code to a tensor that they are called for, and of each place that calls them
    for a sum of losses."""

    def __init__(
        self, write: Callable[[LossPath | SummedLosses], None], failed: Callable[[str, BaseException], None]
    ) -> None:
        self._write, self._failed = write, failed
        self._wrapped = WrappedFunctions()
        self._begin()

    def _begin(self) -> None:
        self._left = MOST_CALLS
        self._told: set[object] = set()

    def attach(self) -> None:
        if not self._wrapped:
            self._wrapped.wrap(torch.autograd, "_engine_run_backward", self._noting)

    def detach(self) -> None:
        self._wrapped.restore()

    def after_fork(self) -> None:
        """Begin anew in a forked child, whose log has no paths yet."""
        self._begin()

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        paths, note = self, compat.hidden(self._note)

        @functools.wraps(original, updated=())
        def run_backward(tensors: Any, *arguments: Any, **named: Any) -> Any:
            if paths._left and paths._wrapped:
                note(tensors)
            return original(tensors, *arguments, **named)

        wrapper: Callable[..., Any] = compat.left_to_python(run_backward, original)
        return wrapper

    def _note(self, tensors: Sequence[Any]) -> None:
        try:
            self._left -= 1
            place = _calling_lines()
            for tensor in tensors:
                # Classes of the program may handle the attribute themselves.
                if type(tensor) is torch.Tensor and tensor.grad_fn is not None:
                    self._tell(tensor.grad_fn, *place)
                    self._tell_sum(tensor.grad_fn, *place[:2])
        except Exception as error:
            self._failed("paths to losses", error)

    def _tell(self, loss: Any, file: str | None, line: int | None, lines: list[str]) -> None:
        for (result, number), (path, uses) in _paths(loss).items():
            size, known = _size(result, number), [_size(node) for node in path]
            sizes = [one for one in known if one is not None]
            nodes = [name_of(node) for node in path]
            operands = [sum(one is not None for one, _ in node.next_functions) for node in path]
            key = (str((size, nodes, sizes)), file, line)
            if size is not None and len(sizes) == len(path) and key not in self._told:
                self._told.add(key)
                thread = threading.get_native_id()
                self._write(LossPath(thread, perf_counter_ns(), size, uses, nodes, sizes, operands, file, line, lines))

    def _tell_sum(self, loss: Any, file: str | None, line: int | None) -> None:
        losses = independent_losses(loss)
        if losses >= LEAST_LOSSES and (losses, file, line) not in self._told:
            self._told.add((losses, file, line))
            self._write(SummedLosses(threading.get_native_id(), perf_counter_ns(), losses, file, line))


def _paths(loss: Any) -> dict[tuple[Any, int], tuple[Path, int]]:
    """Return a shortest path to a loss from each result of compiled code that it was computed from, which is a number
    of a node, and how many nodes use the result."""
    waiting: deque[Path] = deque([(loss,)] if name_of(loss) != COMPILED else [])
    seen: set[Any] = {loss}
    found: dict[tuple[Any, int], tuple[Path, int]] = {}
    while waiting and len(seen) < MOST_NODES:
        path = waiting.popleft()
        for node, number in path[0].next_functions:
            if node is None:
                continue
            if name_of(node) == COMPILED:
                if (node, number) in found or len(found) < MOST_PATHS:
                    first, uses = found.get((node, number), (path, 0))
                    found[node, number] = first, uses + 1
            elif node not in seen and len(path) < MOST_LENGTH:
                seen.add(node)
                waiting.append((node, *path))
    return found


def _calling_lines() -> tuple[str | None, int | None, list[str]]:
    """Return the place in the program of the backward pass, and the lines of its function up to there."""
    frame = calling_frame(sys._getframe(1))
    if frame is None:
        return None, None, []
    file, line = frame.f_code.co_filename, frame.f_lineno
    first = max(1, frame.f_code.co_firstlineno, line - MOST_LINES)
    return file, line, [linecache.getline(file, number).rstrip() for number in range(first, line + 1)]


def _size(node: Any, number: int = 0) -> list[int] | None:
    """Return the size of a result of a node's function in the forward pass; None if it is no list of numbers, as that
    of a nested tensor."""
    with suppress(Exception):
        return [int(size) for size in node._input_metadata[number].shape]
    return None
