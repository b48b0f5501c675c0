"""A corpus of small real programs, compiled for CPU, over which the recorder is tested.

A program's builder makes the model, compiles it, and returns a step: a function without arguments that runs
the compiled code once and returns every tensor that must not depend on being recorded (outputs, losses,
gradients, mutated inputs). It is called after `torch.manual_seed`, so two builds give equal numbers.

`python -m tests.programs` lists them; `python -m tests.programs NAME...` runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Step = Callable[[], Any]


@dataclass(frozen=True)
class Program:
    name: str
    build: Callable[[], Step]
    config: dict[str, Any] = field(default_factory=dict)
    """Settings of torch._inductor.config while it is built and run."""
    steps: int = 2


PROGRAMS: dict[str, Program] = {}


def program(*, steps: int = 2, **config: Any) -> Callable[[Callable[[], Step]], Callable[[], Step]]:
    """Add a builder to the corpus under its own name."""

    def add(build: Callable[[], Step]) -> Callable[[], Step]:
        PROGRAMS[build.__name__] = Program(build.__name__, build, config, steps)
        return build

    return add


def load() -> dict[str, Program]:
    """The whole corpus. Loads torch, which importing this package does not."""
    from tests.programs import codegen, control_flow, operators, shapes, training

    assert all((codegen, control_flow, operators, shapes, training))
    return PROGRAMS


# The names, so that tests can be collected without loading torch; `load` is checked against it.
NAMES = (
    "adam",
    "checkpoint_rng",
    "complex_numbers",
    "cond",
    "conv_bn",
    "cpp_wrapper",
    "custom_multi_output",
    "custom_mutating",
    "dropout",
    "dynamic_shapes",
    "flex_attention",
    "foreach",
    "graph_break",
    "inference",
    "inplace_input",
    "integers",
    "invoke_subgraph",
    "item_branch",
    "max_autotune",
    "memory_planning",
    "partition_off",
    "partition_on",
    "scatter",
    "threads",
    "transformer",
    "unbacked_nonzero",
    "while_loop",
    "while_loop_zero",
    "collective",  # last: it opens a process group, which then stays
)
