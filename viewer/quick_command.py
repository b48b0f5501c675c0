"""Commands of typer that are ready in little time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) else None


def _default(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _path(value: Any) -> Path | None:
    return Path(value) if isinstance(value, str | Path) else None


def _texts(value: Any) -> list[str] | None:
    return [*value] if isinstance(value, list | tuple) and value else None


def _nothing(value: Any) -> None:
    """Flags that are there are taken by typer."""


_TAKE: dict[Any, Callable[[Any], Any]] = {
    str: _text, int: _number, Path: _path, list[str]: _texts, bool: _nothing,
}  # fmt: skip


class QuickCommand(TyperCommand):
    """Takes text, whole numbers and paths without pydantic, whose import takes longer than opening an index does.
    Leaves every other kind of parameter, and every value that is amiss, to typer."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [_quick(parameter) for parameter in super().get_params(ctx)]


class QuickGroup(TyperGroup):
    """The same for what stands before the command."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [_quick(parameter) for parameter in super().get_params(ctx)]


def _quick(parameter: Any) -> Any:
    kind = getattr(parameter, "type_descriptor", None)  # of a typer that needs pydantic
    if kind is not None and kind.annotation in _TAKE and "process_value" not in vars(parameter):
        take = _default if kind.is_ranged else _TAKE[kind.annotation]
        parameter.process_value = partial(_value, parameter.process_value, take, parameter.required)
    return parameter


def _value(usual: Callable[..., Any], take: Callable[[Any], Any], required: bool, ctx: Any, value: Any) -> Any:
    if value is None and not required:
        return None
    taken = take(value)
    return usual(ctx, value) if taken is None else taken


def asked_for(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """`app` with the command alone that the first word names; making all of them takes a tenth of a second. With an
    unknown name, or without one, it has all."""
    one = [known for known in app.registered_commands if known.callback and [_name(known.callback)] == [*words[:1]]]
    alone = copy.copy(app)
    alone.registered_commands = one or app.registered_commands
    return alone


def _name(command: Callable[..., Any]) -> str:
    return command.__name__.replace("_", "-")
