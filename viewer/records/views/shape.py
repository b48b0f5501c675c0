"""Values out of JSON that may hold anything: what is not of the expected shape raises `Odd`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepscope.viewer.ingest.lenient_json import loads


class Odd(Exception):
    """A record that does not have the form in which PyTorch writes its kind; it is shown raw."""


def parsed(payload: str | None) -> Any:
    """The JSON of a payload; NaN and infinities are None."""
    try:
        return loads((payload or "").encode("utf-8", "replace"))
    except ValueError:
        raise Odd("its payload is not JSON") from None


def as_dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Odd("it holds something else where an object is expected")
    return value


def as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Odd("it holds something else where a list is expected")
    return value


def texts(value: Any) -> list[str]:
    """Items of a list as texts."""
    return [shown(item) for item in as_list(value)]


def integer(value: Any) -> int | None:
    return value if type(value) is int else None


def number(value: Any) -> int | float | None:
    return value if type(value) in (int, float) else None


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def shown(value: Any) -> str:
    """Any value as a text on one line: a text is itself, all else is JSON."""
    from stepscope.viewer.ingest.lenient_json import dumps

    if isinstance(value, str):
        return value
    try:
        return dumps(value)
    except TypeError:  # nested more deeply than can be written
        return "…"


def get_dict(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object under `key`, empty where there is none."""
    return as_dict(value.get(key) or {})


def get_list(value: Mapping[str, Any], key: str) -> list[Any]:
    return as_list(value.get(key) or [])
