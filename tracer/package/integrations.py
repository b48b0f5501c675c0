"""Callbacks for the training loops of other libraries, each imported at its first use.

    from stepscope.integrations import TrainerCallback  # transformers
    from stepscope.integrations import LightningCallback

This file is installed as ``stepscope/integrations.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.tracer.integrations.lightning import LightningCallback as LightningCallback
    from stepscope.tracer.integrations.trainer import TrainerCallback as TrainerCallback

_MODULES = {"LightningCallback": "lightning", "TrainerCallback": "trainer"}
__all__ = ["LightningCallback", "TrainerCallback"]


def __getattr__(name: str) -> Any:
    """Return a callback. Raises ImportError if its library is not installed, AttributeError for other names."""
    if name not in _MODULES:
        raise AttributeError(f"module 'stepscope.integrations' has no attribute {name!r}")
    return getattr(import_module(f"stepscope.tracer.integrations.{_MODULES[name]}"), name)
