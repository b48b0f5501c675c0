"""A log that still grows: its pages follow, what is being written is not damage, nobody's page is closed under them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.sources import Source, find_logs
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.records.queries.artifacts import list_records
from stepscope.viewer.store.open import open_logs
from stepscope.viewer.web import follow
from stepscope.viewer.web.follow import Current, Follower, open_growing, whole_records, whole_size
from tests.logs.synthetic import LogBuilder, compile_records, recorded, run
from tests.viewer.client import Client
from tests.waiting import PATIENCE_S, wait_for

NAME = "stepscope_trace_rank_0_1_x.log"


def total(current: Current) -> int:
    with current.use() as reading:
        return list_records(reading.trace).total


def damage(current: Current) -> dict[str, int]:
    with current.use() as reading:
        return problem_counts(reading.trace)


def begun() -> LogBuilder:
    """The begin of a recorder's log."""
    return compile_records(LogBuilder()).record(run())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return begun().write(tmp_path / "logs" / NAME)


@pytest.fixture
def followed(log: Path) -> Iterator[tuple[Current, Follower]]:
    current = Current(open_growing(log.parent, print), following=True)
    yield current, Follower(log.parent, current)
    current.close()


def append(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a process takes longer than reading such logs."""
    monkeypatch.setattr(follow, "_in_another_process", lambda path, sources: None)


def test_whole_records_are_found_at_every_byte(tmp_path: Path) -> None:
    data = recorded(steps=1).artifact("text", b"one\n\ntwo\n", "string").data[-900:]
    data = data[data.index(b"\nV") + 1 :]
    starts = [0, *(at + 1 for at in range(len(data)) if data.startswith(b"\nV", at)), len(data)]
    path = tmp_path / NAME
    for size in range(1, len(data) + 1):
        path.write_bytes(data[:size])
        found = whole_size(Source(path, path, size, 0))
        assert found in starts
        # The last record counts when it ends where its payload does: then nothing of it is missing.
        assert found == max(start for start in starts if start <= size)


def test_growth_is_shown(followed: tuple[Current, Follower], log: Path) -> None:
    current, follower = followed
    assert not follower.look()
    before = total(current)
    append(log, LogBuilder().artifact("more", b"{}").artifact("most", b"{}").data)
    assert follower.look()
    assert total(current) == before + 2
    assert not follower.look()


def test_what_is_being_written_is_not_damage(followed: tuple[Current, Follower], log: Path) -> None:
    current, follower = followed
    before = total(current)
    more = LogBuilder().artifact("more", b"first\nsecond\nthird", "string").data
    for cut in (30, len(more) - 8, len(more) - 1):
        log.write_bytes(begun().data + more[:cut])
        follower.look()
        assert (total(current), damage(current)) == (before, {})
    log.write_bytes(begun().data + more)
    assert follower.look()
    assert (total(current), damage(current)) == (before + 1, {})


def test_what_nobody_goes_on_writing_is_damage(
    followed: tuple[Current, Follower], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current, follower = followed
    append(log, LogBuilder().artifact("more", b"first\nsecond", "string").data[:-4])
    assert not follower.look()
    monkeypatch.setattr(follow, "QUIET_SECONDS", 0)
    assert follower.look()
    assert damage(current) == {"truncated": 1}


def test_a_new_log_in_the_folder(followed: tuple[Current, Follower], log: Path) -> None:
    current, follower = followed
    client = Client(current)
    shown = client.get("/news.json").json()
    (log.parent / "stepscope_trace_rank_1_2_y.log").write_bytes(b"")
    assert not follower.look()
    recorded(pid=2).write(log.parent / "stepscope_trace_rank_1_2_y.log")
    assert follower.look()
    news = client.get("/news.json").json()
    assert news["logs"] == shown["logs"] + 1
    assert news["records"] > shown["records"]


def test_logs_that_are_gone_leave_the_pages_as_they_are(followed: tuple[Current, Follower], log: Path) -> None:
    current, follower = followed
    log.unlink()
    with pytest.raises(StepscopeError, match="contains no log"):
        follower.look()
    assert total(current) == 8
    client = Client(current)
    assert client.get("/compile").status_code == 200
    answer = client.get("/records/3")
    assert answer.status_code == 422
    assert "cannot be read any more (No such file or directory)" in answer.text


def test_who_reads_keeps_the_old_reading(followed: tuple[Current, Follower], log: Path) -> None:
    current, follower = followed
    with current.use() as old:
        append(log, LogBuilder().artifact("more", b"{}").data)
        assert follower.look()
        assert list_records(old.trace).total == 8
        assert old.trace.payload(4) == b'{"key": "abc"}'
        assert total(current) == 9
    with pytest.raises(Exception, match="closed"):
        old.trace.cursor()


def test_the_page_is_marked_and_others_are_not(followed: tuple[Current, Follower], log: Path) -> None:
    current, _ = followed
    text = Client(current).get("/").text
    assert 'id="following"' in text
    assert 'data-records="8"' in text
    assert "/static/js/core/follow.js" in text
    with current.use() as reading:
        assert 'id="following"' not in Client(reading.trace).get("/steps").text


def test_reading_takes_at_most_its_share_of_the_time(
    followed: tuple[Current, Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, follower = followed
    said: list[str] = []
    follower._say = said.append
    monkeypatch.setattr(follow, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(follow, "SHARE", 0.001)
    follower.pause = 0.01
    monkeypatch.setattr(follower, "look", lambda: time.sleep(0.1))
    follower.start()
    wait_for(lambda: follower.pause >= 1)
    follower.stop()
    assert follower.pause > 50
    assert said == [f"stepscope: reading takes long, so the pages are updated every {follower.pause:,.0f} s"]


def test_what_cannot_be_followed_is_said(tmp_path: Path) -> None:
    with pytest.raises(StepscopeError, match="Standard input cannot be followed"):
        open_growing("-")
    with pytest.raises(StepscopeError, match="There is no file or folder"):
        open_growing(tmp_path / "nothing")


def test_a_folder_without_logs_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def sleep(seconds: float) -> None:
        begun().write(tmp_path / NAME)

    monkeypatch.setattr(time, "sleep", sleep)
    with open_growing(tmp_path, said.append) as trace:
        assert list_records(trace).total == 8
    assert len(said) == 1


APPEND = """
import sys, time
from pathlib import Path
path, data = Path(sys.argv[1]), Path(sys.argv[2]).read_bytes()
with path.open("ab", buffering=0) as file:
    for start in range(0, len(data), 97):
        file.write(data[start : start + 97])
        time.sleep(0.002)
"""


def test_a_process_that_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of any size at any time: never damage, and all of it in the end."""
    monkeypatch.setattr(follow, "LEAST_SECONDS", 0.05)
    monkeypatch.setattr(follow, "SHARE", 0.9)
    whole = recorded(steps=3).data
    (tmp_path / "whole").write_bytes(whole)
    folder = tmp_path / "logs"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", APPEND, str(folder / NAME), str(tmp_path / "whole")]) as writer:
        current = Current(open_growing(folder, lambda text: None), following=True)
        follower = Follower(folder, current, lambda text: None)
        follower.pause = 0.05
        follower.start()
        counts, deadline = [total(current)], time.monotonic() + PATIENCE_S
        while counts[-1] < whole.count(b"\nV") + 1 and time.monotonic() < deadline:
            assert damage(current) == {}
            counts.append(total(current))
            time.sleep(0.02)
        writer.wait(PATIENCE_S)
    follower.stop()
    assert counts == sorted(counts)
    assert counts[-1] == whole.count(b"\nV") + 1
    current.close()


def test_an_index_of_another_process_is_used(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sources = whole_records(find_logs(log))
    follow._in_another_process(log, sources)
    monkeypatch.setattr("stepscope.viewer.ingest.logs.read_logs", None)
    with open_logs(log, sources) as trace:
        assert list_records(trace).total == 8
