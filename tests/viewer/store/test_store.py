"""Where the index lies, when it is used again, and what it may not do."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from stepscope.viewer.compiles.queries.compiles import compile_detail
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.queries import tables as exports_tables
from stepscope.viewer.ingest import sources
from stepscope.viewer.ingest.columns import as_column
from stepscope.viewer.ingest.logs import read_logs
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.unpack import plain_copies
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.records.queries.artifacts import list_records, record_detail
from stepscope.viewer.search.ask import ask
from stepscope.viewer.store import cache_folder as places
from stepscope.viewer.store import index as index_file
from stepscope.viewer.store import isolated_connection
from stepscope.viewer.store.code_digest import code_digest
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import WRAPPER, LogBuilder, compile_records, recorded

NAME = "stepscope_trace_rank_0_1_x.log"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return recorded().write(tmp_path / "trace" / NAME)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever logs are read."""
    seen: list[int] = []

    def counted(logs: list[sources.Source]) -> IndexRows:
        seen.append(len(logs))
        return read_logs(logs)

    monkeypatch.setattr("stepscope.viewer.ingest.logs.read_logs", counted)
    return seen


def launches(path: Path | str) -> int | None:
    with open_trace(path) as trace:
        return overview(trace).counts.launches


def indexes() -> list[Path]:
    return sorted(places.indexes_folder().glob(f"*{places.INDEX_SUFFIX}"))


def test_the_index_lies_in_the_cache_folder_and_is_used_again(log: Path, builds: list[int]) -> None:
    with open_trace(log) as trace:
        assert trace.index.parent == places.indexes_folder() == sources.cache_dir() / "indexes"
        assert trace.index_bytes == trace.index.stat().st_size > 0
        assert stat.S_IMODE(trace.index.stat().st_mode) == 0o600
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in (trace.index.parent, sources.cache_dir())} == {0o700}
    assert (launches(log), launches(log)) == (12, 12)
    assert builds == [1]


@pytest.mark.parametrize("module", ["records.py", "launches.py", "statistics.py", "ring_format.py"])
def test_another_schema_of_the_log_asks_for_another_index(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key, read = index_file.index_key([]), Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" * (path.parts[-2:] == ("schema", module)))
    code_digest.cache_clear()
    assert index_file.index_key([]) != key
    code_digest.cache_clear()


def test_nothing_is_written_beside_logs_and_what_lies_there_is_not_read(log: Path) -> None:
    old = [log.with_name(f"{NAME}.stepscope.duckdb"), log.parent / ".stepscope.duckdb"]
    for path in old:
        path.write_bytes(b"an index of an older version")
    assert launches(log) == launches(log.parent) == 12
    assert sorted(log.parent.iterdir()) == sorted([log, *old])
    assert {path.read_bytes() for path in old} == {b"an index of an older version"}


def test_a_trace_of_several_names_has_an_index_of_its_own(log: Path, builds: list[int]) -> None:
    other = recorded(steps=1).write(log.parent.parent / "other" / NAME)
    for names in ([log, other], [log.parent], [log, other], [log.parent]):
        with open_trace(names) as trace:
            assert len(trace.logs) == len(names)
    assert builds == [2, 1]
    assert len(indexes()) == 2


@pytest.mark.slow
def test_a_log_that_grew_is_read_again_while_the_old_trace_is_open(log: Path, builds: list[int]) -> None:
    with open_trace(log) as old:
        recorded(steps=5).write(log)
        assert launches(log) == 18
        assert overview(old).counts.launches == 12
    assert builds == [1, 1]


def test_a_log_of_the_same_size_is_told_by_its_time(log: Path, builds: list[int]) -> None:
    launches(log)
    os.utime(log, ns=(0, log.stat().st_mtime_ns + 1_000_000))
    launches(log)
    assert builds == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"not a database", b"\0" * 50_000])
def test_a_broken_index_is_built_again(log: Path, content: bytes) -> None:
    launches(log)
    (index,) = indexes()
    index.write_bytes(content)
    assert launches(log) == 12
    assert index.read_bytes() != content


def test_an_index_with_damaged_pages_does_no_harm(log: Path) -> None:
    with open_trace(log) as trace:
        index = trace.index
    data = bytearray(index.read_bytes())
    data[4096:8192] = os.urandom(4096)
    index.write_bytes(bytes(data))
    assert launches(log) == 12


def test_a_folder_in_the_way_of_the_index(log: Path) -> None:
    launches(log)
    (index,) = indexes()
    index.unlink()
    (index / "precious").mkdir(parents=True)
    with open_trace(log) as trace:
        assert trace.index.parent.parent == Path(tempfile.gettempdir())
        assert overview(trace).counts.launches == 12
    assert not trace.index.parent.exists()
    assert (index / "precious").is_dir()


@pytest.mark.slow
def test_an_index_that_another_program_has_locked(log: Path) -> None:
    launches(log)
    (index,) = indexes()
    with duckdb.connect(str(index)):
        assert launches(log) == 12


def test_a_folder_of_logs_that_cannot_be_written(log: Path, builds: list[int]) -> None:
    log.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert (launches(log), launches(log)) == (12, 12)
    finally:
        log.parent.chmod(stat.S_IRWXU)
    assert builds == [1]


def test_a_cache_folder_of_somebody_else_is_not_used(
    log: Path, cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (cache_folder / "stepscope").mkdir(mode=0o777)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    with pytest.raises(StepscopeError, match="XDG_CACHE_HOME"):
        sources.cache_dir()
    assert launches(log) == 12
    monkeypatch.undo()
    assert not list((cache_folder / "stepscope").iterdir())


def test_a_user_without_a_home(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a number which no user has."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert sources.cache_dir() == tmp_path / f"stepscope-{os.getuid()}"
    assert launches(log) == 12


def test_a_cache_folder_that_others_can_look_into_is_closed_to_them(cache_folder: Path) -> None:
    (cache_folder / "stepscope").mkdir()
    (cache_folder / "stepscope").chmod(0o755)
    assert stat.S_IMODE(sources.cache_dir().stat().st_mode) == 0o700


def full_disk(monkeypatch: pytest.MonkeyPatch, *folders: Path | str) -> None:
    """Nothing can be written to an index in these folders."""
    write = index_file._write

    def refuse(connection: duckdb.DuckDBPyConnection, database: str, key: str, rows: IndexRows) -> None:
        found = connection.execute("SELECT path FROM duckdb_databases() WHERE database_name = ?", [database])
        ((path,),) = found.fetchall()
        if path and path.startswith(tuple(map(str, folders))):
            raise duckdb.IOException("Could not write file: No space left on device")
        write(connection, database, key, rows)

    monkeypatch.setattr(index_file, "_write", refuse)


def test_a_full_disk_keeps_no_log_from_being_opened(
    log: Path, cache_folder: Path, builds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk(monkeypatch, cache_folder)
    with open_trace(log) as trace:
        assert trace.index.parent.parent == Path(tempfile.gettempdir())
        assert overview(trace).counts.launches == 12
        assert ask(trace, "SELECT count(*) FROM launches").rows == [[16]]
    assert not trace.index.parent.exists()
    assert builds == [1]
    assert not list(places.indexes_folder().iterdir())


def test_where_nothing_can_be_written_the_index_is_in_memory(
    log: Path, builds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk(monkeypatch, "/")
    with open_trace(log) as trace:
        assert trace.index_bytes == 0
        assert overview(trace).counts.launches == 12
        file, count = exports_tables.table_file(trace, "launches", "csv")
        with file:
            assert (count, len(file.read().splitlines())) == (16, 17)
        with pytest.raises(StepscopeError, match="in memory"):
            ask(trace, "SELECT 1")
    assert builds == [1]


@pytest.mark.slow
def test_several_readers_at_once(log: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(launches, [log] * 8)) == [12] * 8
    assert len(indexes()) == 1


@pytest.mark.slow
def test_a_log_that_grew_has_one_index(log: Path) -> None:
    for steps in (1, 2, 3):
        recorded(steps=steps).write(log)
        launches(log)
    assert len(indexes()) == 1


def test_unpacked_logs_count_and_go_where_nobody_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = [tmp_path / f"{i}.log.gz" for i in range(3)]
    for steps, log in enumerate(packed, 1):
        log.write_bytes(gzip.compress(recorded(steps=steps).data))
    open_trace(packed[0]).close()
    (old,) = plain_copies()
    with open_trace(packed[1]) as reader:
        (held,) = {*plain_copies()} - {old}
        for plain_copy in (old, held):
            os.utime(plain_copy, ns=(0, plain_copy.stat().st_mtime_ns))
        monkeypatch.setenv(places.BOUND_VARIABLE, "1")
        open_trace(packed[2]).close()
        assert not old.exists()
        assert held in plain_copies()  # is not taken from under its reader
        assert len(plain_copies()) == 2  # nor is one that was used a moment ago
        assert record_detail(reader, list_records(reader).rows[0].record)
    assert launches(packed[0])


@pytest.mark.slow
def test_the_oldest_indexes_go_where_they_take_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [recorded().write(tmp_path / f"{i}.log") for i in range(4)]
    used = {}
    for second, log in enumerate(logs):
        with open_trace(log) as trace:
            used[log] = trace.index
            size = trace.index_bytes
        os.utime(trace.index, (second, second))
    launches(logs[0])  # used again
    monkeypatch.setenv(places.BOUND_VARIABLE, str(3 * size + size // 2))
    with open_trace(logs[1]) as reader:  # is not taken from under its reader, though it is the oldest
        os.utime(used[logs[1]], (0, 0))
        launches(recorded().write(tmp_path / "new.log"))
        assert not used[logs[2]].exists()
        assert not used[logs[3]].exists()
        assert used[logs[0]].exists()
        assert used[logs[1]].exists()
        with reader.unlocked() as another:
            assert another.execute("SELECT count(*) FROM launches").fetchall() == [(16,)]
    assert sum(path.stat().st_size for path in indexes()) <= 3 * size + size // 2


@pytest.mark.parametrize(
    ("text", "most"), [("", 10**10), ("500", 500), ("20G", 2 * 10**10), ("1.5 GB", 15 * 10**8), ("1.5", None)]
)
def test_the_bound_of_all_indexes(text: str, most: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.BOUND_VARIABLE, text)
    if most is not None:
        assert places.most_bytes() == most
    else:
        with pytest.raises(StepscopeError, match="give a number of bytes"):
            places.most_bytes()


def test_a_bound_that_is_none_is_told_each_time(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.BOUND_VARIABLE, "much")
    for _ in range(2):
        with pytest.raises(StepscopeError, match="STEPSCOPE_INDEX_BYTES is 'much'"):
            launches(log)
    assert indexes() == []


def test_what_killed_processes_left_behind_is_removed_after_a_day(log: Path) -> None:
    old, new = (places.indexes_folder() / f"{places.BUILDING}{name}" for name in ("old", "new"))
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    launches(log)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_place_of_ones_own_for_the_index(log: Path, tmp_path: Path) -> None:
    with open_trace(log, index_dir=tmp_path / "elsewhere") as trace:
        assert trace.index.parent == tmp_path / "elsewhere"
    assert [path.name for path in log.parent.iterdir()] == [NAME]


@pytest.mark.parametrize("name", ["it's; a 'log'.log", "日本 語.log", "%s{x}.log"])
def test_odd_names(tmp_path: Path, name: str) -> None:
    assert launches(recorded().write(tmp_path / name)) == 12


def test_gz_and_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = recorded().data
    (tmp_path / "x.log.gz").write_bytes(gzip.compress(data))
    with open_trace(tmp_path / "x.log.gz") as trace:
        (row,) = list_records(trace, kind="inductor_output_code").rows
        assert trace.payload(row.record).decode() == WRAPPER
        assert overview(trace).runs[0].path == str(tmp_path / "x.log.gz")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with open_trace("-") as trace:
        assert overview(trace).counts.launches == 12
        assert overview(trace).runs[0].path == "<stdin>"


def test_logs_in_folders_are_found(tmp_path: Path) -> None:
    recorded().write(tmp_path / "a" / "b" / NAME)
    compile_records(LogBuilder()).write(tmp_path / "renamed.txt")
    (tmp_path / "notes.txt").write_text("not a log\n")
    (tmp_path / "model.py").write_text("V0101 00:00:00.000000 1 a.py:1] {}\n")
    compile_records(LogBuilder()).write(tmp_path / ".hidden" / "dedicated_log_torch_trace_x.log")
    compile_records(LogBuilder()).write(tmp_path / "1" / "2" / "3" / "4" / "5" / "6" / "7" / "too_deep.log")
    with open_trace(tmp_path) as trace:
        assert [log.path.name for log in trace.logs] == [NAME, "renamed.txt"]


def test_the_index_is_read_only_and_reads_no_other_file(log: Path) -> None:
    with open_trace(log) as trace:
        for statement in (
            "DELETE FROM records",
            "CREATE TABLE x (i INT)",
            "SELECT * FROM read_csv('/etc/hostname')",
            "COPY records TO 'out.csv'",
            "ATTACH 'other.duckdb'",
            "INSTALL httpfs",
            "SET enable_external_access = true",
        ):
            with pytest.raises(duckdb.Error):
                trace.cursor().execute(statement)


def test_payloads_are_not_copied_into_the_index(log: Path) -> None:
    with open_trace(log) as trace:
        (row,) = list_records(trace, kind="inductor_output_code").rows
        assert b"extern_kernels.mm(arg0_1, arg1_1, out=buf0)" not in trace.index.read_bytes()
        assert trace.payload(row.record).decode() == WRAPPER
        assert trace.payload(10**6) == b""
        assert trace.header(10**6) == b""


def test_a_child_finds_file_names_in_its_parents_string_table(tmp_path: Path) -> None:
    parent = compile_records(recorded(pid=100))
    parent.write(tmp_path / "stepscope_trace_100.log")
    child = recorded(pid=101, parent_pid=100).data.replace(b'{"str":["/src/model.py",7]}', b'{"link":{"name":"x"}}')
    (tmp_path / "stepscope_trace_101.log").write_bytes(child)
    with open_trace(tmp_path) as trace:
        detail = compile_detail(trace, 1, "0/0")
        assert detail is not None
        assert detail.stack[0].file == "/src/model.py"


def test_a_record_of_a_log_that_shrank_is_shown_as_far_as_it_goes(log: Path) -> None:
    with open_trace(log) as trace:
        last = list_records(trace).total - 1
        os.truncate(log, 100)
        detail = record_detail(trace, last)
        assert detail is not None
        assert detail.payload is None


def test_what_is_asked_of_a_trace_once_is_kept_as_long_as_there_is_room(log: Path) -> None:
    asked: list[int] = []

    def double(trace: Trace, number: int) -> int:
        asked.append(number)
        return 2 * number

    with open_trace(log) as trace, open_trace(log) as other:
        assert [trace.once(double, n, most=2) for n in (1, 1, 2, 1, 3, 2, 1)] == [2, 2, 4, 2, 6, 4, 2]
        assert asked == [1, 2, 3, 1]
        assert [other.once(double, n) for n in (1, 2, 3, 1)] == [2, 4, 6, 2]
        assert asked[4:] == [1, 2, 3]


def test_columns_for_a_database_that_does_not_look_at_masks() -> None:
    """DuckDB before 2.0 fails on a column of objects that begins with many a None."""
    rows = [(number, None if number < 3000 else "text", None if number % 2 else number) for number in range(4000)]
    columns, values = index_file._with_masks_apart(
        {name: as_column(values) for name, values in zip("abc", zip(*rows, strict=True), strict=True)}
    )
    assert not any(value is None for column in columns.values() for value in column.tolist())
    with duckdb.connect() as connection:
        connection.register("new_rows", columns)
        assert connection.execute(f"SELECT {values} FROM new_rows ORDER BY a").fetchall() == rows


@pytest.mark.parametrize("small_bytes", [isolated_connection.SMALL_BYTES, 1], ids=["small", "large"])
def test_only_a_large_index_has_several_threads(log: Path, monkeypatch: pytest.MonkeyPatch, small_bytes: int) -> None:
    monkeypatch.setattr(isolated_connection, "SMALL_BYTES", small_bytes)
    with duckdb.connect() as usual:
        (default,) = _threads(usual)
    expected = 1 if small_bytes > 1 else default
    with open_trace(log) as built, open_trace(log) as opened, built.unlocked() as another:
        assert [*_threads(built.cursor()), *_threads(opened.cursor()), *_threads(another)] == [expected] * 3
        assert built.connect_apart is not None
        with built.connect_apart() as apart_connection:
            isolated_connection.lock(apart_connection, 10**9, most_threads=2)
            assert _threads(apart_connection) == (min(expected, 2),)
    with closing(index_file.build_in_memory("key", read_logs(sources.find_logs(log)), log.stat().st_size)) as memory:
        assert _threads(memory) == (expected,)


def _threads(connection: duckdb.DuckDBPyConnection) -> tuple[int]:
    (found,) = connection.execute("SELECT current_setting('threads')").fetchall()
    return (int(found[0]),)
