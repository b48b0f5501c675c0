"""Notes when parameters of an optimizer of `torch.optim` become NaN or infinite.

They are looked at before the first step of an optimizer, after its steps 1, 2, 4, 8 and so on, and when the recording
ends. A look reads one number, for which it waits for the device; there is none if the program asked PyTorch to report
such waits, or while a CUDA graph is recorded. What is NaN or infinite at the first look may be meant, as a mask is, and
counts only as what may have spread.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.nn import Parameter
from torch.nn.utils import get_total_norm

from stepscope.tracer.inductor.changed_hooks import all_modules
from stepscope.tracer.inductor.compat import undisturbed
from stepscope.tracer.inductor.eager_runs import is_recording_a_device_graph, may_wait
from stepscope.tracer.inductor.shared_parameters import ModuleNames
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.parameters import NonfiniteParameters

MOST_NAMES, MOST_OPTIMIZERS = 8, 16
OUTLYING = 10
"""A learning rate that is so many times the median of the groups is told."""
FREE_NS, SHARE = 1_000_000_000, 100
"""A look is left out if the looks have taken a second and, in addition, a hundredth of the time since the first."""
_LONGEST_WAIT_S = 1.0
"""How long the last look waits for a device, which may never end what it does."""
_DTYPES = torch.float16, torch.bfloat16, torch.float32, torch.float64

_Place = tuple[int, int]
"""Parameter group, and position in it."""


class _Read(NamedTuple):
    """A parameter, and the tensor that has its elements: of a distributed one, those of this rank."""

    parameter: Any
    tensor: Any


@dataclass
class _Watched:
    """An optimizer with what is known from its last look. Keeps no tensor alive."""

    name: str
    at: tuple[str | None, int | None]
    steps: int = 0
    looked: int = -1
    """Number of steps at the last look."""
    recorded: int = 0
    """Number of the recorded step at the last look."""
    seen: set[_Place] = field(default_factory=set)
    at_first: dict[_Place, bool] = field(default_factory=dict)
    """Places of parameters that held NaN, or else infinity, when they were first looked at."""
    is_captured: bool = False
    """Whether a step was captured in a CUDA graph, whose replays nobody counts."""
    is_told: bool = False

    def new(self, bad: Mapping[_Place, bool]) -> list[_Place]:
        """Return which of the bad parameters became so since they were first looked at."""
        known = [place for place in bad if place in self.seen]
        return [place for place in known if place not in self.at_first or (bad[place] and not self.at_first[place])]


class NonfiniteWatch:
    """Writes a record of each optimizer whose parameters become NaN or infinite."""

    def __init__(
        self,
        write: Callable[[NonfiniteParameters], None],
        failed: Callable[[str, BaseException], None],
        recorded_step: Callable[[], int],
    ) -> None:
        self._write, self._failed, self._recorded_step = write, failed, recorded_step
        self._watched: WeakKeyDictionary[Any, _Watched] = WeakKeyDictionary()
        self._began_ns: int | None = None
        self._spent_ns = 0
        self._is_done = False

    def begins(self, optimizer: Any) -> None:
        """Look at the parameters if an optimizer is about to make its first step. Raises nothing."""
        self._guarded(lambda: self._begins(optimizer))

    def stepped(self, optimizer: Any) -> None:
        """Look at the parameters after some of the steps. Raises nothing."""
        self._guarded(lambda: self._stepped(optimizer))

    def tell(self) -> None:
        """Look at the parameters for the last time. Raises nothing."""
        self._guarded(self._last_looks)

    def after_fork(self) -> None:
        """Forget the steps of the parent, which tells of them."""
        self._watched.clear()

    def _begins(self, optimizer: Any) -> None:
        if optimizer in self._watched:
            return
        if len(self._watched) == MOST_OPTIMIZERS:
            self._is_done = True
            return
        recorded = 0 if self._began_ns is None else max(0, self._recorded_step())
        watched = _Watched(type(optimizer).__name__, calling_place(), recorded=recorded)
        self._watched[optimizer] = watched
        self._began_ns = self._began_ns or perf_counter_ns()
        if may_wait():
            self._look(optimizer, watched, recorded)

    def _stepped(self, optimizer: Any) -> None:
        watched = self._watched.get(optimizer)
        if watched is None or watched.is_told:
            return
        watched.steps += 1
        is_power_of_two = watched.steps & (watched.steps - 1) == 0
        if is_recording_a_device_graph():
            watched.is_captured = True
        elif is_power_of_two and may_wait() and self._has_time():
            self._look(optimizer, watched, self._recorded_step())

    def _last_looks(self) -> None:
        for optimizer, watched in [*self._watched.items()]:
            is_due = watched.is_captured or watched.steps > watched.looked
            if is_due and not watched.is_told and may_wait() and self._has_time() and _is_idle(optimizer):
                self._look(optimizer, watched, self._recorded_step(), is_last=True)
        self._watched.clear()

    def _has_time(self) -> bool:
        assert self._began_ns is not None
        return self._spent_ns < FREE_NS + (perf_counter_ns() - self._began_ns) // SHARE

    def _look(self, optimizer: Any, watched: _Watched, recorded: int, *, is_last: bool = False) -> None:
        began = perf_counter_ns()
        with undisturbed():
            read = _readable(optimizer)
            norm = get_total_norm([one.tensor for one in read.values()]) if read else 0.0
            self._spent_ns += perf_counter_ns() - began
            bad = {}
            if not math.isfinite(norm):  # the wait for the work of the program is not counted
                began = perf_counter_ns()
                bad = _bad(read)
                self._spent_ns += perf_counter_ns() - began
        if new := watched.new(bad):
            watched.is_told = True
            self._tell(optimizer, watched, read, bad, new, recorded, is_last=is_last)
        watched.at_first |= {place: is_nan for place, is_nan in bad.items() if place not in watched.seen}
        watched.seen |= read.keys()
        watched.looked, watched.recorded = watched.steps, recorded

    def _tell(
        self,
        optimizer: Any,
        watched: _Watched,
        read: Mapping[_Place, _Read],
        bad: Mapping[_Place, bool],
        new: list[_Place],
        recorded: int,
        *,
        is_last: bool,
    ) -> None:
        before = [place for place, is_nan in watched.at_first.items() if is_nan][:MOST_NAMES]
        named = [read[place].parameter for place in (*new[:MOST_NAMES], *before) if place in read]
        names_of = ModuleNames(all_modules()).of_parameters
        names, outlier = names_of(named), _outlying_group(optimizer.param_groups)
        shown = min(len(new), MOST_NAMES)
        self._write(
            NonfiniteParameters(
                watched.name, watched.steps, watched.looked, is_last, len(read), len(new),
                any(bad[place] for place in new), names[:shown], names[shown:],
                watched.recorded, max(watched.recorded, recorded), *watched.at,
                sum(read[place].tensor.dtype == torch.float16 for place in new),
                sum(not is_nan for is_nan in watched.at_first.values()),
                *((len(optimizer.param_groups), *outlier[:2], names_of(outlier[2])) if outlier else ()),
            )
        )  # fmt: skip

    def _guarded(self, look: Callable[[], None]) -> None:
        if self._is_done:
            return
        try:
            look()
        except Exception as error:
            self._is_done = True
            self._watched.clear()
            self._failed("parameters that become NaN or infinite", error)


def _outlying_group(groups: Sequence[Mapping[str, Any]]) -> tuple[float, float, list[Any]] | None:
    """Return the largest learning rate, the median of all and the first parameters of its group, if it is an outlier.
    Rates that are tensors are left out."""
    rates = [(group["lr"], group["params"]) for group in groups if isinstance(group.get("lr"), (int, float))]
    if len(rates) < 3:
        return None
    largest, parameters = max(rates, key=lambda one: one[0])
    middle = statistics.median(rate for rate, _ in rates)
    return (largest, middle, parameters[:MOST_NAMES]) if 0 < OUTLYING * middle <= largest else None


def _readable(optimizer: Any) -> dict[_Place, _Read]:
    """Return the parameters with memory that can be read."""
    found = {
        (group, position): _Read(one, one if type(one) in (torch.Tensor, Parameter) else _local(one))
        for group, of_group in enumerate(optimizer.param_groups)
        for position, one in enumerate(of_group["params"])
    }
    return {place: one for place, one in found.items() if one.tensor is not None and is_plain(one.tensor)}


def _local(parameter: Any) -> Any:
    """Return the elements of a `DTensor` that this rank has; None of other subclasses."""
    tensor = getattr(parameter, "_local_tensor", None)
    return tensor if type(tensor) is torch.Tensor else None


def is_plain(tensor: Any) -> bool:
    """Return whether a tensor has memory that can be read, and floating-point numbers."""
    is_known = tensor.device.type in ("cpu", "cuda") and tensor.dtype in _DTYPES and tensor.layout is torch.strided
    return is_known and tensor.numel() > 0 and tensor.untyped_storage().nbytes() > 0


def _bad(read: Mapping[_Place, _Read]) -> dict[_Place, bool]:
    """Return the parameters with NaN or infinities, and whether they hold NaN; finite norms may overflow."""
    limits = {place: [float(one) for one in torch.aminmax(of.tensor)] for place, of in read.items()}
    return {place: any(map(math.isnan, found)) for place, found in limits.items() if not all(map(math.isfinite, found))}


def _is_idle(optimizer: Any) -> bool:
    """Return whether the devices of the parameters have done all their work, or do so soon."""
    devices = {one.device for group in optimizer.param_groups for one in group["params"] if one.is_cuda}
    end = time.monotonic() + _LONGEST_WAIT_S
    while not all(torch.cuda.current_stream(device).query() for device in devices):
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True
