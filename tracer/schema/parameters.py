"""Records of the parameters of optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class NonfiniteParameters(Record):
    """An optimizer of `torch.optim` some of whose parameters became NaN or infinite. They are looked at before its
    first step, after its steps 1, 2, 4, 8 and so on, and when the recording ends."""

    KIND: ClassVar[str] = "nonfinite_parameters"
    TABLE: ClassVar[str | None] = "nonfinite_parameters"

    name: str
    """The class of the optimizer."""
    steps: int
    """The number of its steps until they were seen."""
    finite_steps: int
    """The number of its steps until they were last seen to be finite; 0 before the first one."""
    is_last: bool
    """Whether they were seen when the recording ended; steps in replays of CUDA graphs are not counted."""
    parameters: int
    """The number of parameters that were looked at."""
    nonfinite: int
    """The number of those that became NaN or infinite."""
    is_nan: bool
    """Whether one of them holds NaN; otherwise they hold infinities only."""
    names: list[str | None]
    """The first ones, by a variable or the class of an outer module; None for those that belong to no module."""
    nan_before: list[str | None]
    """The first ones that held NaN already when they were first looked at, which do not count."""
    first_step: int
    """The number of the recorded step in which they were last seen to be finite, as for `--steps`."""
    last_step: int
    """That of the step in which they were seen."""
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None
    nonfinite_float16: int | None = None
    """The number of those that became NaN or infinite and are in float16; None in older logs."""
    infinite_before: int | None = None
    """The number of parameters that held infinities, but no NaN, when they were first looked at; None in older logs."""
    groups: int | None = None
    """The number of parameter groups, if the learning rate of one is at least ten times the median."""
    largest_rate: float | None = None
    median_rate: float | None = None
    largest_rate_names: list[str | None] | None = None
    """The first parameters of the group with the largest learning rate."""


@dataclass(frozen=True)
class ZeroGradients(Record):
    """An optimizer of `torch.optim` that got gradients which were zero before each of some of its steps, or most of
    whose other elements were subnormal numbers of float16 before the last of these."""

    KIND: ClassVar[str] = "zero_gradients"
    TABLE: ClassVar[str | None] = "zero_gradients"

    name: str
    """The class of the optimizer."""
    looked: list[int]
    """Its steps, counted from 1, before which the gradients were looked at."""
    parameters: int
    """The number of parameters with a gradient in the last one."""
    zero: int
    """The number of those whose gradients were zero in each one."""
    names: list[str | None]
    """The first ones, by a variable or the class of an outer module; None for those that belong to no module."""
    elements: int
    """The number of elements of all gradients that were compared with the range of float16 in the last one."""
    zero_elements: int
    """The number of those that were zero."""
    tiny_elements: int
    """The number of those that were subnormal numbers of float16; 0 unless they are most of those that are not zero."""
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None


@dataclass(frozen=True)
class LearningRate(Record):
    """The largest learning rate of an optimizer of `torch.optim` in its first step, or in a step in which it is at
    least twice or at most half the last one that was recorded. Rates that are tensors are left out."""

    KIND: ClassVar[str] = "learning_rate"
    TABLE: ClassVar[str | None] = "learning_rates"

    name: str
    """The class of the optimizer."""
    rate: float
    before: float | None
    """The rate in the step before; None in the first step."""
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None
    rounded_eps: float | None = None
    """The `eps` in the first step of an optimizer that divides by a mean of squared gradients, if it rounds to zero in
    float16 and a parameter with a gradient has this dtype; otherwise None. Fused optimizers compute in float32."""
    scheduler: str | None = None
    """The class of the scheduler of `torch.optim.lr_scheduler` that has stepped last; None if none has."""
    scheduler_file: str | None = None
    """The place in the program that calls the scheduler's `step`."""
    scheduler_line: int | None = None
