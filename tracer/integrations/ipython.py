"""The cell magic ``%%stepscope`` of IPython and Jupyter."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from stepscope.tracer.config import VARIABLES, ConfigError, TraceConfig, make_config, option_of
from stepscope.tracer.reading.command import NotRead
from stepscope.tracer.reading.findings import read_findings
from stepscope.tracer.recorder import Recorder

FOLDER = "stepscope_trace"
_SETTINGS = {option_of(name): name for name in VARIABLES if name not in ("directory", "save_quota_bytes")}
_SETTINGS |= {"--save-quota": "save_quota_bytes", "--out": "directory", "-o": "directory"}


def register(shell: Any) -> None:
    """Add the magic to a shell."""

    def stepscope(line: str, cell: str) -> None:
        """Record a cell and show the findings: ``%%stepscope [--level values] [--out DIR] [other options of run]``."""
        _run(shell, line, cell)

    shell.register_magic_function(stepscope, "cell")


def _run(shell: Any, line: str, cell: str) -> None:
    try:
        config = config_of(shlex.split(line))
    except (ConfigError, ValueError) as error:
        raise UsageError(f"%%stepscope: {_sentence(error)}") from None
    recorder = Recorder(config)
    with _without_traceback(shell), recorder:
        result = shell.run_cell(cell)
        has_recorded = recorder.is_on
    log = recorder.path
    if log is None:
        why = "no compiled graph ran in this cell" if has_recorded else "the recording was not on"
        print(f"stepscope: nothing was recorded, because {why}.")  # noqa: T201
    else:
        try:
            display(read_findings(log))
        except NotRead as error:
            print(f"stepscope: {error}")  # noqa: T201
    result.raise_error()


def config_of(words: Sequence[str]) -> TraceConfig:
    """Return the configuration that the words after the magic choose. Raises ConfigError and ValueError."""
    settings: dict[str, Any] = {}
    waiting = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    while waiting:
        option = waiting.pop(0)
        if option.startswith("--no-") and f"--{option[5:]}" in _SETTINGS:
            settings[_SETTINGS[f"--{option[5:]}"]] = "0"
        elif option not in _SETTINGS:
            raise ValueError(f"There is no option {option}; there are: {', '.join(_SETTINGS)}.")
        else:
            has_value = bool(waiting) and not waiting[0].startswith("--")
            settings[_SETTINGS[option]] = waiting.pop(0) if has_value else "1"
    return make_config(settings.pop("directory", FOLDER), **settings)


def _sentence(error: Exception) -> str:
    return f"{option_of(error.setting)} {error.problem}" if isinstance(error, ConfigError) else str(error)


@contextmanager
def _without_traceback(shell: Any) -> Iterator[None]:
    """Let the shell show an exception of the cell once: when the magic raises it again, as the cell's own."""
    names = ("showtraceback", "showsyntaxerror")
    before = {name: vars(shell).get(name) for name in names}
    for name in names:
        setattr(shell, name, lambda *_args, **_options: None)
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                delattr(shell, name)
            else:
                setattr(shell, name, own)
