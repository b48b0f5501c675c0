"""A second, simple reader of TORCH_TRACE logs, with which the product is compared."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PREFIX = re.compile(rb"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d{6,9} +(\d+) [^:\r\n]*:\d+\] ")
IDS = {"rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "subgraph_name"}
NO_EVENTS = {*IDS, "stack", "has_payload"}
LOST = {"not_a_record", "broken_header"}
FORM = {*LOST, "truncated", "not_utf8", "nul_bytes", "missing_payload", "wrong_md5", "mixed_processes", "mixed_ranks"}


@dataclass
class Plain:
    """A record, or a line that is not a record, with its payload."""

    line: int
    byte: int
    pid: int | None
    header: dict[str, Any] | None
    event: str | None
    payload: bytes | None
    reasons: set[str]
    """Reasons in `stepscope.viewer.ingest.damage.REASONS` that concern the form of a record."""

    @property
    def kind(self) -> str | None:
        """Return the name of an artifact, else the event."""
        value = self.header[self.event] if self.header and self.event else None
        name = value.get("name") if self.event == "artifact" and isinstance(value, dict) else None
        return (
            name.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if isinstance(name, str) and name
            else self.event
        )


def read_plainly(data: bytes) -> list[Plain]:
    """Return everything in a log, in order."""
    found = [_record(*block, data) for block in _blocks(data)]
    first = next((one for one in found if one.pid is not None), None)
    rank: Any = None
    for one in found:
        if first is not None and one.pid is not None and one.pid != first.pid:
            one.reasons.add("mixed_processes")
        own = (one.header or {}).get("rank")
        if type(own) is int and -(2**53) <= own <= 2**53:
            rank = own if rank is None else rank
            if own != rank:
                one.reasons.add("mixed_ranks")
    return found


def records(data: bytes) -> list[Plain]:
    """Return the records."""
    return [one for one in read_plainly(data) if PREFIX.match(data, one.byte)]


def kinds(data: bytes) -> Counter[str]:
    """Return the number of records of each kind; those with invalid JSON count as `unreadable`."""
    return Counter(one.kind or "unreadable" for one in records(data))


def places(data: bytes) -> set[tuple[str, int, int]]:
    """Return (reason, line, byte) of every problem with the form of a record."""
    return {(reason, one.line, one.byte) for one in read_plainly(data) for reason in one.reasons}


def _blocks(data: bytes) -> Iterator[tuple[int, int, bytes, list[bytes]]]:
    """Yield (line, byte, header line, following lines); blank lines belong to the record before them."""
    if data.startswith(b"\xef\xbb\xbf"):
        yield from ((line, byte + 3, head, rest) for line, byte, head, rest in _blocks(data[3:]))
        return
    block: tuple[int, int, bytes, list[bytes]] | None = None
    byte = 0
    for number, text in enumerate(data.split(b"\n"), 1):
        if text in (b"", b"\r") or (text[:1] == b"\t" and block is not None):
            if block is not None:
                block[3].append(text)
        else:
            if block is not None:
                yield block
            block = (number, byte, text, [])
        byte += len(text) + 1
    if block is not None:
        yield block


def _record(line: int, byte: int, head: bytes, rest: list[bytes], data: bytes) -> Plain:
    last = data.find(b"\n", byte) < 0 or byte + len(head) + 1 + sum(len(text) + 1 for text in rest) >= len(data)
    one = Plain(line, byte, None, None, None, None, set())
    match = PREFIX.match(head)
    if match is None:
        torn = last and not data.endswith(b"\n") and head[:1] in (b"V", b"\t")
        one.reasons.add("truncated" if torn else "not_a_record")
        return one
    one.pid = int(match[1]) if len(match[1]) < 19 else None
    while rest and rest[-1] in (b"", b"\r"):
        rest.pop()
    while rest and rest[0] in (b"", b"\r"):
        del rest[0]
    _header(one, head[match.end() :].removesuffix(b"\r"), last and not rest)
    _payload(one, head, rest, last and one.header is not None)
    return one


def _header(one: Plain, text: bytes, torn: bool) -> None:
    try:
        header = json.loads(text.decode("utf-8", "replace"), parse_int=lambda digits: int(digits[:100]))
    except (ValueError, RecursionError):
        header = None
    event = next((key for key in header if key not in NO_EVENTS), None) if isinstance(header, dict) else None
    if event is None:
        one.reasons.add("truncated" if torn else "broken_header")
        return
    one.header, one.event = header, event
    if b"\xef\xbf\xbd" not in text and "\ufffd" in text.decode("utf-8", "replace"):
        one.reasons.add("not_utf8")


def _payload(one: Plain, head: bytes, rest: list[bytes], last: bool) -> None:
    announced = (one.header or {}).get("has_payload")
    if not rest:
        if announced is not None:
            one.reasons.add("truncated" if last else "missing_payload")
        return
    if not head.endswith(b"\r"):
        one.payload = b"\n".join(text.removeprefix(b"\t") for text in rest)
    else:
        one.payload = b"\n".join(text.removesuffix(b"\r").removeprefix(b"\t") for text in rest)
    if announced is None or hashlib.md5(one.payload).hexdigest() == announced:
        return
    if last:
        one.reasons.add("truncated")
    elif b"\0" in one.payload:
        one.reasons.add("nul_bytes")
    else:
        whole = one.payload.decode("utf-8", "ignore").encode() == one.payload
        one.reasons.add("wrong_md5" if whole else "not_utf8")
