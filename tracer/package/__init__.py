"""Records PyTorch programs compiled with `torch.compile`, and reads the recorded logs.

    import stepscope

    with stepscope.trace("out/"):
        train()

Importing this package imports nothing else; the recorder is imported when one of its names is first used.
This file is installed as ``stepscope/__init__.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.tracer import ConfigError as ConfigError
    from stepscope.tracer import LifetimeError as LifetimeError
    from stepscope.tracer import TraceConfig as TraceConfig
    from stepscope.tracer import __version__ as __version__
    from stepscope.tracer import check_memory_step as check_memory_step
    from stepscope.tracer import configure as configure
    from stepscope.tracer import judge_calls as judge
    from stepscope.tracer import step as step
    from stepscope.tracer import trace as trace
    from stepscope.tracer import track_tensor as track_tensor
    from stepscope.tracer import tracked_empty_strided as tracked_empty_strided

__all__ = ["ConfigError", "LifetimeError", "TraceConfig", "__version__", "check_memory_step", "configure", "step"]
__all__ += ["judge", "trace", "track_tensor", "tracked_empty_strided"]


def __getattr__(name: str) -> Any:
    """Return a name of the recorder, imported at its first use. Raises AttributeError for other names."""
    if name not in __all__:
        raise AttributeError(f"module 'stepscope' has no attribute {name!r}")
    from stepscope import tracer

    return getattr(tracer, "judge_calls" if name == "judge" else name)  # stepscope.tracer.judge is a package


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%stepscope``; IPython calls this at ``%load_ext stepscope``."""
    from stepscope.tracer.integrations.ipython import register

    register(shell)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
