"""Records of steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from stepscope.tracer.schema.record import Record

HookAttribute = Literal[
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks"
]


@dataclass(frozen=True)
class Steps(Record):
    """A batch of steps that have ended, as columns. Calls show a step that has not ended. Since format version 2, only
    logs of printed text have this record."""

    KIND: ClassVar[str] = "steps"

    step: list[int]
    kind: list[Literal["train", "inference"]]
    by: list[Literal["user", "optimizer", "call"]]
    """The event that ended the step: `stepscope.step()`, an optimizer, or a call of a frame that had already run."""
    start_ns: list[int]
    end_ns: list[int]
    """The end of the step; -2 if the time is unknown."""


@dataclass(frozen=True)
class StepMarks(Record):
    """Events that may end a step, as columns. The reader of the complete log decides which of them do, because an
    iteration may have several optimizers, and the first calls run before any optimizer has stepped."""

    KIND: ClassVar[str] = "step_marks"

    what: list[Literal["user", "optimizer", "begin", "end"]]
    """``user``: `stepscope.step()` was called; ``optimizer``: an optimizer has stepped; ``begin`` and ``end``: a
    function of which each call is a step (`generate` of transformers) began or ended."""
    who: list[int]
    """The number of the optimizer, counted from 0 in the order in which optimizers first step; 0 for other marks."""
    name: list[str | None]
    """The class of the optimizer; None for other marks."""
    thread: list[int]
    ns: list[int]


Begins = Literal["workers", "batch"]


@dataclass(frozen=True)
class DataWait(Record):
    """The program waited for a batch of a `torch.utils.data.DataLoader`. Waits under a millisecond are left out."""

    KIND: ClassVar[str] = "data_wait"
    TABLE: ClassVar[str | None] = "data_waits"

    thread: int
    start_ns: int
    duration_ns: int
    workers: int | None
    """The `num_workers` of the loader; 0 if the program itself made the batch in this time."""
    file: str | None
    """The place in the program that asked for the batch, outside of installed packages if there is one."""
    line: int | None
    begins: Begins | None = None
    """``workers`` if the loader, which had started workers before, started its worker processes in this time, ``batch``
    if they made their first batch; None for other waits, for persistent workers, and in older logs."""


@dataclass(frozen=True)
class OptimizerStep(Record):
    """An optimizer of `torch.optim` stepped. Steps under a millisecond are left out, and those with a closure."""

    KIND: ClassVar[str] = "optimizer_step"
    TABLE: ClassVar[str | None] = "optimizer_steps"

    thread: int
    start_ns: int
    duration_ns: int
    name: str
    """The class of the optimizer."""
    is_fused: bool | None = None
    """Whether one kernel updates all parameters of a group; None if the optimizer cannot do that."""
    file: str | None = None
    """The place in the program that calls `step`."""
    line: int | None = None


@dataclass(frozen=True)
class KeptGradients(Record):
    """An optimizer of `torch.optim` after whose steps gradients were still there when the next backward pass of a
    compiled graph began, which adds to them. Written when the recording ends."""

    KIND: ClassVar[str] = "kept_gradients"
    TABLE: ClassVar[str | None] = "kept_gradients"

    name: str
    """The class of the optimizer."""
    kept: int
    """The number of steps after which the gradients were kept."""
    cleared: int
    """The number of steps after which they were zero, replaced or written."""
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None


@dataclass(frozen=True)
class ClearedGradients(Record):
    """An optimizer of `torch.optim`: `zero_grad` cleared gradients that no step of it had used, equally often before
    each of several successive steps. Written when the recording ends."""

    KIND: ClassVar[str] = "cleared_gradients"
    TABLE: ClassVar[str | None] = "cleared_gradients"

    name: str
    """The class of the optimizer."""
    steps: int
    """The largest number of such steps."""
    cleared: int
    """How often unused gradients were cleared before each of them."""
    steps_without: int
    """The number of steps before which no unused gradients were cleared."""
    zero_grad_file: str | None
    """The place in the program that calls `zero_grad`."""
    zero_grad_line: int | None
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None


@dataclass(frozen=True)
class LostUpdates(Record):
    """An optimizer of `torch.optim` whose steps left most elements of its parameters as they were, because the dtype of
    the parameters rounds the changes away. Elements of some parameters were compared over five steps."""

    KIND: ClassVar[str] = "lost_updates"
    TABLE: ClassVar[str | None] = "lost_updates"

    name: str
    """The class of the optimizer."""
    dtype: str
    parameters: int
    """The number of parameters that were looked at."""
    elements: int
    """The number of elements that had a gradient other than zero in each of the steps."""
    unchanged: int
    """The number of those that had the same value before and after each of the steps."""
    learning_rate: float
    """The largest learning rate of the last step."""
    magnitude: float
    """The median magnitude of the unchanged elements."""
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None


@dataclass(frozen=True)
class MisplacedClipping(Record):
    """Calls of `clip_grad_norm_` in several successive steps of an optimizer of `torch.optim` that did not limit the
    gradients with which it stepped."""

    KIND: ClassVar[str] = "misplaced_clipping"
    TABLE: ClassVar[str | None] = "misplaced_clipping"

    name: str
    """The class of the optimizer."""
    steps: int
    """The number of such steps."""
    max_norm: float
    scale: float | None
    """The scale by which `GradScaler` divided the gradients after the call, in the last of these steps; None if the
    call came after the step, and `zero_grad` before the next one."""
    clip_file: str | None
    """The place in the program that calls `clip_grad_norm_`."""
    clip_line: int | None
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None


@dataclass(frozen=True)
class MissingGradients(Record):
    """An optimizer of `torch.optim` some or all of whose parameters had no gradient in its first steps."""

    KIND: ClassVar[str] = "missing_gradients"
    TABLE: ClassVar[str | None] = "missing_gradients"

    name: str
    """The class of the optimizer."""
    steps: int
    """The number of steps that were looked at."""
    parameters: int
    """The number of parameters that require a gradient."""
    missing: int
    """The number of those that had none."""
    unowned: int
    """The number of those that belong to no module."""
    names: list[str | None]
    """The names of the first ones in the outermost module that has them; None for those that belong to no module."""
    sizes: list[list[int]]
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None
    cleared: int = 0
    """The number of these steps before which `zero_grad` had cleared gradients of these parameters."""
    zero_grad_file: str | None = None
    """The place in the program that calls `zero_grad`."""
    zero_grad_line: int | None = None
    checkpointed: int = 0
    """The number of those without a gradient that run only in reentrant checkpoints without an input that requires
    one."""
    checkpoint_file: str | None = None
    """The place in the program that calls such a checkpoint."""
    checkpoint_line: int | None = None


@dataclass(frozen=True)
class UntrainedParameters(Record):
    """Parameters that a captured graph takes from a module, and that have gradients and belong to no optimizer,
    although an optimizer of `torch.optim` trains other parameters of the module: those in one of its plain lists or
    dictionaries, or those that it registers, which keep their values in two of its first steps."""

    KIND: ClassVar[str] = "untrained_parameters"
    TABLE: ClassVar[str | None] = "untrained_parameters"

    name: str
    """The class of the optimizer."""
    trained: int
    """The number of its parameters."""
    container: str
    """Dynamo's expression of the list or dictionary, or of the module that has all of the parameters."""
    parameters: int
    """The number of parameters in it without an optimizer."""
    names: list[str]
    """Dynamo's expressions of the first ones."""
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None
    is_registered: bool = False
    """Whether `Module.parameters` names them."""


@dataclass(frozen=True)
class SharedParameters(Record):
    """Parameters of modules that an optimizer of `torch.optim` trains, and that have the same memory as others, which
    no optimizer trains. One parameter that several modules have does not count. If there are none, tensors in
    containers that have the memory of trained parameters, such as those of a `state_dict()`, if the program writes to
    it."""

    KIND: ClassVar[str] = "shared_parameters"
    TABLE: ClassVar[str | None] = "shared_parameters"

    name: str
    """The class of the optimizer."""
    parameters: int
    """The number of parameters that are not trained."""
    names: list[str]
    """The parameters that are trained, as of the first ones, by a variable or the class of an outer module."""
    others: list[str]
    """The ones that are not trained, in the same order."""
    is_in_graph: bool
    """Whether a captured graph uses two parameters of the same memory."""
    is_written: bool
    """Whether the program wrote to the memory between two of the first steps."""
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None
    are_tensors: bool = False
    """Whether the ones that are not trained are tensors in containers, and no parameters."""


@dataclass(frozen=True)
class ChangedHooks(Record):
    """A hook of a module that was added or removed after the module was compiled, while no compile of the frame has
    followed: compiled code does not run the hook, or still runs it."""

    KIND: ClassVar[str] = "changed_hooks"
    TABLE: ClassVar[str | None] = "changed_hooks"

    frame: str
    """The number of the frame whose compiled code calls the module."""
    call: int
    """The call of the frame at which it was seen, counted from 1."""
    module: str
    """The module, by a variable or the class of an outer module."""
    attribute: HookAttribute
    """Where the module keeps it."""
    name: str
    """The function that is the hook, or the class of another object."""
    file: str | None
    """The place at which the function begins; None if it has no Python code."""
    line: int | None
    is_added: bool
    """Whether it was added; otherwise it was removed."""


@dataclass(frozen=True)
class PiledHooks(Record):
    """A function that the program registers as a hook of a parameter or of a module in each step, and that it never
    removes. The hooks were counted before three steps of an optimizer of `torch.optim`."""

    KIND: ClassVar[str] = "piled_hooks"
    TABLE: ClassVar[str | None] = "piled_hooks"

    attribute: HookAttribute
    """Where the parameter or the module keeps the hooks."""
    name: str
    """The function that is the hook, or the class of another object."""
    file: str | None
    """The place at which the function begins; None if it has no Python code."""
    line: int | None
    owner: str
    """The first parameter or module with such hooks, by a variable or the class of an outer module."""
    is_parameter: bool
    """Whether it is a parameter."""
    owners: int
    """The number of parameters and modules with such hooks."""
    hooks: int
    """The number of these hooks that the first one had in the end."""
    step: int
    """The step of the optimizer before which they were counted last, counted from 1."""
    step_file: str | None
    """The place in the program that calls `step`."""
    step_line: int | None


@dataclass(frozen=True)
class CallSite(Record):
    """A line of the program from which it calls a compiled graph, or a line that runs its backward pass. Each line is
    recorded once, if one of the first calls of the graph comes from it."""

    KIND: ClassVar[str] = "call_site"
    TABLE: ClassVar[str | None] = "call_sites"

    graph: int
    file: str
    """Outside of installed packages."""
    line: int
    function: str
    code: str
    after_line: int | None = None
    """The line of the call before, if that came from the same function not far above."""
    lines_between: list[str] = field(default_factory=list)
    """The lines of the program between the two."""


@dataclass(frozen=True)
class SampledLines(Record):
    """The lines of the program that were seen to run between calls of graphs, from the outermost frame to the innermost
    one, without those of installed packages. Each such stack is recorded once."""

    KIND: ClassVar[str] = "sampled_lines"
    TABLE: ClassVar[str | None] = "sampled_lines"

    place: int
    """The number of the stack in its log."""
    files: list[str]
    lines: list[int]
    functions: list[str]
    code: list[str]


@dataclass(frozen=True)
class LineSamples(Record):
    """When the thread that calls graphs was seen to run which lines between the calls, as columns. Samples are taken
    only once several long gaps between calls were seen."""

    KIND: ClassVar[str] = "line_samples"
    TABLE: ClassVar[str | None] = "line_samples"

    thread: list[int]
    ns: list[int]
    place: list[int]
    """The number of the stack of lines."""
    held_ns: list[int] = field(default_factory=list)
    """For how long (ns) the thread then had kept other threads from running, as Python code does until it calls
    something that lets them run; 0 if it let them run already. It had come to its line only at the end of this time.
    Older logs have an empty list."""
    delayed: list[int] = field(default_factory=list)
    """For how many percent of the time since the last look the thread waited for a core; a wait counts when it ends, so
    that this may be more than 100. Older logs have an empty list."""
    looks_in_calls: int = 0
    """The number of looks since the last record at which a call of a graph ran, so that no sample was taken."""
    delayed_in_calls: int = 0
    """The sum of the percentages of the time before these looks in which the thread waited for a core."""
