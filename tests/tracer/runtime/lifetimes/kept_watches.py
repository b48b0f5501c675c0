"""A watch of kept tensors without a recorder."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from stepscope.tracer.runtime.lifetimes.kept_tensors import LOOKS, KeptTensorsWatch
from stepscope.tracer.schema.memory import Growth, KeptTensors

SIZE = 128, 131
"""Sizes that no other tensor of the process has, with more than 64 KiB."""
BYTES = 128 * 131 * 4
STEPS = LOOKS[0][-1] + 1


class Sink:
    """A recorder that notes what it is told."""

    def __init__(self) -> None:
        self.is_on, self.written, self.failures = True, list[KeptTensors](), list[str]()
        self.lifetimes: Any = SimpleNamespace(is_on=True, every=1, storages=list)
        self.cuda_graphs = SimpleNamespace(is_capturing=lambda: False)

    def write(self, record: KeptTensors | Growth) -> None:
        assert isinstance(record, KeptTensors), "no tracker follows results"
        self.written.append(record)

    def failed(self, where: str, error: BaseException) -> None:
        self.failures.append(f"{where}: {error}")


def watched(step: Callable[[int], object], steps: int = STEPS, sink: Sink | None = None) -> list[KeptTensors]:
    sink = sink or Sink()
    watch = KeptTensorsWatch(sink)
    for number in range(steps):
        assert watch.at_step(number) == number
        step(number)
    assert not sink.failures
    return [one for one in sink.written if tuple(one.sizes) == SIZE]
