"""Notes which gradients an optimizer of `torch.optim` gets are zero, and which are too small for float16.

They are looked at before the steps 6, 11 and 19, so that what a program does in every second or third step is met. A
look waits for the device; there is none if the program asked PyTorch to report such waits, or while a CUDA graph is
recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from stepscope.tracer.inductor.changed_hooks import all_modules
from stepscope.tracer.inductor.compat import undisturbed
from stepscope.tracer.inductor.eager_runs import may_wait
from stepscope.tracer.inductor.nonfinite_parameters import is_plain
from stepscope.tracer.inductor.shared_parameters import ModuleNames
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.parameters import ZeroGradients

LOOKED = 6, 11, 19
"""The steps of an optimizer, counted from 1, before which its gradients are looked at."""
MOST_NAMES, MOST_OPTIMIZERS = 8, 16
_SAMPLE, _MOST_SAMPLES = 1_024, 256
"""Number of elements of a gradient, and of gradients, that are compared with the range of float16."""
_LEAST_NORMAL, _LEAST = 2.0**-14, 2.0**-24
"""The smallest normal number of float16, and the smallest one, of which all numbers of float16 are multiples."""
_MOST_OTHERS = 0.1
"""Share of the numbers below the smallest normal one that need not be multiples of the smallest one. Gradients that
were scaled, or computed in another dtype, have more."""


class _Sample(NamedTuple):
    """Elements of gradients by their size."""

    elements: int = 0
    zeros: int = 0
    tiny: int = 0
    """The number of those that are subnormal numbers of float16."""
    small: int = 0
    """The number of those that are as small, whether float16 has them or not."""

    @property
    def is_of_float16(self) -> bool:
        """Return whether most of the elements that are not zero are subnormal numbers of float16."""
        is_most = 0 < self.elements - self.zeros <= 2 * self.tiny
        return is_most and self.tiny >= (1 - _MOST_OTHERS) * self.small


@dataclass
class _Watched:
    """What is known of an optimizer. Keeps no tensor alive."""

    steps: int = 0
    looks: int = 0
    zero: set[tuple[int, int]] = field(default_factory=set)
    """The group and the position of each parameter whose gradient was zero at each look."""


class ZeroGradientsWatch:
    """Writes a record of each optimizer that gets gradients which are zero, or too small for float16, at each look."""

    def __init__(self, write: Callable[[ZeroGradients], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._watched: WeakKeyDictionary[Any, _Watched] = WeakKeyDictionary()
        self._is_done = False

    def begins(self, optimizer: Any) -> None:
        """Look at the gradients if an optimizer is about to make one of three steps. Raises nothing."""
        if self._is_done:
            return
        try:
            watched = self._watched.setdefault(optimizer, _Watched())
            watched.steps += 1
            if watched.steps in LOOKED and len(self._watched) <= MOST_OPTIMIZERS:
                self._look(optimizer, watched)
        except Exception as error:
            self._is_done = True
            self._failed("gradients that are zero", error)

    def _look(self, optimizer: Any, watched: _Watched) -> None:
        if not may_wait():
            return
        gradients = _gradients(optimizer)
        with undisturbed():
            zero = _zero(gradients)
            watched.zero = zero if watched.looks == 0 else watched.zero & zero
            watched.looks += 1
            if watched.steps == LOOKED[-1] and watched.looks == len(LOOKED):
                self._tell(optimizer, watched, gradients)

    def _tell(self, optimizer: Any, watched: _Watched, gradients: dict[tuple[int, int], Any]) -> None:
        sample = _sample([*gradients.values()])
        has_weight = any(gradients[place].dim() > 1 for place in watched.zero)
        if not has_weight and not sample.is_of_float16:  # a loss may depend on no bias, as a difference does not
            return
        tiny = sample.tiny if sample.is_of_float16 else 0
        first = sorted(watched.zero)[:MOST_NAMES]
        parameters = [optimizer.param_groups[group]["params"][position] for group, position in first]
        self._write(
            ZeroGradients(
                type(optimizer).__name__, [*LOOKED], len(gradients), len(watched.zero),
                ModuleNames(all_modules()).of_parameters(parameters), sample.elements, sample.zeros, tiny,
                *calling_place(),
            )
        )  # fmt: skip


def _gradients(optimizer: Any) -> dict[tuple[int, int], Any]:
    """Return the gradients that can be read, by the group and the position of their parameters."""
    found = {
        (group, position): one.grad
        for group, of_group in enumerate(optimizer.param_groups)
        for position, one in enumerate(of_group["params"])
    }
    return {place: one for place, one in found.items() if type(one) is torch.Tensor and is_plain(one)}


def _zero(gradients: dict[tuple[int, int], Any]) -> set[tuple[int, int]]:
    """Return the places of gradients without an element that is not zero. Waits once for each device."""
    places: dict[Any, list[tuple[int, int]]] = {}
    for place, one in gradients.items():
        places.setdefault(one.device, []).append(place)
    return {
        place
        for of_device in places.values()
        for place, is_any in zip(
            of_device, torch.stack([gradients[one].any() for one in of_device]).tolist(), strict=True
        )
        if not is_any
    }


def _sample(gradients: list[Any]) -> _Sample:
    """Count the first elements of gradients on one device by their size."""
    alike = [one for one in gradients if one.device == gradients[0].device and one.is_contiguous()][:_MOST_SAMPLES]
    if not alike:
        return _Sample()
    size = torch.cat([one.view(-1)[:_SAMPLE].float() for one in alike]).abs_()
    is_small = (size > 0) & (size < _LEAST_NORMAL)
    is_tiny = is_small & (size.remainder(_LEAST) == 0)
    return _Sample(size.numel(), *torch.stack([(size == 0).sum(), is_tiny.sum(), is_small.sum()]).tolist())
