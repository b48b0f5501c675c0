"""What to record: from arguments of `tracer.trace` or from the STEPSCOPE_* variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LEVELS = ("off", "launches")


class ConfigError(ValueError):
    """A setting has a value that cannot be."""


@dataclass(frozen=True)
class TraceConfig:
    """Settings of a recording.

    Raises ConfigError for a level that does not exist.
    """

    directory: Path
    level: str = "launches"
    """``off`` or ``launches``: names, arguments and times of every kernel launch."""
    provenance: bool = True
    """Ask Inductor to keep kernels' lines of model source. Part of its cache key: each graph compiles once more."""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ConfigError(f"level is {self.level!r}; it can be {' or '.join(LEVELS)}")


def from_environment(environ: Mapping[str, str] = os.environ) -> TraceConfig | None:
    """The recording that STEPSCOPE_TRACE asks for, or None. Raises ConfigError."""
    directory = environ.get("STEPSCOPE_TRACE")
    if not directory:
        return None
    return TraceConfig(
        directory=Path(directory),
        level=environ.get("STEPSCOPE_LEVEL", "launches"),
        provenance=environ.get("STEPSCOPE_PROVENANCE", "1") != "0",
    )


def to_environment(config: TraceConfig) -> dict[str, str]:
    """The variables from which `from_environment` makes `config` again."""
    return {
        "STEPSCOPE_TRACE": str(config.directory.absolute()),
        "STEPSCOPE_LEVEL": config.level,
        "STEPSCOPE_PROVENANCE": "1" if config.provenance else "0",
    }
