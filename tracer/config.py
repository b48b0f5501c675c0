"""The settings of a recording, from `stepscope.trace`, options of `stepscope run`, or the STEPSCOPE_* variables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from stepscope.tracer.schema.byte_sizes import bytes_of

LEVELS = ("off", "launches", "values", "save")
LIFETIMES = ("off", "log", "assert")
GLOBS = ("kernels", "args", "judge_kernels")
MOST = 2**63 - 1
MOST_ELEMENTS = 1024
FIXED = ("directory", "provenance", "check_recompute", "check_eager", "judge_layers", "profile", "red_zones")
"""Settings that cannot change during a recording, since the log is open and the programs are compiled."""

_JUDGE = re.compile(r"off|first|last|[0-9]{1,18}|every:[1-9][0-9]{0,17}")
_STEPS = re.compile(r"([0-9]{0,19})(?:(:)([0-9]{0,19}))?")


class ConfigError(ValueError):
    """Raised if a setting has an invalid value: ``steps is '5:3', which holds no step``."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.setting} {self.problem}"


@dataclass(frozen=True)
class TraceConfig:
    """The settings of a recording. Raises ConfigError for an invalid value."""

    directory: Path
    level: str = "launches"
    """``off``; ``launches`` records names, arguments and times of every kernel launch; ``values`` adds statistics of
    the tensors before and after; ``save`` adds the tensors themselves, as .pt files."""
    provenance: bool = True
    """Whether Inductor keeps the source lines of kernels. This changes its cache key, so each graph compiles again."""
    kernels: tuple[str, ...] = ()
    """Case-sensitive globs of the names of kernels whose tensors are read and saved; empty for all kernels."""
    args: tuple[str, ...] = ()
    """Case-sensitive globs of the names of arguments that are read and saved; empty for all arguments."""
    steps: tuple[int, int | None] | None = None
    """First step in which tensors are read and saved, and the step to stop before, or None; None for all steps."""
    every: int = 1
    """Interval of the steps in which tensors are read and saved, counted from the first of `steps`."""
    max_bytes_per_tensor: int | None = None
    """Size above which the statistics of a tensor are over a strided sample; None for no limit."""
    verify_before: bool = False
    """Whether tensors are read again before each launch that uses them, to find writes outside of launches."""
    save_quota_bytes: int = 1_000_000_000
    """Maximum bytes of .pt files that one process writes."""
    lifetimes: str = "log"
    """``log`` records births and deaths of storages and their mismatches; ``assert`` also raises
    `stepscope.LifetimeError` at a mismatch; ``off``."""
    lifetimes_every: int | None = None
    """Interval of the steps in which storages are followed, after the first 8 calls of a graph. None for all steps if
    a C++ compiler makes that cheap, else every 16th step; with ``assert`` it is 1."""
    elements: int = 0
    """Maximum number of elements of a tensor for which all of them are recorded besides statistics; 0 for none."""
    judge: str = "off"
    """Step whose launches are recomputed from the inputs that they read: ``first``, ``last``, a number, or ``every:N``;
    ``off``."""
    judge_kernels: tuple[str, ...] = ()
    """Case-sensitive globs of the names of kernels that are judged; empty for all kernels."""
    profile: tuple[int, int | None] | None = None
    """First step in which PyTorch's profiler runs, and the step to stop before, or None; None for no step."""
    check_recompute: bool = False
    """Whether the memory that Inductor's reordering passes carry along is compared with a recomputation after each
    swap, which takes one estimate of the whole graph per swap. The compiled code does not change."""
    check_eager: int = 0
    """Number of the first calls of each compiled graph that also run in eager mode, on copies of the inputs, and are
    compared; 0 for none."""
    judge_layers: bool = False
    """Whether the layers of the compile are compared where compiled and eager code differ: Dynamo's graph, that of
    AOTAutograd, those after passes, the kernels. Inductor's caches are off meanwhile."""
    red_zones: bool = False
    """Whether buffers that generated code allocates lie between red zones, bytes that no launch may write, which are
    compared after each launch."""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ConfigError("level", f"is {self.level!r}; it must be {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
        if self.lifetimes not in LIFETIMES:
            raise ConfigError("lifetimes", f"is {self.lifetimes!r}; it must be off, log or assert")
        for name in GLOBS:
            _check_globs(name, getattr(self, name))
        if not isinstance(self.judge, str) or not _JUDGE.fullmatch(self.judge):
            raise ConfigError("judge", f"is {self.judge!r}; it must be off, first, last, a step, or every:N")
        for name in ("steps", "profile"):
            if getattr(self, name) is not None:
                _check_steps(name, getattr(self, name))
        _check_number("every", self.every, 1)
        _check_number("elements", self.elements, 0, MOST_ELEMENTS)
        _check_number("check_eager", self.check_eager, 0)
        if self.lifetimes_every is not None:
            _check_number("lifetimes_every", self.lifetimes_every, 1)
        _check_number("save_quota_bytes", self.save_quota_bytes, 0)
        if self.max_bytes_per_tensor is not None:
            _check_number("max_bytes_per_tensor", self.max_bytes_per_tensor, 1)
        for name in ("provenance", "verify_before", "red_zones", "check_recompute", "judge_layers"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(name, f"is {getattr(self, name)!r}; it must be True or False")

    def wants_step(self, step: int) -> bool:
        first, stop = self.steps or (0, None)
        return step >= first and (stop is None or step < stop) and (step - first) % self.every == 0

    def wants_kernel(self, name: str) -> bool:
        """Return whether a glob of `kernels` matches `name`, including its dots (``extern_kernels.mm``)."""
        return not self.kernels or any(fnmatchcase(name, glob) for glob in self.kernels)

    def judges_step(self, step: int) -> bool:
        """Return whether `step` is judged; with ``last`` each one is, and only the verdicts on the last are kept."""
        if self.judge.startswith("every:"):
            return step % int(self.judge.removeprefix("every:")) == 0
        if self.judge.isdecimal():
            return step == int(self.judge)
        return self.judge == "last" or (self.judge == "first" and step == 0)

    def judges_kernel(self, name: str) -> bool:
        return not self.judge_kernels or any(fnmatchcase(name, glob) for glob in self.judge_kernels)

    def wants_argument(self, *names: str | None) -> bool:
        """Return whether a glob of `args` matches one of an argument's names; None is ignored."""
        return not self.args or any(fnmatchcase(name, glob) for name in names if name for glob in self.args)


def make_config(directory: str | os.PathLike[str], **settings: Any) -> TraceConfig:
    """Return a TraceConfig; `settings` may be strings as on the command line: ``steps="3:5", args="buf*,out"``.

    Raises ConfigError for a setting that does not exist or an invalid value.
    """
    return TraceConfig(Path(directory), **_parsed(settings))


def changed(config: TraceConfig, **changes: Any) -> TraceConfig:
    """Return `config` with settings changed during a recording. Raises ConfigError, also for one of FIXED."""
    for name in FIXED:
        if name in changes:
            raise ConfigError(name, "cannot be changed while a recording runs")
    return replace(config, **_parsed(changes))


def from_environment(environ: Mapping[str, str] = os.environ) -> TraceConfig | None:
    """Return the configuration in the STEPSCOPE_* variables, or None if STEPSCOPE_TRACE is not set.

    An empty variable counts as not set. Raises ConfigError with the name of the variable.
    """
    if not environ.get("STEPSCOPE_TRACE"):
        return None
    settings = {name: environ[key] for name, key in VARIABLES.items() if environ.get(key)}
    try:
        return make_config(**settings)
    except ConfigError as error:
        raise ConfigError(VARIABLES[error.setting], error.problem) from None


def to_environment(config: TraceConfig) -> dict[str, str]:
    """Return the variables from which `from_environment` reads `config`, with an absolute directory."""
    values = {name: getattr(config, name) for name in VARIABLES} | {"directory": config.directory.absolute()}
    return {VARIABLES[name]: _typed(value) for name, value in values.items()}


def option_of(setting: str) -> str:
    """Return the option of `stepscope run` for a setting, such as ``--save-quota``."""
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
            raise ConfigError(name, f"is not a setting; the settings are: {', '.join(VARIABLES)}")
    return {name: _parsed_one(name, value) for name, value in settings.items()}


def _parsed_one(name: str, value: Any) -> Any:
    if name == "judge" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return _PARSERS[name](name, value) if name in _PARSERS else value
    is_several = isinstance(value, Iterable) if name in GLOBS else isinstance(value, list)
    return tuple(value) if is_several else value


def _globs(name: str, value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _steps(name: str, value: str) -> tuple[int, int | None]:
    found = _STEPS.fullmatch(value.strip())
    if found is None or not (found[1] or found[2]):
        raise ConfigError(
            name, f"is {value!r}; write 3:5 for steps 3 and 4, 3: for 3 and all later ones, 3 for that one"
        )
    first = int(found[1] or 0)
    if not found[2]:
        return first, first + 1
    return first, int(found[3]) if found[3] else None


def _bytes(name: str, value: str) -> Any:
    size = bytes_of(value)
    if size is None:
        raise ConfigError(name, f"is {value!r}; write bytes, or a number with a unit: 500k, 4M, 64MiB, 1GB")
    return size


def _number(name: str, value: str) -> int:
    if not re.fullmatch(r"[-+]?[0-9]{1,19}", value.strip()):
        raise ConfigError(name, f"is {value!r}; it must be an integer")
    return int(value)


def _flag(name: str, value: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if value.strip().lower() not in known:
        raise ConfigError(name, f"is {value!r}; it must be 1 or 0")
    return known[value.strip().lower()]


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "kernels": _globs,
    "args": _globs,
    "judge_kernels": _globs,
    "steps": _steps,
    "profile": _steps,
    "every": _number,
    "lifetimes_every": _number,
    "elements": _number,
    "check_eager": _number,
    "max_bytes_per_tensor": _bytes,
    "save_quota_bytes": _bytes,
    "provenance": _flag,
    "verify_before": _flag,
    "red_zones": _flag,
    "check_recompute": _flag,
    "judge_layers": _flag,
}


def _check_globs(name: str, globs: Any) -> None:
    if not isinstance(globs, tuple):
        raise ConfigError(name, f"is {globs!r}; it must be a tuple of globs")
    for glob in globs:
        if not isinstance(glob, str) or not glob or glob != glob.strip() or "," in glob or "\0" in glob:
            raise ConfigError(name, f"holds {glob!r}; a glob is text with no comma and no space at its ends")


def _check_steps(name: str, steps: Any) -> None:
    if not isinstance(steps, tuple) or len(steps) != 2:
        raise ConfigError(name, f"is {steps!r}; it must be a first step and the step to stop before, or None")
    first, stop = steps
    _check_number(name, first, 0)
    if stop is not None:
        _check_number(name, stop, 0)
        if stop <= first:
            raise ConfigError(name, f"is '{first}:{stop}', which holds no step: the second number is not included")


def _check_number(name: str, value: Any, least: int, most: int = MOST) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        to = f"from {least} to {most:,}" if most < MOST else f"of at least {least}"
        raise ConfigError(name, f"is {value!r}; it must be an integer {to}")


VARIABLES = {field.name: f"STEPSCOPE_{field.name.upper()}" for field in fields(TraceConfig)}
VARIABLES |= {"directory": "STEPSCOPE_TRACE", "save_quota_bytes": "STEPSCOPE_SAVE_QUOTA"}
