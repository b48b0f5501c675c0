"""What a TRACE may be: packed logs, standard input, several logs as one trace."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from stepscope.viewer.cli import app
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.log_files import find_log_files
from stepscope.viewer.ingest.sources import cache_dir, find_logs
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.records.queries.artifacts import list_records
from stepscope.viewer.store.open import open_trace
from tests.logs.synthetic import LogBuilder, compile_records, recorded

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd.compress}
RANKS = 3


@pytest.fixture
def ranks(tmp_path: Path) -> list[Path]:
    """One log plain, one of each packing."""
    paths = []
    for rank, suffix in enumerate(("", *PACKERS)):
        data = recorded(rank=rank, world_size=RANKS, pid=100 + rank).data
        paths.append(tmp_path / f"rank_{rank}.log{suffix}")
        paths[-1].write_bytes(PACKERS.get(suffix, bytes)(data))
    return paths


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_several_logs_are_one_trace(ranks: list[Path]) -> None:
    with open_trace(ranks) as trace:
        assert [run.rank for run in overview(trace).runs] == [0, 1, 2]
        assert overview(trace).counts.launches == RANKS * 12
        index = trace.index
    assert index.parent == cache_dir() / "indexes"
    assert not list(ranks[0].parent.glob("*duckdb*"))
    with open_trace([str(path) for path in ranks]) as again:
        assert again.index == index


def test_a_log_that_is_named_twice_is_one(ranks: list[Path], tmp_path: Path) -> None:
    (tmp_path / "link.log").symlink_to(ranks[0])
    assert [log.path.name for log in find_logs([ranks[1], ranks[0], ranks[0]])] == [ranks[1].name, ranks[0].name]
    assert len(find_logs([tmp_path, ranks[0], tmp_path / "link.log"])) == RANKS


def test_a_folder_and_standard_input_beside_a_log(ranks: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    other = compile_records(LogBuilder()).write(ranks[0].parent / "folder" / "other.log")
    pipe(monkeypatch, recorded().data)
    with open_trace(["-", other.parent, ranks[0]]) as trace:
        assert [str(log.path) for log in trace.logs] == ["<stdin>", str(other), str(ranks[0])]
        assert overview(trace).counts.launches == 24


def test_logs_that_are_too_many_are_said(ranks: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.viewer.ingest.sources.MOST_LOGS", RANKS - 1)
    with open_trace(ranks[0].parent) as trace:
        assert [log.path for log in trace.logs] == sorted(ranks)[:-1]
        assert problem_counts(trace) == {"too_many_logs": 1}
    monkeypatch.setattr("stepscope.viewer.ingest.sources.MOST_LOGS", RANKS)
    with open_trace(ranks[0].parent) as trace:
        assert problem_counts(trace) == {}


def test_one_that_is_no_log_keeps_no_other_from_being_read(ranks: list[Path], tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("hello\n")
    (tmp_path / "empty.log").touch()
    with open_trace([ranks[0], tmp_path / "notes.md", tmp_path / "empty.log"]) as trace:
        assert problem_counts(trace) == {"not_a_record": 1, "not_a_log": 1, "empty_file": 1}
        assert overview(trace).counts.launches == 12


def test_what_cannot_be_read_at_all_is_one_sentence(ranks: list[Path], tmp_path: Path) -> None:
    notes, empty = tmp_path / "notes.md", tmp_path / "empty.log"
    notes.write_text("hello\n")
    empty.touch()
    (tmp_path / "folder").mkdir()
    for names, sentence in (
        ([], "No log was given"),
        ([ranks[0], tmp_path / "missing.log"], "There is no file or folder"),
        ([ranks[0], tmp_path / "folder"], "contains no log"),
        ([notes, tmp_path / "folder" / ".." / "notes.md"], "none of these is a log"),
        ([empty, tmp_path / "." / "folder" / ".." / "empty.log"], "are empty"),
    ):
        with pytest.raises(StepscopeError, match=sentence) as caught:
            open_trace(names)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_packed_log(suffix: str, tmp_path: Path) -> None:
    path, data = tmp_path / f"x.log{suffix}", recorded().data
    path.write_bytes(PACKERS[suffix](data[:1000]) + PACKERS[suffix](data[1000:]))
    with open_trace(path) as trace:
        assert trace.logs[0].data_path.read_bytes() == data
        assert trace.logs[0].problems == []
        assert overview(trace).counts.launches == 12
    assert [log.path for log in find_logs(tmp_path)] == [path]
    os.utime(path, ns=(0, 0))
    assert find_logs(path)[0].size == len(data)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", PACKERS)
def test_a_packed_log_that_is_cut_or_broken_gives_what_it_holds(suffix: str, tmp_path: Path) -> None:
    data = b"".join(recorded(pid=pid).data for pid in range(200))
    packed = PACKERS[suffix](data)
    for name, kept in (("cut", packed[: len(packed) // 2]), ("broken", packed + b"\x28\xb5\x2f\xfd no more" * 9)):
        path = tmp_path / f"{name}.log{suffix}"
        path.write_bytes(kept)
        with open_trace(path) as trace:
            assert problem_counts(trace)["truncated"] >= 1
            assert list_records(trace).total > 10
    assert not list((cache_dir() / "spool").glob("*.part"))


def test_a_zst_may_be_cut_anywhere(tmp_path: Path) -> None:
    packed = zstd.compress(recorded(steps=1).data)
    whole = recorded().write(tmp_path / "whole.log")
    for size in range(4, len(packed), 97):
        path = tmp_path / f"{size}.log"
        path.write_bytes(packed[:size])
        assert find_logs([whole, path])[1].problems == [("truncated", "the .zst ends too early")]


def test_frames_that_a_reader_skips(tmp_path: Path) -> None:
    path, data = tmp_path / "x.log.zst", recorded().data
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    path.write_bytes(skipped + zstd.compress(data[:500]) + skipped + zstd.compress(data[500:]))
    assert find_logs(path)[0].data_path.read_bytes() == data


@pytest.mark.parametrize("suffix", ["", *PACKERS])
def test_standard_input_packed_or_not(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = PACKERS.get(suffix, bytes)(recorded().data)
    indexes = set()
    for _ in range(2):
        pipe(monkeypatch, data)
        with open_trace("-") as trace:
            assert overview(trace).counts.launches == 12
            indexes.add(trace.index)
    assert len(indexes) == 1
    assert len(list((cache_dir() / "spool").iterdir())) == 1


def test_the_last_byte_of_a_packed_log_may_be_read_alone(tmp_path: Path) -> None:
    """It is 0: of a log under 16 MiB the highest one of its size."""
    data = recorded().data
    forms = (gzip.compress(data.ljust(size, b"\n"), 0) for size in range(65_480, 65_520))
    packed = next(form for form in forms if len(form) % 65_536 == 1)
    path = tmp_path / "x.log.gz"
    path.write_bytes(packed)
    assert find_logs(path)[0].problems == []


def test_standard_input_that_is_cut_or_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(b"".join(recorded(pid=pid).data for pid in range(50)))
    pipe(monkeypatch, packed[: len(packed) // 2])
    assert find_logs("-")[0].problems == [("truncated", "the .gz ends too early")]
    for nothing in (b"", b"hello\n", gzip.compress(b"hello\n")):
        pipe(monkeypatch, nothing)
        with pytest.raises(StepscopeError, match="Standard input contains no log"):
            find_logs("-")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["summary"], ["check"], ["report", "-o", "report.html"], ["export", "--to", "csv"], ["tensor"]],
    ids=lambda command: str(command[0]),
)
def test_commands_take_several(
    command: list[str], ranks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*command, *map(str, ranks)])
    assert result.exit_code == 0, result.output


def test_a_number_behind_a_trace_is_a_tensor(ranks: list[Path]) -> None:
    result = CliRunner().invoke(app, ["tensor", *map(str, ranks), "7"])
    assert isinstance(result.exception, StepscopeError)
    assert "7" in str(result.exception)


PREFIXES: dict[str, Callable[[int], bytes]] = {
    "rank": lambda number: b"[rank0]:",
    "torchrun": lambda number: b"[default%d]: " % (number % 2),
    "kubernetes": lambda number: b"2025-07-18T15:30:%02d.%09dZ stdout F " % (number % 60, number * 7919),
    "compose": lambda number: b"trainer-1%s | " % (b" " * (number % 3)),
}


@pytest.mark.parametrize("name", PREFIXES)
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_what_a_launcher_wrote_before_each_line_is_left_out(tmp_path: Path, name: str, packed: str) -> None:
    data = compile_records(compile_records(LogBuilder()), 1).data
    lines = data.split(b"\n")[:-1]
    prefixed = b"".join(PREFIXES[name](number) + line + b"\n" for number, line in enumerate(lines))
    path = tmp_path / f"x.log{packed}"
    path.write_bytes(PACKERS.get(packed, bytes)(prefixed))
    for trace_path in (path, tmp_path):
        with open_trace(trace_path) as trace:
            assert problem_counts(trace) == {"launcher_prefix": 1}
            found = list_records(trace).rows
            assert len(found) == data.count(b"\nV") + 1
            (code, _) = list_records(trace, kind="inductor_output_code").rows
            assert hashlib.md5(trace.payload(code.record)).hexdigest().encode() in data


def test_only_headers_may_have_it_and_other_lines_stay(tmp_path: Path) -> None:
    """Payloads that look like records, and what a program printed between them, are left as they are."""
    log = LogBuilder().artifact("note", b"[rank0]:V0314 09:26:54.000000 1 a.py:1] {}", "string")
    data = b"".join(b"[rank0]:" + line if line[:1] == b"V" else line for line in log.data.splitlines(keepends=True))
    (tmp_path / "x.log").write_bytes(b"hello\n" + data + b"[rank0]:not a record\n")
    with open_trace(tmp_path / "x.log") as trace:
        (note,) = list_records(trace).rows
        assert trace.payload(note.record) == b"[rank0]:V0314 09:26:54.000000 1 a.py:1] {}"
        assert problem_counts(trace) == {"launcher_prefix": 1, "not_a_record": 2}


def test_a_named_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    """As a shell's ``<(zcat x.log.gz)`` is."""
    os.mkfifo(tmp_path / "pipe")
    data = compile_records(LogBuilder()).data
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(gzip.compress(data)))
    writer.start()
    with open_trace(tmp_path / "pipe") as trace:
        assert overview(trace).counts.records == data.count(b"\nV") + 1
    writer.join()


def test_a_link_in_a_folder_is_no_second_log(tmp_path: Path) -> None:
    compile_records(LogBuilder()).write(tmp_path / "a.log")
    (tmp_path / "latest.log").symlink_to("a.log")
    (tmp_path / "self").symlink_to(".")
    assert [source.path.name for source in find_logs(tmp_path)] == ["a.log"]


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = compile_records(LogBuilder()).write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n.log")))
    with open_trace(path) as trace:
        assert [run.path for run in overview(trace).runs] == [f"{tmp_path}/\ufffd\n.log"]
        assert trace.payload(list_records(trace, kind="inductor_output_code").rows[0].record)
    with pytest.raises(StepscopeError, match="not UTF-8: rename it"):
        find_log_files(str(tmp_path))


def test_a_packed_log_of_which_nothing_is_left_says_why(tmp_path: Path) -> None:
    packed = zstd.compress(compile_records(LogBuilder()).data)
    (tmp_path / "x.log.zst").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(StepscopeError, match="zst ends too early"):
        find_logs(tmp_path / "x.log.zst")
