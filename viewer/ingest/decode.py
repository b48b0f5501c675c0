"""Converts JSON payloads to the dataclasses of `stepscope.tracer.schema.records` and checks every field."""

from __future__ import annotations

import types
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from stepscope.viewer.ingest.bounds import NUMBERS, bounds_of

T = TypeVar("T")
Check = Callable[[Any, str], Any]


class BadPayload(ValueError):
    """Raised for a payload that does not fit its record; the message names the field."""


def decode(cls: type[T], payload: Any) -> T:
    """Convert `payload` to a `cls`. Unknown fields are ignored, and missing ones take their default.

    Raises BadPayload if a required field is missing or a value has the wrong type.
    """
    value: T = _check_of(cast(Any, cls))(payload, cls.__name__)
    return value


def legible(cls: type, payload: Any) -> dict[str, Any]:
    """Return the fields of `payload` that are valid for a `cls`, whether or not the others are."""
    if type(payload) is not dict:
        return {}
    hints, found = get_type_hints(cls), {}
    for member in fields(cls):
        with suppress(KeyError, BadPayload):
            check = _check_of(hints[member.name], bounds_of(member.name))
            found[member.name] = check(payload[member.name], member.name)
    return found


@cache
def _check_of(hint: Any, bounds: range = NUMBERS) -> Check:
    """Return the check for values of type `hint`, whose integers must be in `bounds`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value, path: value
    if origin in (Union, types.UnionType):
        return _optional(arguments, bounds)
    if origin is Literal:
        return _scalar(str)
    if origin is list:
        if arguments[0] is int:
            return _ints(bounds)
        return _numbers if arguments[0] == float | None else _list(_check_of(arguments[0], bounds))
    if origin is dict:
        return _mapping(_check_of(arguments[1], bounds))
    if is_dataclass(hint) and isinstance(hint, type):
        return _record(hint)
    return _float if hint is float else _int(bounds) if hint is int else _scalar(hint)


def _optional(arguments: tuple[Any, ...], bounds: range) -> Check:
    (inner,) = (_check_of(argument, bounds) for argument in arguments if argument is not type(None))
    return lambda value, path: None if value is None else inner(value, path)


def _scalar(kind: type) -> Check:
    def check(value: Any, path: str) -> Any:
        if type(value) is not kind:
            raise BadPayload(f"{path} is not {_NAMES.get(kind, kind.__name__)}")
        return value

    return check


def _int(bounds: range) -> Check:
    def check(value: Any, path: str) -> Any:
        if type(value) is not int or value not in bounds:
            raise BadPayload(f"{path} is not a valid integer")
        return value

    return check


def _float(value: Any, path: str) -> Any:
    if type(value) not in (int, float):
        raise BadPayload(f"{path} is not a number")
    return value


def _ints(bounds: range) -> Check:
    least, most = bounds[0], bounds[-1]

    def check(value: Any, path: str) -> Any:
        """Check by `array`, the fastest way there is: lists of integers are the bulk of a log."""
        try:
            if type(value) is list and array("q", value) and least <= min(value) and max(value) <= most:
                return value
        except (TypeError, OverflowError):
            pass
        if value != []:
            raise BadPayload(f"{path} is not a list of valid integers")
        return value

    return check


def _numbers(value: Any, path: str) -> Any:
    """Check a list of numbers and None, the bulk of a log with values."""
    if type(value) is not list or not _NUMBERS.issuperset(map(type, value)):
        raise BadPayload(f"{path} is not a list of numbers")
    return value


def _list(item: Check) -> Check:
    def check(value: Any, path: str) -> Any:
        if type(value) is not list:
            raise BadPayload(f"{path} is not a list")
        return [item(entry, path) for entry in value]

    return check


def _mapping(item: Check) -> Check:
    def check(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise BadPayload(f"{path} is not an object")
        return {name: item(entry, f"{path}.{name}") for name, entry in value.items()}

    return check


def _record(cls: type) -> Check:
    hints: Mapping[str, Any] = get_type_hints(cls)
    members = [
        (
            member.name,
            _check_of(hints[member.name], bounds_of(member.name)),
            member.default is MISSING and member.default_factory is MISSING,
        )
        for member in fields(cls)
        if get_origin(hints[member.name]) is not ClassVar
    ]

    def check(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise BadPayload(f"{path} is not an object")
        known = {}
        for name, inner, needed in members:
            if name in value:
                known[name] = inner(value[name], f"{path}.{name}")
            elif needed:
                raise BadPayload(f"{path}.{name} is missing")
        return cls(**known)

    return check


_NUMBERS = frozenset((int, float, type(None)))
_NAMES = {str: "a text", bool: "true or false"}
