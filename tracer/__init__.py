"""stepscope's recorder. Importing it loads no torch.

    with tracer.trace("out/"):
        train()

`tracer.step()` marks the end of a step; without it steps are found from optimizers, else from the calls.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tracer._version import __version__
from tracer.config import ConfigError, TraceConfig

if TYPE_CHECKING:
    from tracer.recorder import Recorder

__all__ = ["ConfigError", "TraceConfig", "__version__", "step", "trace"]


def trace(directory: str | os.PathLike[str], *, level: str = "launches", provenance: bool = True) -> Recorder:
    """A recorder of this process's compiled programs: a context manager, or `start()` and `stop()`.

    The log goes to a new file in `directory`, made when the first record is written. Raises ConfigError for a
    level that does not exist.
    """
    from tracer.recorder import Recorder

    return Recorder(TraceConfig(Path(directory), level=level, provenance=provenance))


def step() -> None:
    """Mark the end of a step. Does nothing when nothing is recorded."""
    from tracer.recorder import current

    recorder = current()
    if recorder is not None:
        recorder.step()
