"""Notes whether steps of optimizers of `torch.optim` change parameters of dtypes with few digits.

Samples of the parameters are compared over a few steps, on their device, and read once in the end. While the learning
rate rises, as in a warm-up, nothing is compared. Optimizers of other libraries may keep the rest of each sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.inductor.eager_runs import is_recording_a_device_graph
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.steps import LostUpdates

STEPS = 5
"""Number of steps that are compared, all with the same learning rate or a falling one."""
LEAST_ELEMENTS, LEAST_SHARE = 16, 0.9
_MOST_PARAMETERS, _MOST_ELEMENTS = 64, 256


@dataclass
class _Watched:
    """An optimizer whose next steps are compared."""

    rate: float = 0.0
    """The largest learning rate of the step before."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """Parameter group of each parameter that is looked at, and its position in the group."""
    before: Any = None
    """The elements before the step that runs."""
    never: Any = None
    """Which elements had a gradient in every step and never changed."""
    moving: Any = None
    """Which elements had a gradient in every step."""
    steps: int = 0
    is_done: bool = False


class UpdateWatch:
    """Compares parameters before and after steps, and tells of the first optimizers most of whose updates are lost."""

    def __init__(self, write: Callable[[LostUpdates], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._watched: WeakKeyDictionary[Any, _Watched] = WeakKeyDictionary()
        self._has_failed = False

    def begins(self, optimizer: Any) -> None:
        """Keep samples of the parameters if the step that begins is to be compared. Raises nothing."""
        if self._has_failed:
            return
        try:
            watched = self._watched.get(optimizer)
            if (watched is not None and watched.is_done) or is_recording_a_device_graph():
                return
            if watched is None:
                watched = self._watched[optimizer] = _Watched()
                watched.places = _places(optimizer)
            _begin(optimizer, watched)
        except Exception as error:
            self._stop(error)

    def stepped(self, optimizer: Any) -> None:
        """Compare the parameters, and write a record after the last step that is compared. Raises nothing."""
        if self._has_failed:
            return
        try:
            watched = self._watched.get(optimizer)
            if watched is None or watched.before is None:
                return
            with without_modes():
                _compare(optimizer, watched)
                if watched.steps == STEPS:
                    self._tell(optimizer, watched)
        except Exception as error:
            self._stop(error)

    def _tell(self, optimizer: Any, watched: _Watched) -> None:
        moving, never = int(watched.moving.sum()), int(watched.never.sum())
        if moving >= LEAST_ELEMENTS and never >= LEAST_SHARE * moving:
            typical = float(_sample(optimizer, watched.places).abs()[watched.never].float().median())
            name, parameters = type(optimizer).__name__, len(watched.places)
            dtype = str(watched.before.dtype).removeprefix("torch.")
            self._write(LostUpdates(name, dtype, parameters, moving, never, watched.rate, typical, *calling_place()))
        _end(watched)

    def _stop(self, error: Exception) -> None:
        self._has_failed = True
        self._watched.clear()
        self._failed("updates that are lost", error)


def _begin(optimizer: Any, watched: _Watched) -> None:
    rates = [group.get("lr") for group in optimizer.param_groups]
    if not watched.places or not all(type(rate) is float for rate in rates):
        _end(watched)
        return
    rate, before = max(rates), watched.rate
    watched.rate, watched.before = rate, None
    if rate > before or rate == 0:
        watched.steps, watched.never, watched.moving = 0, None, None
    else:
        with without_modes():
            watched.before = _sample(optimizer, watched.places)


def _compare(optimizer: Any, watched: _Watched) -> None:
    moving = _sample(optimizer, watched.places, of_gradients=True) != 0
    never = moving & (_sample(optimizer, watched.places) == watched.before)
    if watched.moving is not None:
        moving, never = moving & watched.moving, never & watched.never
    watched.moving, watched.never, watched.steps = moving, never, watched.steps + 1


def _end(watched: _Watched) -> None:
    watched.before = watched.never = watched.moving = None
    watched.is_done = True


def _places(optimizer: Any) -> list[tuple[int, int]]:
    """Return parameters of one dtype with few digits and of one device; of many, some that are spread over all."""
    import torch

    if type(optimizer).__module__.partition(".")[0] != "torch":
        return []
    found: dict[Any, list[tuple[int, int]]] = {}
    for group, of_group in enumerate(optimizer.param_groups):
        for position, one in enumerate(of_group["params"]):
            is_short = type(one) is torch.nn.Parameter and one.dtype in (torch.bfloat16, torch.float16)
            if is_short and one.is_contiguous() and one.numel():
                found.setdefault((one.dtype, one.device), []).append((group, position))
    most = max(found.values(), key=len, default=[])
    return most[:: -(-len(most) // _MOST_PARAMETERS)] if most else []


def _sample(optimizer: Any, places: Sequence[tuple[int, int]], *, of_gradients: bool = False) -> Any:
    """Return elements of the parameters, or of their gradients, in a tensor of its own."""
    import torch

    parts = []
    for group, position in places:
        parameter = optimizer.param_groups[group]["params"][position]
        one = parameter.grad if of_gradients else parameter.detach()
        stride = -(-parameter.numel() // _MOST_ELEMENTS)
        if one is None or type(one) is not torch.Tensor or one.layout is not torch.strided:
            parts.append(parameter.detach().new_zeros(-(-parameter.numel() // stride)))
        else:
            parts.append(one.reshape(-1)[::stride])
    return torch.cat(parts)
