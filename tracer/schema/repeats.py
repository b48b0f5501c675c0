"""Records of what each step of a training repeats. `stepscope.tracer.schema.records` names them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class RepeatedSeed(Record):
    """The program gave a generator the same seed again between successive steps of an optimizer of `torch.optim`, and
    the generator had the same state before each of these steps."""

    KIND: ClassVar[str] = "repeated_seed"
    TABLE: ClassVar[str | None] = "repeated_seeds"

    function: str
    """The function that was called last before each of the steps, such as ``torch.manual_seed``."""
    seed: str
    """A number of up to 64 bits."""
    device: Literal["cpu", "cuda"]
    """The type of the device that has the generator."""
    called_ns: list[int]
    """When it was called, once for each of the steps."""
    file: str
    """The place in the program that calls it, or that calls a function of an installed package which does."""
    line: int


@dataclass(frozen=True)
class RepeatedBatch(Record):
    """A `torch.utils.data.DataLoader` that does not shuffle, of which the program has taken the first batch, and no
    other one, before each of several successive steps of an optimizer of `torch.optim`."""

    KIND: ClassVar[str] = "repeated_batch"
    TABLE: ClassVar[str | None] = "repeated_batches"

    batch_size: int | None
    """None if the samples are not put together to batches."""
    batches: int
    """The number of batches that the loader has."""
    samples: int
    """The number of samples of all batches."""
    steps: int
    file: str
    """The place in the program that makes a new iterator of the loader in each step."""
    line: int
