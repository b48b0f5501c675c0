"""Checks the shape of arbitrary JSON values and raises `Odd` for an unexpected one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepscope.viewer.ingest.lenient_json import dumps, loads


class Odd(Exception):
    """Raised for a record that lacks the form of its kind, which is then shown raw."""


def parsed(payload: str | None) -> Any:
    """Return the JSON of a payload, with None for NaN and infinities; raise `Odd` if it is not JSON."""
    try:
        return loads((payload or "").encode("utf-8", "replace"))
    except ValueError:
        raise Odd("its payload is not JSON") from None


def as_dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Odd("it contains something other than the expected object")
    return value


def payload_object(payload: str | None) -> dict[str, Any]:
    value = parsed(payload)
    if not isinstance(value, dict):
        raise Odd("its payload is not a JSON object")
    return value


def as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Odd("it contains something other than the expected list")
    return value


def integer(value: Any) -> int | None:
    return value if type(value) is int else None


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def shown(value: Any) -> str:
    """Return a string unchanged, and any other value as JSON on one line."""
    if isinstance(value, str):
        return value
    try:
        return dumps(value)
    except TypeError:  # nested too deeply to be written
        return "…"


def get_dict(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the object under `key`; empty if there is none."""
    return as_dict(value.get(key) or {})


def get_list(value: Mapping[str, Any], key: str) -> list[Any]:
    return as_list(value.get(key) or [])
