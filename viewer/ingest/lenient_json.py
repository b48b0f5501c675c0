"""Reads the JSON of logs with orjson, or with Python's more lenient parser if orjson rejects it."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

from stepscope.viewer.text.clean import well_formed

INT64 = range(-(2**63), 2**63)
_INT64_DIGITS = len(str(-(2**63)))


def loads(text: bytes) -> Any:
    """Return the value of `text`. Raises ValueError if it is not JSON or nested too deeply.

    NaN and infinities become None; lone surrogates and bytes that are not UTF-8 become U+FFFD.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return _clean(json.loads(text.decode("utf-8", "replace"), parse_int=_integer))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _integer(digits: str) -> int | float:
    """Convert too many digits, which Python refuses to read as an integer, to a float, which may be infinite."""
    return int(digits) if len(digits) <= _INT64_DIGITS else float(digits)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if value in INT64 else float(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


def dumps(value: Any) -> str:
    """Return the JSON of lists, dicts and dataclasses of plain values."""
    return orjson.dumps(value).decode()


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
