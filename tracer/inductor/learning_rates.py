"""Records the learning rates of optimizers of `torch.optim` where they change much, and an eps that is zero in
float16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import optim

from stepscope.tracer.inductor.scheduler_calls import SchedulerCall
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.parameters import LearningRate

LEAST_FACTOR = 2.0
"""Smallest factor between two rates that are recorded."""
_MOST_RECORDS = 1_000
_LARGEST_ROUNDED = torch.finfo(torch.float16).smallest_normal / 2**11
"""Half of the smallest number of float16, which is rounded to zero."""
_WITH_MEAN_SQUARES = (optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, optim.RMSprop)
"""Optimizers that add eps to the root of a mean of squared gradients in the dtype of the parameter."""


class RateWatch:
    """Writes a record of the learning rate in the first step of each optimizer and in steps in which it has changed."""

    def __init__(
        self,
        write: Callable[[LearningRate], None],
        failed: Callable[[str, BaseException], None],
        scheduler_of: Callable[[Any], SchedulerCall | None],
    ) -> None:
        self._write, self._failed, self._scheduler_of = write, failed, scheduler_of
        self._rates: WeakKeyDictionary[Any, tuple[float, float]] = WeakKeyDictionary()
        """The rate in the last step of an optimizer, and the rate that was last recorded."""
        self._left = _MOST_RECORDS

    def begins(self, optimizer: Any) -> None:
        """Look at the rate with which an optimizer is about to step. Raises nothing."""
        if not self._left:
            return
        try:
            self._look(optimizer)
        except Exception as error:
            self._left = 0
            self._failed("learning rates", error)

    def _look(self, optimizer: Any) -> None:
        rates = [group.get("lr") for group in optimizer.param_groups]
        if not rates or not all(type(rate) in (float, int) for rate in rates):
            return
        rate = float(max(rates))
        before, recorded = self._rates.get(optimizer, (None, None))
        if recorded is None or _is_far(rate, recorded):
            self._left -= 1
            eps = _rounded_eps(optimizer) if recorded is None else None
            file, line = calling_place()
            scheduler = self._scheduler_of(optimizer) or (None, None, None)
            self._write(LearningRate(type(optimizer).__name__, rate, before, file, line, eps, *scheduler))
            recorded = rate
        self._rates[optimizer] = rate, recorded


def _rounded_eps(optimizer: Any) -> float | None:
    """Return the eps that is zero in float16, if the optimizer adds it to numbers of this dtype."""
    if type(optimizer) not in _WITH_MEAN_SQUARES:
        return None
    for group in optimizer.param_groups:
        eps = group.get("eps")
        if not isinstance(eps, float) or not 0 < eps <= _LARGEST_ROUNDED or group.get("fused"):
            continue
        if any(one.dtype == torch.float16 and one.grad is not None for one in group["params"]):
            return eps
    return None


def _is_far(rate: float, recorded: float) -> bool:
    return rate != recorded and (rate >= LEAST_FACTOR * recorded or rate <= recorded / LEAST_FACTOR)
