"""Records of calls of `eval`, `state_dict` and `load_state_dict`. `stepscope.tracer.schema.records` names them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class UnmatchedKeys(Record):
    """A call of `load_state_dict(..., strict=False)` that left tensors of a module as they were, because the keys of
    the `state_dict` and those of the module differ by a prefix."""

    KIND: ClassVar[str] = "unmatched_keys"
    TABLE: ClassVar[str | None] = "unmatched_keys"

    module: str
    """The class of the module, within the module of torch.compile if there is one."""
    tensors: int
    """The number of parameters and persistent buffers of the module."""
    missing: int
    """The number of those that were not loaded."""
    explained: int
    """The number of those that would have been loaded without the prefix."""
    given_prefix: str
    """What the keys of the `state_dict` have and those of the module lack."""
    own_prefix: str
    """What the keys of the module have and those of the `state_dict` lack."""
    given_key: str
    """The first key of the `state_dict` that matches none of the module."""
    file: str | None
    """The place in the program that calls `load_state_dict`."""
    line: int | None


@dataclass(frozen=True)
class EvalCall(Record):
    """A call of `Module.eval` for a module in train mode. The first ones are recorded."""

    KIND: ClassVar[str] = "eval_call"
    TABLE: ClassVar[str | None] = "eval_calls"

    start_ns: int
    file: str | None
    """The place in the program that calls `eval`."""
    line: int | None


@dataclass(frozen=True)
class UncopiedState(Record):
    """A call of `load_state_dict` that restored nothing, because the tensors that it got from an earlier `state_dict()`
    have the memory of the module's own parameters, which an optimizer of `torch.optim` has changed since."""

    KIND: ClassVar[str] = "uncopied_state"
    TABLE: ClassVar[str | None] = "uncopied_states"

    module: str
    """The class of the module, within the module of torch.compile if there is one."""
    optimizer: str
    """The class of the optimizer."""
    parameters: int
    """The number of the module's parameters that it trains, and that were to be restored."""
    steps: int
    """The number of steps of optimizers between the two calls."""
    saved_file: str | None
    """The place in the program that calls `state_dict`."""
    saved_line: int | None
    file: str | None
    """The place in the program that calls `load_state_dict`."""
    line: int | None
