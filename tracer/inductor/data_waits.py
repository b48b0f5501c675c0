"""Records how long the program waits for batches of a DataLoader: graphs do not run in this time.

All iterators of loaders share one `__next__`, and `DataLoader.__iter__` makes them (torch/utils/data/dataloader.py).
Only long waits become records, so that a loader that keeps up costs two readings of the clock for each batch.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from types import FrameType
from typing import Any, Protocol
from weakref import WeakSet

from torch.optim.optimizer import register_optimizer_step_pre_hook

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.repeated_batches import BatchesWatch
from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions
from stepscope.tracer.runtime.program_frames import is_script, program_frame
from stepscope.tracer.schema.repeats import RepeatedBatch
from stepscope.tracer.schema.steps import Begins, DataWait

MODULE, ITERATOR = "torch.utils.data.dataloader", "_BaseDataLoaderIter"
LEAST_NS = 1_000_000
"""Shortest wait that is recorded."""


class DataWaitSink(Protocol):
    """The part of the recorder that is used here."""

    def write(self, record: DataWait | RepeatedBatch) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class DataWaits:
    """Records each long wait for a batch, in any thread, and loaders of which each step takes the first batch."""

    def __init__(self, sink: DataWaitSink) -> None:
        self._sink, self._batches = sink, BatchesWatch(sink.write, sink.failed)
        self._wrapped = WrappedFunctions()
        self._handle: Any = None
        self._samplers: WeakSet[Any] = WeakSet()
        """The samplers of loaders that have started workers which end with the loop."""
        self._met: WeakSet[Any] = WeakSet()
        self._again: WeakSet[Any] = WeakSet()
        """The iterators of which no other batch must be told, and those of loaders that had started workers before."""

    def attach(self) -> None:
        """Wrap the iterators; does nothing before their module is imported, nor a second time."""
        module: Any = compat.loaded(MODULE, ITERATOR)
        if module is not None and not self._wrapped:
            self._wrapped.wrap(getattr(module, ITERATOR), "__next__", self._timing)
            self._wrapped.wrap(module.DataLoader, "__iter__", self._noting)
            self._handle = register_optimizer_step_pre_hook(compat.hidden(self._stepping))

    def detach(self) -> None:
        self._wrapped.restore()
        if self._handle is not None:
            self._handle.remove()

    def _stepping(self, optimizer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._batches.begins(optimizer)

    def _timing(self, original: Any) -> Any:
        @functools.wraps(original)
        def timed_next(iterator: Any) -> Any:
            started = perf_counter_ns()
            try:
                return original(iterator)
            finally:
                took = perf_counter_ns() - started
                if self._wrapped and (took >= LEAST_NS or iterator not in self._met):
                    self._waited(iterator, started, took, sys._getframe(1))

        return compat.left_to_python(timed_next, original)

    def _noting(self, original: Any) -> Any:
        @functools.wraps(original)
        def timed_iter(loader: Any) -> Any:
            started = perf_counter_ns()
            iterator = original(loader)
            if self._wrapped:
                self._began(loader, iterator, started, perf_counter_ns() - started, sys._getframe(1))
            return iterator

        return compat.left_to_python(timed_iter, original)

    def _waited(self, iterator: Any, started: int, took: int, frame: FrameType) -> None:
        try:
            if not self._batches.took(iterator):
                self._met.add(iterator)
            workers = getattr(iterator, "_num_workers", None)
            if workers and not iterator._persistent_workers:
                self._samplers.add(iterator._index_sampler)
            is_first = iterator in self._again and iterator._num_yielded == 1
            if took >= LEAST_NS:
                self._tell(started, took, workers, frame, "batch" if is_first else None)
        except Exception as error:
            self._sink.failed("waits for data", error)

    def _began(self, loader: Any, iterator: Any, started: int, took: int, frame: FrameType) -> None:
        try:
            self._batches.began(loader, iterator, frame)
            if loader.num_workers and not loader.persistent_workers and loader._index_sampler in self._samplers:
                self._again.add(iterator)
                if took >= LEAST_NS:
                    self._tell(started, took, loader.num_workers, frame, "workers")
        except Exception as error:
            self._sink.failed("waits for data", error)

    def _tell(self, started: int, took: int, workers: int | None, frame: FrameType, begins: Begins | None) -> None:
        thread = threading.get_native_id()
        found = program_frame(frame)
        frame = found if found is not None and not is_script(found.f_code) else frame
        place = frame.f_code.co_filename, frame.f_lineno
        self._sink.write(DataWait(thread, started, took, workers, *place, begins))
