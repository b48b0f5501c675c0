"""Notes modules that run in a reentrant checkpoint none of whose inputs requires a gradient, so that no parameter in it
gets one (`CheckpointFunction` of torch/utils/checkpoint.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CellType
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor
from torch.nn import Module
from torch.utils import checkpoint

from stepscope.tracer.inductor.compat import left_to_python
from stepscope.tracer.inductor.missing_gradients import Place
from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions
from stepscope.tracer.runtime.program_frames import calling_place

MOST_MODULES = 512


class ReentrantCheckpoints:
    """Wraps the forward pass of reentrant checkpoints while it is attached."""

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        self._failed = failed
        self._wrapped = WrappedFunctions()
        self._places: WeakKeyDictionary[Module, Place | None] = WeakKeyDictionary()
        """Where the checkpoint of a module is called; None once one of its inputs required a gradient."""

    def attach(self) -> None:
        if not self._wrapped:
            self._wrapped.wrap(checkpoint.CheckpointFunction, "forward", self._noting)

    def detach(self) -> None:
        self._wrapped.restore()

    def holding(self, parameters: Iterable[Any]) -> tuple[int, Place] | None:
        """Return how many of the parameters without a gradient run only in such checkpoints, and where the first of
        these is called; None if none does."""
        missing, held = {id(one) for one in parameters}, dict[int, Place]()
        for module, place in [*self._places.items()]:
            trained = [id(one) for one in module.parameters() if one.requires_grad]
            if place is not None and missing.issuperset(trained):  # else the module also runs elsewhere
                held |= dict.fromkeys(trained, place)
        return (len(held), next(iter(held.values()))) if held else None

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        notes = self

        @functools.wraps(original)
        def forward(ctx: Any, run_function: Any, preserve_rng_state: Any, *args: Any) -> Any:
            if notes._wrapped and len(notes._places) < MOST_MODULES:
                notes._note(run_function, args)
            return original(ctx, run_function, preserve_rng_state, *args)

        return left_to_python(forward, original)  # type: ignore[no-any-return]

    def _note(self, function: Any, inputs: Sequence[Any]) -> None:
        try:
            needs = any(isinstance(one, Tensor) and one.requires_grad for one in inputs)
            for module in _modules_of(function):
                if needs:
                    self._places[module] = None
                elif module not in self._places:
                    self._places[module] = calling_place()
        except Exception as error:
            self._wrapped.restore()
            self._failed("reentrant checkpoints", error)


def _modules_of(function: Any) -> Iterator[Module]:
    """Yield the modules that a function is, belongs to or has in its closure."""
    while isinstance(function, functools.partial):
        yield from (one for one in function.args if isinstance(one, Module))
        function = function.func
    held = [_content(cell) for cell in getattr(function, "__closure__", None) or ()]
    yield from (one for one in (function, getattr(function, "__self__", None), *held) if isinstance(one, Module))


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
