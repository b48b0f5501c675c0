"""Makes damaged logs: each case is one mutation of one base log, determined by its number and `SEED`."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.logs import device_logs, hostile, named_logs, synthetic
from tests.logs.mutations import mutated, mutated_ring
from tests.logs.poisoned import poisoned_logs
from tests.viewer.crash.test_crash import IN_STEP_THREE, PID, device_ring, process_end, ring

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SEED = 20_240_501
DEEP = 3_000
HUGE = 200_000
Edit = Callable[[bytes, Random], bytes]


class Case(NamedTuple):
    """A damaged log."""

    number: int
    mutation: str
    base: str
    data: bytes
    """Bytes of the log after it was unpacked as far as possible."""
    packed: bytes | None = None
    """Bytes of the file if it is compressed."""
    suffix: str = ""
    ring: bytes | None = None


class Base(NamedTuple):
    data: bytes
    ring: bytes | None = None


@cache
def bases() -> dict[str, Base]:
    """Return the undamaged logs: values, lifetimes, compiles, ranks, devices, and processes that died."""
    logs = {**poisoned_logs(), "plain": synthetic.recorded(), "named": named_logs.named_training(2)}
    found = {name: Base(log.data) for name, log in logs.items()}
    found["device"] = Base(device_logs.device_log(steps=2).data)
    death = synthetic.recorded(end=False, pid=PID).record(process_end()).data
    return found | {"death": Base(death, ring([IN_STEP_THREE])), "device death": Base(death, device_ring(2))}


def samples(folder: Path) -> dict[str, Base]:
    """Return small TORCH_TRACE logs that PyTorch alone wrote."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".log", ".txt"))
    return {path.name: Base(path.read_bytes()) for path in paths if path.stat().st_size < 200_000}


def case(number: int, logs: Mapping[str, Base]) -> Case:
    """Return the case with this number."""
    random = Random(f"{SEED} {number}")
    base, mutation = random.choice([*logs]), random.choice([*EDITS, *_PACKED, "ring"])
    data, beside = logs[base]
    if mutation == "ring":
        if beside is None:
            mutation = "value"
        else:
            return Case(number, mutation, base, data, ring=mutated_ring(beside, random, 1))
    if mutation in _PACKED:
        whole = _PACKED[mutation](data)
        packed = whole[: random.randrange(len(whole) // 3, len(whole))]
        plain = _unpacked(packed, mutation)
        return Case(number, mutation, base, plain, packed, f".{mutation}")
    return Case(number, mutation, base, EDITS[mutation](data, random), ring=beside)


_PACKED: dict[str, Callable[[bytes], bytes]] = {"gz": partial(gzip.compress, mtime=0), "zst": zstd.compress}


def _unpacked(packed: bytes, form: str) -> bytes:
    import zlib

    if form == "gz":
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(packed)
    return zstd.ZstdDecompressor().decompress(packed)


def _blocks(data: bytes) -> list[bytes]:
    """Return the records with their payloads."""
    first, *others = data.split(b"\nV")
    return [first + b"\n", *(b"V" + other + (b"" if i == len(others) - 1 else b"\n") for i, other in enumerate(others))]


def _at_block(change: Callable[[list[bytes], int, Random], Sequence[bytes]]) -> Edit:
    def edit(data: bytes, random: Random) -> bytes:
        blocks = _blocks(data)
        return b"".join(change(blocks, random.randrange(len(blocks)), random))

    return edit


def _flip(data: bytes, random: Random) -> bytes:
    changed, at = bytearray(data), random.randrange(len(data))
    changed[at] ^= 1 << random.randrange(8)
    return bytes(changed)


def _at_byte(new: Callable[[Random], bytes], most_removed: int = 0) -> Edit:
    def edit(data: bytes, random: Random) -> bytes:
        at = random.randrange(len(data))
        return data[:at] + new(random) + data[at + random.randint(0, most_removed) :]

    return edit


def _cut_line(data: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = lines[at][: random.randrange(len(lines[at]) + 1)]
    return b"\n".join(lines)


def _swapped(blocks: list[bytes], at: int, random: Random) -> list[bytes]:
    other = random.randrange(len(blocks))
    blocks[at], blocks[other] = blocks[other], blocks[at]
    return blocks


def _duplicated(blocks: list[bytes], at: int, random: Random) -> list[bytes]:
    to = random.randrange(len(blocks) + 1)
    return [*blocks[:to], blocks[at], *blocks[to:]]


def _lost(blocks: list[bytes], at: int, _random: Random) -> list[bytes]:
    return [*blocks[:at], *blocks[at + 1 :]]


def _wrong_md5(data: bytes, random: Random) -> bytes:
    pieces = data.split(b'"has_payload":')
    at = random.randrange(1, len(pieces)) if len(pieces) > 1 else 0
    pieces[at] = pieces[at].replace(b'"', b'"0', 1)
    return b'"has_payload":'.join(pieces)


def _with_payload(text: bytes) -> Edit:
    """Return an edit that adds an artifact of a name that the log has, with this payload."""

    def edit(data: bytes, random: Random) -> bytes:
        name = random.choice(hostile.ARTIFACTS)
        log = synthetic.LogBuilder().artifact(name, text, frame_id=0, frame_compile_id=0)
        blocks = _blocks(data)
        blocks.insert(random.randrange(1, len(blocks) + 1), log.data)
        return b"".join(blocks)

    return edit


def _interleaved(data: bytes, random: Random) -> bytes:
    own, others = data.split(b"\n"), random.choice([*bases().values()]).data.split(b"\n")
    at, start = random.randrange(len(own)), random.randrange(len(others))
    return b"\n".join([*own[:at], *others[start : start + random.randint(1, 6)], *own[at:]])


EDITS: dict[str, Edit] = {
    "bit flip": _flip,
    "invalid UTF-8": _at_byte(lambda random: random.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80"))),
    "NUL": _at_byte(lambda random: bytes(random.randint(1, 9))),
    "cut bytes": _at_byte(lambda random: b"", most_removed=60),
    "line end": _at_byte(lambda random: random.choice((b"\n", b"\r\n", b"\r", b"\n\t", b"\nV", b"\n\n"))),
    "huge line": _at_byte(lambda random: b"x" * HUGE),
    "cut line": _cut_line,
    "truncated": lambda data, random: data[: random.randrange(1, len(data))],
    "swapped records": _at_block(_swapped),
    "repeated record": _at_block(_duplicated),
    "lost record": _at_block(_lost),
    "wrong md5": _wrong_md5,
    "deep lists": _with_payload(b"[" * DEEP + b"]" * DEEP),
    "deep objects": _with_payload(b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "huge text": _with_payload(json.dumps({"name": "x" * HUGE}).encode()),
    "interleaved": _interleaved,
    "value": lambda data, random: mutated(data, random, 1),
    "values": lambda data, random: mutated(data, random, 3),
    "every value": lambda data, random: mutated(data, random, 1_000),
}
