"""Changes settings of Inductor that decide how numbers are computed, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.fx import GraphModule

from stepscope.tracer.inductor.captured_graph import copied
from stepscope.tracer.inductor.unrecorded import hidden

SETTINGS: tuple[tuple[str, Any], ...] = (
    ("emulate_precision_casts", True),
    ("eager_numerics.division_rounding", True),
    ("numerics", "strict"),
    ("deterministic", True),
    ("pattern_matcher", False),
    ("use_joint_graph_passes", False),
    ("use_post_grad_passes", False),
    ("epilogue_fusion", False),
    ("max_fusion_size", 1),
    ("inplace_buffers", False),
    ("allow_buffer_reuse", False),
    ("cpp.simdlen", 1),
    ("post_grad_custom_pre_pass", None),
    ("post_grad_custom_post_pass", None),
    ("joint_custom_pre_pass", None),
    ("joint_custom_post_pass", None),
)
"""Settings with the value that is tried, those that cost least first; the installed torch may not have all of them."""


def untried() -> list[tuple[str, Any]]:
    """Return the settings that the installed torch has, and that have another value now.

    A setting that another one implies, as `numerics` does since torch 2.15, has the implied value.
    """
    from torch._inductor import config

    known = config.get_config_copy()
    return [(name, value) for name, value in SETTINGS if name in known and getattr(config, name) != value]


@contextmanager
def changed(name: str, value: Any) -> Iterator[None]:
    """Change one setting. Nothing that is compiled meanwhile, backwards included, is recorded."""
    from torch._inductor import config

    with hidden(), config.patch({name: value}):
        yield


def compiled(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a graph compiled for `inputs`."""
    import torch._inductor

    function: Callable[..., Any] = torch._inductor.compile(copied(module), list(inputs))
    return function
