"""The recorder of stepscope. Importing it does not import torch.

    with stepscope.trace("out/"):
        train()

`stepscope.step()` marks the end of a step; without it, steps are found from optimizers, or else from the calls.
`stepscope.configure()` changes what is recorded while the program runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stepscope.tracer._version import __version__
from stepscope.tracer.config import ConfigError, TraceConfig, changed, make_config

if TYPE_CHECKING:
    from stepscope.tracer.recorder import Recorder
    from stepscope.tracer.runtime.lifetimes.lifecycle_checks import check_memory_step as check_memory_step
    from stepscope.tracer.runtime.lifetimes.lifecycle_checks import track_tensor as track_tensor
    from stepscope.tracer.runtime.lifetimes.lifecycle_checks import tracked_empty_strided as tracked_empty_strided
    from stepscope.tracer.runtime.lifetimes.mismatches import LifetimeError as LifetimeError

__all__ = ["ConfigError", "TraceConfig", "__version__", "configure", "judge_calls", "step", "trace"]
__all__ += ["LifetimeError", "check_memory_step", "track_tensor", "tracked_empty_strided"]


def __getattr__(name: str) -> Any:
    """Import the checks of memory lifecycles on first use, since few programs use them."""
    if name not in __all__:
        raise AttributeError(f"module 'stepscope' has no attribute {name!r}")
    from stepscope.tracer.runtime.lifetimes import lifecycle_checks

    return getattr(lifecycle_checks, name)


def trace(
    directory: str | os.PathLike[str],
    *,
    level: str = "launches",
    provenance: bool = True,
    kernels: str | Sequence[str] = (),
    args: str | Sequence[str] = (),
    steps: str | tuple[int, int | None] | None = None,
    every: int = 1,
    max_bytes_per_tensor: int | str | None = None,
    verify_before: bool = False,
    save_quota_bytes: int | str = 1_000_000_000,
    elements: int | str = 0,
    judge: str | int = "off",
    judge_kernels: str | Sequence[str] = (),
    profile: str | tuple[int, int | None] | None = None,
    check_recompute: bool = False,
    check_eager: int | str = 0,
    judge_layers: bool = False,
    red_zones: bool = False,
    lifetimes: str = "log",
    lifetimes_every: int | None = None,
) -> Recorder:
    """Return a recorder of this process's compiled programs: a context manager with `start()` and `stop()`.

    The log is a new file in `directory`, created at the first record. The settings are those of
    `TraceConfig`; strings are parsed as by `stepscope run` (``steps="3:5"``, ``max_bytes_per_tensor="4M"``,
    ``kernels="triton_*,extern_kernels.mm"``). Raises ConfigError for a value that is not allowed.
    """
    config = make_config(**locals())
    from stepscope.tracer.recorder import Recorder

    return Recorder(config)


def configure(**changes: Any) -> bool:
    """Change settings of the running recording; takes the keywords of `trace`. Nothing is compiled again.

    Returns False if no recording runs. Raises ConfigError, and changes nothing, for a setting that does not exist,
    a value that is not allowed, or a setting that cannot be changed (`stepscope.tracer.config.FIXED`).
    """
    from stepscope.tracer.runtime.active import current

    recorder = current()
    if recorder is None:
        return False
    recorder.configure(changed(recorder.config, **changes))
    return True


@contextmanager
def judge_calls() -> Iterator[bool]:
    """Judge the launches of the compiled calls that begin inside, in any thread; yield whether a recording runs.

    This is `stepscope.judge`.
    Each launch is recomputed from the inputs that it reads, in eager code and in float64, which takes tens of times
    as long as the launch. Results, gradients and random numbers stay the same.
    """
    from stepscope.tracer.runtime.active import current

    recorder = current()
    if recorder is None:
        yield False
        return
    with recorder.judging():
        yield True


def step() -> None:
    """Mark the end of a step; does nothing if no recording runs."""
    from stepscope.tracer.runtime.active import current

    recorder = current()
    if recorder is not None:
        recorder.step()
