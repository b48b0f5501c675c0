"""What to record: from arguments of `stepscope.trace`, options of `stepscope run`, or the STEPSCOPE_* variables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

LEVELS = ("off", "launches", "values", "save")
LIFETIMES = ("off", "log", "assert")
MOST = 2**63 - 1
MOST_ELEMENTS = 1024
FIXED = ("directory", "provenance", "check_recompute")
"""Settings that cannot change while a recording runs: the log is open, the programs are compiled."""

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("kmgt", 1)}
_BYTES = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))? ?(?:([kmgt]i?)b?|b)?", re.IGNORECASE)
_STEPS = re.compile(r"([0-9]{0,19})(?:(:)([0-9]{0,19}))?")


class ConfigError(ValueError):
    """A setting has a value that cannot be: ``steps is '5:3', which holds no step``."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.setting} {self.problem}"


@dataclass(frozen=True)
class TraceConfig:
    """Settings of a recording. Raises ConfigError for a value that cannot be."""

    directory: Path
    level: str = "launches"
    """``off``; ``launches``: names, arguments and times of every kernel launch; ``values``: and statistics of the
    tensors before and after; ``save``: and the tensors themselves, as .pt files."""
    provenance: bool = True
    """Ask Inductor to keep kernels' lines of model source. Part of its cache key: each graph compiles once more."""
    kernels: tuple[str, ...] = ()
    """Globs, case-sensitive: read and save tensors of kernels with such names only. Empty: of all."""
    args: tuple[str, ...] = ()
    """Globs, case-sensitive: read and save arguments with such names only. Empty: all."""
    steps: tuple[int, int | None] | None = None
    """Read and save in these steps only: from the first up to, not including, the second. None: in all."""
    every: int = 1
    """Read and save in every N-th step only, counted from the first of `steps`."""
    max_bytes_per_tensor: int | None = None
    """Of a larger tensor the statistics are over a strided sample. None: always over all of it."""
    verify_before: bool = False
    """Read a tensor again before each launch that uses it: finds writes that no launch made."""
    save_quota_bytes: int = 1_000_000_000
    """Most bytes of .pt files that one process writes."""
    lifetimes: str = "log"
    """``log``: when storages are born and die, and where that is not as expected; ``assert``: and raise
    `stepscope.LifetimeError` in the program there; ``off``."""
    lifetimes_every: int | None = None
    """Follow storages in the first 8 calls of a graph, then in every N-th step. None: in all steps, as ``assert``
    does, where a C++ compiler makes that cheap; in every 16th step elsewhere."""
    elements: int = 0
    """Keep all elements of tensors that have so many at the most, beside their statistics; 0: of none."""
    check_recompute: bool = False
    """Compare the memory that Inductor's reordering passes carry along with a full recomputation after each swap;
    costs compile time: one estimate of the whole graph a swap. Nothing that is compiled changes."""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ConfigError("level", f"is {self.level!r}; it can be {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
        if self.lifetimes not in LIFETIMES:
            raise ConfigError("lifetimes", f"is {self.lifetimes!r}; it can be off, log or assert")
        for name in ("kernels", "args"):
            _check_globs(name, getattr(self, name))
        if self.steps is not None:
            _check_steps(self.steps)
        _check_number("every", self.every, 1)
        _check_number("elements", self.elements, 0, MOST_ELEMENTS)
        if self.lifetimes_every is not None:
            _check_number("lifetimes_every", self.lifetimes_every, 1)
        _check_number("save_quota_bytes", self.save_quota_bytes, 0)
        if self.max_bytes_per_tensor is not None:
            _check_number("max_bytes_per_tensor", self.max_bytes_per_tensor, 1)
        for name in ("provenance", "verify_before", "check_recompute"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(name, f"is {getattr(self, name)!r}; it can be True or False")

    def wants_step(self, step: int) -> bool:
        """Whether tensors are read in `step`."""
        first, stop = self.steps or (0, None)
        return step >= first and (stop is None or step < stop) and (step - first) % self.every == 0

    def wants_kernel(self, name: str) -> bool:
        """Whether a glob of `kernels` matches the whole of `name`, dots included (``extern_kernels.mm``)."""
        return not self.kernels or any(fnmatchcase(name, glob) for glob in self.kernels)

    def wants_argument(self, *names: str | None) -> bool:
        """Whether a glob of `args` matches one of the names that an argument has; None is no name."""
        return not self.args or any(fnmatchcase(name, glob) for name in names if name for glob in self.args)


def make_config(directory: str | os.PathLike[str], **settings: Any) -> TraceConfig:
    """A TraceConfig; `settings` may be in the form in which they are typed: ``steps="3:5", args="buf*,out"``.

    Raises ConfigError for a setting that does not exist or a value that cannot be.
    """
    return TraceConfig(Path(directory), **_parsed(settings))


def changed(config: TraceConfig, **changes: Any) -> TraceConfig:
    """`config` with settings changed while its recording runs. Raises ConfigError, also for one of FIXED."""
    for name in FIXED:
        if name in changes:
            raise ConfigError(name, "cannot be changed while a recording runs")
    return replace(config, **_parsed(changes))


def from_environment(environ: Mapping[str, str] = os.environ) -> TraceConfig | None:
    """The recording that STEPSCOPE_TRACE asks for, or None. A variable that is empty counts as not set.

    Raises ConfigError, which names the variable.
    """
    if not environ.get("STEPSCOPE_TRACE"):
        return None
    settings = {name: environ[key] for name, key in VARIABLES.items() if environ.get(key)}
    try:
        return make_config(**settings)
    except ConfigError as error:
        raise ConfigError(VARIABLES[error.setting], error.problem) from None


def to_environment(config: TraceConfig) -> dict[str, str]:
    """The variables from which `from_environment` makes `config` again, with an absolute directory."""
    values = {name: getattr(config, name) for name in VARIABLES} | {"directory": config.directory.absolute()}
    return {VARIABLES[name]: _typed(value) for name, value in values.items()}


def option_of(setting: str) -> str:
    """The option of `stepscope run` for a setting: ``--save-quota``."""
    return "--" + VARIABLES[setting].removeprefix("STEPSCOPE_").lower().replace("_", "-")


def _typed(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple) and value and isinstance(value[0], int):
        return f"{value[0]}:{'' if value[1] is None else value[1]}"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _parsed(settings: Mapping[str, Any]) -> dict[str, Any]:
    for name in settings:
        if name not in VARIABLES or name == "directory":
            raise ConfigError(name, f"is no setting; there are: {', '.join(VARIABLES)}")
    return {name: _PARSERS.get(name, _as_it_is)(name, value) for name, value in settings.items()}


def _as_it_is(name: str, value: Any) -> Any:
    return value


def _globs(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value) if isinstance(value, Iterable) else value


def _steps(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    found = _STEPS.fullmatch(value.strip())
    if found is None or not (found[1] or found[2]):
        raise ConfigError(
            name, f"is {value!r}; write 3:5 for steps 3 and 4, 3: for 3 and all later ones, 3 for that one"
        )
    first = int(found[1] or 0)
    if not found[2]:
        return first, first + 1
    return first, int(found[3]) if found[3] else None


def _bytes(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = _BYTES.fullmatch(value.strip())
    unit = _UNITS[(found[3] or "").lower()] if found else 1
    digits = (found[2] or "") if found else ""
    if found is None or (digits and unit == 1):
        raise ConfigError(name, f"is {value!r}; write bytes, or a number with a unit: 500k, 4M, 64MiB, 1GB")
    return int(found[1]) * unit + int(digits or 0) * unit // 10 ** len(digits)


def _number(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not re.fullmatch(r"[-+]?[0-9]{1,19}", value.strip()):
        raise ConfigError(name, f"is {value!r}; it can be a whole number")
    return int(value)


def _flag(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if value.strip().lower() not in known:
        raise ConfigError(name, f"is {value!r}; it can be 1 or 0")
    return known[value.strip().lower()]


_PARSERS: dict[str, Callable[[str, Any], Any]] = {
    "kernels": _globs,
    "args": _globs,
    "steps": _steps,
    "every": _number,
    "lifetimes_every": _number,
    "elements": _number,
    "max_bytes_per_tensor": _bytes,
    "save_quota_bytes": _bytes,
    "provenance": _flag,
    "verify_before": _flag,
    "check_recompute": _flag,
}


def _check_globs(name: str, globs: Any) -> None:
    if not isinstance(globs, tuple):
        raise ConfigError(name, f"is {globs!r}; it can be a tuple of globs")
    for glob in globs:
        if not isinstance(glob, str) or not glob or glob != glob.strip() or "," in glob or "\0" in glob:
            raise ConfigError(name, f"holds {glob!r}; a glob is text with no comma and no space at its ends")


def _check_steps(steps: Any) -> None:
    if not isinstance(steps, tuple) or len(steps) != 2:
        raise ConfigError("steps", f"is {steps!r}; it can be a first step and the step to stop before, or None")
    first, stop = steps
    _check_number("steps", first, 0)
    if stop is not None:
        _check_number("steps", stop, 0)
        if stop <= first:
            raise ConfigError("steps", f"is '{first}:{stop}', which holds no step: the second number is not included")


def _check_number(name: str, value: Any, least: int, most: int = MOST) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        to = f"from {least} to {most:,}" if most < MOST else f"of at least {least}"
        raise ConfigError(name, f"is {value!r}; it can be a whole number {to}")


VARIABLES = {field.name: f"STEPSCOPE_{field.name.upper()}" for field in fields(TraceConfig)}
"""The variable of each setting."""
VARIABLES |= {"directory": "STEPSCOPE_TRACE", "save_quota_bytes": "STEPSCOPE_SAVE_QUOTA"}
