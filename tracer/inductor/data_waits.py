"""Records how long the program waits for batches of a DataLoader: graphs do not run in this time.

All iterators of loaders share one `__next__`, and `DataLoader.__iter__` makes them (torch/utils/data/dataloader.py).
Only long waits become records, so that a loader that keeps up costs two readings of the clock for each batch.
"""

from __future__ import annotations

import functools
import sys
import threading
from time import perf_counter_ns
from types import FrameType
from typing import Any, Protocol

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions
from stepscope.tracer.runtime.program_frames import is_script, program_frame
from stepscope.tracer.schema.steps import DataWait

MODULE, ITERATOR = "torch.utils.data.dataloader", "_BaseDataLoaderIter"
LEAST_NS = 1_000_000
"""Shortest wait that is recorded."""


class DataWaitSink(Protocol):
    """The part of the recorder that is used here."""

    def data_wait(self, record: DataWait) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class DataWaits:
    """Records each long wait for a batch, in any thread."""

    def __init__(self, sink: DataWaitSink) -> None:
        self._sink = sink
        self._wrapped = WrappedFunctions()

    def attach(self) -> None:
        """Wrap the iterators; does nothing before their module is imported, nor a second time."""
        module: Any = compat.loaded(MODULE, ITERATOR)
        if module is not None and not self._wrapped:
            self._wrapped.wrap(getattr(module, ITERATOR), "__next__", self._timing)
            self._wrapped.wrap(module.DataLoader, "__iter__", self._timing)

    def detach(self) -> None:
        self._wrapped.restore()

    def _timing(self, original: Any) -> Any:
        @functools.wraps(original)
        def timed(owner: Any) -> Any:
            yielded = getattr(owner, "_num_yielded", None)
            started = perf_counter_ns()
            try:
                return original(owner)
            finally:
                took = perf_counter_ns() - started
                if took >= LEAST_NS and self._wrapped:
                    self._tell(owner, yielded, started, took, sys._getframe(1))

        return compat.left_to_python(timed, original)

    def _tell(self, owner: Any, yielded: int | None, started: int, took: int, frame: FrameType) -> None:
        """Record a wait of a loader, of which `yielded` is None, or of an iterator that had yielded so many batches."""
        try:
            of = "" if yielded is None else "_"
            workers, persist = (getattr(owner, of + name, None) for name in ("num_workers", "persistent_workers"))
            begins: Any = {None: "workers", 0: "batch"}.get(yielded) if workers and not persist else None
            if yielded is None and begins is None:  # no worker was started
                return
            thread = threading.get_native_id()
            found = program_frame(frame)
            frame = found if found is not None and not is_script(found) else frame
            place = frame.f_code.co_filename, frame.f_lineno
            self._sink.data_wait(DataWait(thread, started, took, workers, *place, begins))
        except Exception as error:
            self._sink.failed("waits for data", error)
