"""Records read many at once are those that are read line by line."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.ingest import logs
from stepscope.viewer.ingest.batch_reader import MARKS
from stepscope.viewer.ingest.log_bytes import log_bytes, pieces
from stepscope.viewer.ingest.sources import Source
from tests.logs.synthetic import LogBuilder
from tests.viewer.conftest import sample_logs

Tables = dict[str, dict[str, list[Any]]]
Read = Callable[[bytes, bool], Tables]
PIECE_BYTES = 3000
"""Small ones, so that a log has many."""
MTIME_NS = 1_773_480_420 * 10**9


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.setattr("stepscope.viewer.ingest.reader.pieces", lambda data: pieces(data, PIECE_BYTES))

    def tables(data: bytes, at_once: bool) -> Tables:
        monkeypatch.setattr(logs, "AT_ONCE_BYTES", 0 if at_once else 1 << 60)
        path = tmp_path / "log.log"
        path.write_bytes(data)
        rows = logs.read_logs([Source(path, path, len(data), MTIME_NS)])
        large: Any = [(part.table, part.make()) for part in rows.large_tables()]
        columns = {name: {key: column.tolist() for key, column in part.items()} for name, part in large}
        return {**{name: found.columns for name, found in rows.tables.items() if found}, **columns}

    return tables


@cache
def whole_log() -> bytes:
    log = LogBuilder()
    for frame in range(12):
        ids: dict[str, Any] = {"frame_id": frame, "frame_compile_id": 0, "attempt": frame % 2, "rank": 0}
        log.torch("str", ["/train.py", frame])
        log.torch("dynamo_start", {"stack": [{"line": 7, "name": "f", "filename": frame, "loc": "y = f(x)"}]}, **ids)
        for phase, stamp in (("B", 1), ("B", 2), ("E", 3), ("i", 4)):
            event = {
                "name": "dynamo" if phase != "i" else "cache", "ts": 1.7734804e15 + frame * 10 + stamp,
                "args": {"compile_id": f"{frame}/0", "components": ["a line\n"] * 500 * (phase == "E")},
                "ph": phase, "cat": "dynamo_timed", "tid": 0, "pid": 0,
            }  # fmt: skip
            log.torch("chromium_event", {}, json.dumps(event, indent=0).encode(), **ids)
        log.artifact("fx_graph_cache_hit", b'{"key": "k", "components": ["a", "b"]}', **ids)
        log.torch("dynamo_output_graph", {"sizes": {}}, b"def forward(x):\n\n\treturn x\n", **ids)
        log.torch("compilation_metrics", {"co_name": "f", "co_filename": "t.py", "graph_op_count": frame}, **ids)
    return log.data


def crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def with_torch_headers(of_a_compile: bytes = b"", end: bytes = b"") -> bytes:
    """A log whose headers have PyTorch's order and spaces. The third id of a frame becomes `of_a_compile`, and the end
    of every seventh header `end`, if they are not empty."""
    lines = whole_log().split(b"\n")
    for number, line in enumerate(lines):
        prefix, _, header = line.partition(b"] ")
        if line.startswith(b"V"):
            value = json.loads(header)
            event = next(iter(value))
            ordered = {event: value[event], **({"rank": value["rank"]} if "rank" in value else {}), **value}
            text = json.dumps(ordered).encode()
            text = text.replace(b'"frame_id": 3,', of_a_compile or b'"frame_id": 3,')
            lines[number] = prefix + b"] " + (text[: -len(end)] + end if end and number % 7 == 0 else text)
    return b"\n".join(lines)


def with_bytes(some: bytes) -> bytes:
    """A log with these among its payload's lines; each is whole."""
    payload = b"\n".join([b"a" + some + b"\tb", some, b"", b"\t" + some])
    return whole_log() + LogBuilder().artifact("dump", payload, "string").data + whole_log()


def damaged(data: bytes, seed: int) -> bytes:
    chance, text = random.Random(seed), bytearray(data)
    pieces = (b"\nV", b"\r\n", b"\t", b"\0", b"\n\n", b"V0314 09:26:53.000001 1 a:1] {}\n", b"\xff", b'"', b"\r", b"9")
    for _ in range(30):
        at = chance.randrange(len(text))
        if chance.random() < 0.3:
            del text[at : at + chance.randrange(100)]
        else:
            text[at:at] = chance.choice(pieces)
    return bytes(text)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(whole_log(), id="whole"),
        pytest.param(crlf(whole_log()), id="crlf"),
        pytest.param(whole_log() + crlf(whole_log()), id="both"),
        pytest.param(whole_log()[:-1], id="no last break"),
        pytest.param(whole_log()[:-40], id="cut"),
        pytest.param(b"\n\r\n" + whole_log(), id="blank begin"),
        pytest.param(b"\xef\xbb\xbf" + whole_log(), id="byte order mark"),
        pytest.param(b"a line\n\t\n" + whole_log() + b"V", id="other lines"),
        pytest.param(whole_log().replace(b"0314 09:26:53", b"0231 09:26:53", 9), id="no such day"),
        pytest.param(whole_log().replace(b"0314 09:26:53", b"1231 23:59:59", 30), id="another year"),
        pytest.param(with_bytes(b"\xff\x00\x01\xc0"), id="every byte that is a mark"),
        pytest.param(with_torch_headers(), id="PyTorch's headers"),
        *(pytest.param(with_torch_headers(end=end), id=f"end {end!r}") for end in (b"]", b"'}", b'"', b" }")),
        *(
            pytest.param(with_torch_headers(b'"frame_id": %s,' % number), id=f"frame {number!r}")
            for number in (b"03", b"-1", b"1.5", b"999999999", b"9999999999", b"9" * 17, b"null", b'3, "frame_id": 4')
        ),
        *(pytest.param(damaged(with_torch_headers(), seed), id=f"damaged PyTorch's {seed}") for seed in range(4)),
        *(pytest.param(with_bytes(bytes([mark])), id=f"byte {mark}") for mark in MARKS),
        *(pytest.param(damaged(whole_log(), seed), id=f"damaged {seed}") for seed in range(8)),
        *(pytest.param(damaged(crlf(whole_log()), seed), id=f"damaged crlf {seed}") for seed in range(4)),
    ],
)
def test_both_ways_read_the_same(read: Read, data: bytes) -> None:
    assert read(data, True) == read(data, False)


def test_whole_records_are_read_at_once(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("a whole record was read line by line")

    monkeypatch.setattr("stepscope.viewer.ingest.reader.scan", refused)
    for data in (
        whole_log(),
        crlf(whole_log()),
        with_torch_headers(),
        with_bytes(b"\xff"),
        with_bytes(b"\xff\x00\x01\xc0"),
    ):
        assert len(read(data, True)["records"]["record"]) == data.count(b"\nV") + 1


@pytest.mark.skipif(sample_logs() is None, reason="no sample logs")
def test_both_ways_read_samples_the_same(read: Read) -> None:
    folder = sample_logs()
    assert folder is not None
    for name in ("cache_hit_miss.log", "export.log", "simple_corrupted_json.log"):
        data = (folder / name).read_bytes()
        assert read(data, True) == read(data, False)


def test_a_long_event_is_read_without_its_list(read: Read) -> None:
    spans = read(whole_log(), True)["spans"]
    assert len(spans["name"]) == 12
    broken = whole_log().replace(b'"a line\\n"', b"a line", 1)
    assert len(read(broken, True)["spans"]["name"]) == 12


@pytest.mark.parametrize("opened", [False, True])
def test_pieces_are_the_whole_log(tmp_path: Path, opened: bool) -> None:
    data = whole_log() * 3
    path = tmp_path / "log"
    path.write_bytes(data + b"written later")
    with log_bytes(path, len(data)) as view:
        found = list(pieces(view if opened else data, 5000))
        assert b"".join(piece for _, piece in found) == data
        assert [start for start, _ in found] == [sum(len(p) for _, p in found[:i]) for i in range(len(found))]
        assert view[:] == data


def test_a_log_that_becomes_shorter_ends_earlier(tmp_path: Path) -> None:
    data = whole_log() * 3
    path = tmp_path / "log"
    path.write_bytes(data)
    with log_bytes(path, len(data)) as view:
        os.truncate(path, 7000)
        assert b"".join(piece for _, piece in pieces(view, 2000)) == data[:7000]
