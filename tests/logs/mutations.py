"""Changes single values in a log's headers and payloads to invalid ones, and updates the checksums."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from stepscope.tracer.schema.log_format import payload_digest
from stepscope.tracer.schema.ring_format import HEADER_WORDS, MAGIC, WORD
from tests.logs.plain_reader import Plain, read_plainly

EDGES: tuple[Any, ...] = (
    2**63 - 1, -(2**63), 2**63 - 2, -(2**63) + 1, 2**63, 2**64, 2**64 - 1, 2**62, 2**61, 2**53, 2**53 - 1, 2**40, 2**31,
    -1, 0, 1, 1e308, -1e308, 1e-320, 0.5, float("nan"), float("inf"), None, True, "", "x" * 100_000, "9" * 400, "\x00",
    [], {}, [[]], {"a": None},
)  # fmt: skip
WORDS = (2**63 - 1, -(2**63), 2**62, 2**53, 2**40, -1, 0, 1)
"""Values for the words of a launch ring."""
_LAST_HEADER_KEYS = ("has_payload",)
Put = Callable[[Any], None]


def mutated(data: bytes, random: Random, count: int) -> bytes:
    """Return the same records, `count` of them with one value changed, removed or added."""
    lines, records = data.split(b"\n"), read_plainly(data)
    chosen = set(random.sample(range(len(records)), min(count, len(records))))
    return b"".join(_record(record, lines[record.line - 1], random if i in chosen else None)
                    for i, record in enumerate(records))  # fmt: skip


def mutated_ring(data: bytes, random: Random, count: int) -> bytes:
    """Return the same launch ring with `count` of its words changed."""
    words = list(struct.unpack(f"<{len(data) // WORD}q", data))
    used = [i for i, word in enumerate(words) if i and (word or i < HEADER_WORDS // 32) and word != MAGIC]
    for i in random.sample(used, min(count, len(used))):
        words[i] = random.choice(WORDS)
    return struct.pack(f"<{len(words)}q", *words)


def _record(record: Plain, line: bytes, random: Random | None) -> bytes:
    header, payload = dict(record.header or {}), record.payload
    if random is not None:
        try:
            value = None if payload is None else json.loads(payload)
        except ValueError:
            value = None
        if isinstance(value, dict | list) and random.random() < 0.75:
            payload = json.dumps(_changed(value, random)).encode()
        else:
            announced = {key: header.pop(key) for key in _LAST_HEADER_KEYS if key in header}
            header = {**_changed(header, random), **announced}
    prefix = line[: line.index(b"] ") + 2]
    if payload is None:
        return prefix + json.dumps(header).encode() + b"\n"
    header["has_payload"] = payload_digest(payload)
    return prefix + json.dumps(header).encode() + b"\n\t" + payload.replace(b"\n", b"\n\t") + b"\n"


def _changed(value: Any, random: Random) -> Any:
    """Return a copy in which one value at any depth is changed, removed or added."""
    value = json.loads(json.dumps(value))
    places: list[tuple[Any, Any]] = []
    _collect(value, places)
    if not places:
        return value
    # Most changes are in numbers, because those are used in computations.
    numbers = [place for place in places if type(place[0][place[1]]) in (int, float)]
    inside, key = random.choice(numbers if numbers and random.random() < 0.75 else places)
    kind = random.random()
    if kind < 0.85:
        inside[key] = random.choice(EDGES)
    elif kind < 0.95 or isinstance(inside, list):
        del inside[key]
    else:
        inside[f"{key} too"] = random.choice(EDGES)
    return value


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        places.append((value, key))
        if isinstance(value[key], dict | list):
            _collect(value[key], places)
