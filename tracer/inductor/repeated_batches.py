"""Finds loaders of which each step of an optimizer takes the first batch anew, as `next(iter(loader))` does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from stepscope.tracer.inductor import compat
from stepscope.tracer.runtime.program_frames import program_frame
from stepscope.tracer.schema.repeats import RepeatedBatch

LEAST = 6
"""Number of successive steps that must begin with the first batch."""
MOST_LOADERS = 16
_SAMPLERS = "torch.utils.data.sampler"
Place = tuple[str, int]


class _Count(NamedTuple):
    """What has happened to a loader up to now."""

    begun: int = 0
    """Number of iterators that the program has made."""
    batches: int = 0
    """Number of batches that it has taken from them; of those of one iterator, two at most count."""
    moves: int = 0
    """Number of iterators that were made at another line than the one before."""


_NOTHING = _Count()


@dataclass
class _Loader:
    place: Place
    count: _Count = _NOTHING
    is_told: bool = False


@dataclass
class _Run:
    """The steps of an optimizer before each of which a loader was begun again."""

    count: _Count = _NOTHING
    steps: int = 0


class BatchesWatch:
    """Writes a record of each loader that is begun again before successive steps of an optimizer, at the same line and
    for one batch each time, although it does not shuffle. What runs without gradients, as an evaluation does, does not
    count."""

    def __init__(self, write: Callable[[RepeatedBatch], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._is_done = False
        self._loaders: WeakKeyDictionary[Any, _Loader] = WeakKeyDictionary()
        self._of: WeakKeyDictionary[Any, _Loader] = WeakKeyDictionary()
        """The loader of each iterator."""
        self._runs: WeakKeyDictionary[Any, WeakKeyDictionary[Any, _Run]] = WeakKeyDictionary()

    def began(self, loader: Any, iterator: Any, frame: FrameType) -> None:
        """Note that a frame has made an iterator of a loader."""
        if self._is_done or not torch.is_grad_enabled() or not _is_in_order(loader):
            return
        found = program_frame(frame)
        place = (found or frame).f_code.co_filename, (found or frame).f_lineno
        one = self._loaders.get(loader)
        if one is None:
            if len(self._loaders) == MOST_LOADERS:
                return
            one = self._loaders[loader] = _Loader(place)
        moves = one.count.moves + (one.place != place)
        one.place, one.count = place, one.count._replace(begun=one.count.begun + 1, moves=moves)
        self._of[iterator] = one

    def took(self, iterator: Any) -> bool:
        """Note that the program has asked an iterator for a batch; return whether its next batch counts as well."""
        one = self._of.get(iterator)
        if one is None:
            return False
        if iterator._num_yielded:  # else it has failed
            one.count = one.count._replace(batches=one.count.batches + 1)
        return bool(iterator._num_yielded < 2)

    def begins(self, optimizer: Any) -> None:
        """Look at the loaders if an optimizer is about to make a step. Raises nothing."""
        if self._is_done or not self._loaders:
            return
        try:
            runs = self._runs.setdefault(optimizer, WeakKeyDictionary())
            for loader, one in [*self._loaders.items()]:
                self._look(loader, one, runs.setdefault(loader, _Run()))
        except Exception as error:
            self._is_done = True
            self._failed("batches that each step takes", error)

    def _look(self, loader: Any, one: _Loader, run: _Run) -> None:
        begun, batches, moves = (now - before for now, before in zip(one.count, run.count, strict=True))
        run.steps = run.steps + 1 if begun == batches > 0 and not moves else 0
        run.count = one.count
        if run.steps == LEAST and not one.is_told:
            one.is_told = True
            batches, samples = len(loader), len(loader.sampler)
            if batches > 1:
                self._write(RepeatedBatch(loader.batch_size, batches, samples, run.steps, *one.place))


def _is_in_order(loader: Any) -> bool:
    """Return whether each iterator of a loader begins with the same samples of its dataset."""
    module: Any = compat.loaded(_SAMPLERS, "SequentialSampler")
    is_plain = module is not None and type(loader.sampler) is module.SequentialSampler
    return is_plain and (loader.batch_sampler is None or type(loader.batch_sampler) is module.BatchSampler)
