"""A STORE as a trace: its pages, its files, and what a statement can get at."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from stepscope.viewer.cli.commands import chosen
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.write import export
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.search.ask import ask
from stepscope.viewer.search.queries.search import search
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.parquet import tables_file
from stepscope.viewer.store.parquet.layout import TABLES, read_store
from stepscope.viewer.store.trace import Trace
from tests.logs.store_logs import without_ids, write_logs
from tests.viewer.client import Client
from tests.viewer.store.test_distributed_ingest import run

LISTS = (
    "/steps",
    "/graphs",
    "/memory",
    "/kernels",
    "/values",
    "/compile",
    "/records",
    "/problems",
    "/ranks",
    "/tables",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `logs` and their `store`."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "logs").mkdir()
    write_logs(folder / "logs")
    run(folder / "logs", folder / "store")
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """A STORE to break, whose logs are those of `made`."""
    return Path(shutil.copytree(made / "store", tmp_path / "store"))


@pytest.fixture(autouse=True, params=["views"])
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the tables of a STORE are read: as views as if they were large, or as copies."""
    if request.param == "views":
        monkeypatch.setattr(tables_file, "_MOST_COPIED_BYTES", -1)
        monkeypatch.setattr(tables_file, "_COPIED_BYTES_EACH", -1)
    return str(request.param)


BOTH = pytest.mark.parametrize("tables", ["views", "copies"], indirect=True)


@pytest.fixture
def store(made: Path, tables: str) -> Iterator[Trace]:
    with open_trace(made / "store") as trace:
        yield trace


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()
    }  # fmt: skip


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("page", LISTS)
def test_pages_say_what_they_say_of_the_logs(page: str, made: Path, store: Trace, tmp_path: Path) -> None:
    with open_trace(made / "logs", index_dir=tmp_path) as index:
        answers = [Client(trace).get(f"{page}.json") for trace in (store, index)]
    assert [answer.status_code for answer in answers] == [200, 200]
    found, expected = (without_ids(answer.json()) for answer in answers)
    if page == "/tables":
        found, expected = (
            [(table["name"], table["rows"] if table["name"] != "meta" else 0) for table in answer["tables"]]
            for answer in (found, expected)
        )
    assert found == expected


@pytest.mark.slow
def test_payloads_come_from_the_logs_packed_or_not(made: Path, store: Trace, tmp_path: Path) -> None:
    with open_trace(made / "logs", index_dir=tmp_path) as index:
        assert payloads(store) == payloads(index)
        looked = [[(hit.log, hit.byte, hit.line) for hit in search(t, "extern_kernels").hits] for t in (store, index)]
    assert looked[0] == looked[1]
    assert {log for log, _, _ in looked[0]} >= {0, 1}


@pytest.mark.slow
@BOTH
def test_opening_copies_small_tables_only(made: Path, store: Trace, tables: str) -> None:
    before = digests(made)
    overview(store)
    assert store.index.stat().st_size < 2_000_000
    with duckdb.connect(str(store.index), read_only=True) as index:
        kinds = dict(index.execute("SELECT table_name, table_type FROM information_schema.tables").fetchall())
        rows = index.execute("SELECT sum(estimated_size) FROM duckdb_tables()").fetchone()
    kind = "VIEW" if tables == "views" else "BASE TABLE"
    assert {kinds[table] for table in ("records", "launches", "graphs", "logs")} == {kind}
    assert (rows == (0,)) == (tables == "views")
    assert digests(made) == before
    assert store.index_bytes == sum(path.stat().st_size for path in made.rglob("*.parquet"))


@pytest.mark.slow
def test_tables_are_kept_until_the_store_changes(copied: Path) -> None:
    with open_trace(copied) as trace:
        first, inode = trace.index, trace.index.stat().st_ino
        expected = rows_of_all_tables(trace)
    assert first.parent.name == "indexes"
    with open_trace(copied) as trace:
        assert (trace.index, trace.index.stat().st_ino) == (first, inode)
        assert rows_of_all_tables(trace) == expected
    manifest = copied / "units" / "000003" / "manifest.json"
    manifest.rename(copied / "away")
    with open_trace(copied) as trace:
        assert trace.index != first
        assert not first.exists()  # that of an earlier state
        assert trace.cursor().execute("SELECT count(*) FROM logs").fetchone() == (7,)
    (copied / "away").rename(manifest)
    with open_trace(copied) as trace:
        assert rows_of_all_tables(trace) == expected


@pytest.mark.slow
@BOTH
def test_copies_and_views_hold_the_rows_of_the_files(store: Trace, made: Path) -> None:
    found = rows_of_all_tables(store)
    for table, rows in found.items():
        files = [str(path) for path in (made / "store").rglob(f"{table}.parquet")]
        if files:
            assert rows == sorted(map(repr, duckdb.execute(f"SELECT * FROM read_parquet({files})").fetchall())), table
        else:
            assert rows == []


@pytest.mark.parametrize("broken", [b"", b"no database" * 1000])
def test_a_broken_file_of_tables_is_written_again(broken: bytes, copied: Path) -> None:
    with open_trace(copied) as trace:
        expected, index = rows_of_all_tables(trace), trace.index
    index.write_bytes(broken)
    with open_trace(copied) as trace:
        assert rows_of_all_tables(trace) == expected


def test_without_a_cache_folder_closing_leaves_nothing(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Path:
        raise OSError("read-only file system")

    monkeypatch.setattr(tables_file, "indexes_folder", refuse)
    trace = open_trace(made / "store")
    assert trace.cursor().execute("SELECT count(*) FROM logs").fetchone() == (8,)
    assert trace.index.exists()
    trace.close()
    assert not trace.index.parent.exists()


@pytest.mark.slow
@BOTH
def test_a_store_with_a_quote_in_its_path_opens(made: Path, tmp_path: Path) -> None:
    odd = Path(shutil.copytree(made / "store", tmp_path / "it's {a} store"))
    with open_trace(odd) as trace, open_trace(made / "store") as plain:
        assert rows_of_all_tables(trace) == rows_of_all_tables(plain)


@pytest.mark.slow
@BOTH
def test_a_store_whose_path_looks_like_a_pattern_shows_no_other_store(made: Path, tmp_path: Path) -> None:
    odd = Path(shutil.copytree(made / "store", tmp_path / "run[1]"))
    for table in Path(shutil.copytree(made / "store", tmp_path / "run1")).rglob("logs.parquet"):
        duckdb.execute(f"COPY (SELECT * REPLACE (log + 1000 AS log) FROM '{table}') TO '{table}.new' (FORMAT parquet)")
        Path(f"{table}.new").rename(table)
    with open_trace(odd) as trace, open_trace(made / "store") as plain:
        assert rows_of_all_tables(trace) == rows_of_all_tables(plain)


def rows_of_all_tables(trace: Trace) -> dict[str, list[str]]:
    """Return the sorted rows of every table but `meta`, whose counts are sums."""
    return {
        table: sorted(map(repr, trace.cursor().execute(f"SELECT * FROM {table}").fetchall()))
        for table in TABLES
        if table != "meta"
    }


# What a statement might try; {other} is a file beside those of the STORE, {own} is one of them.
FORBIDDEN = (
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_text('{other}')",
    "SELECT * FROM read_csv('file://{other}')",
    "SELECT * FROM '{own}'",
    "SELECT * FROM read_blob('{own}')",
    "SELECT * FROM glob('/etc/*')",
    "COPY (SELECT 1) TO '{other}'",
    "COPY (SELECT 1) TO '{own}' (USE_TMP_FILE false)",
    "COPY (SELECT 1) TO 'stepscope://0/records.parquet' (USE_TMP_FILE false)",
    "COPY (SELECT 1) TO 'stepscope://0/new.parquet'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO 'stepscope://0/records.parquet' (USE_TMP_FILE false)",
    "EXPORT DATABASE '{other}.d'",
    "ATTACH '{other}.duckdb'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET allowed_directories = ['/']",
    "RESET lock_configuration",
    "DROP VIEW records",
    "CREATE OR REPLACE VIEW records AS SELECT 1",
    "CREATE TABLE new_one (a INT)",
    "DELETE FROM strings",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern", ["stepscope://../../other.txt", "stepscope:///etc/passwd", "stepscope://{other}", "stepscope://*"]
)
def test_there_is_no_file_but_those_of_the_store(pattern: str, copied: Path) -> None:
    other = copied / "other.txt"
    other.write_text("secret")
    with open_trace(copied) as trace:
        for function in ("read_text", "read_blob", "glob"):
            statement = f"SELECT * FROM {function}('{pattern.format(other=other)}')"
            with suppress(StepscopeError):  # older versions of DuckDB refuse it
                assert ask(trace, statement).rows == []


@pytest.mark.slow
@pytest.mark.parametrize("statement", FORBIDDEN)
def test_a_statement_gets_at_no_file_and_changes_none(statement: str, copied: Path) -> None:
    other = copied / "other.txt"
    other.write_text("secret")
    own = next(copied.rglob("records.parquet"))
    before = digests(copied)
    with open_trace(copied) as trace:
        asked = statement.format(other=other, own=own)
        with pytest.raises((duckdb.Error, RuntimeError)):
            trace.cursor().execute(asked).fetchall()
        with pytest.raises(StepscopeError) as refused:
            ask(trace, asked)
        assert "secret" not in str(refused.value)
        assert "Traceback" not in str(refused.value)
        assert ask(trace, "SELECT count(*) FROM logs").rows == [[8]]
    assert digests(copied) == before


def test_tables_are_exported(store: Trace, made: Path, tmp_path: Path) -> None:
    path, count = export(store, "csv", "records", tmp_path / "records.csv")
    assert count == path.read_text().count("\n") - 1 > 50
    assert export(store, "parquet", "storages", tmp_path / "s.parquet")[1] > 0
    table = next((made / "store").rglob("records.parquet"))
    with pytest.raises(StepscopeError, match="is a file of the trace"):
        export(store, "parquet", "records", table)


@pytest.mark.slow
def test_without_its_logs_a_store_shows_all_but_payloads(made: Path, copied: Path, tmp_path: Path) -> None:
    away = made / "away"
    (made / "logs").rename(away)
    try:
        with open_trace(copied) as trace:
            client = Client(trace)
            for page in ("/", *LISTS):
                assert client.get(page).status_code == 200
            [(record,)] = (
                trace.cursor().execute("SELECT min(record) FROM records WHERE log = 1 AND payload_bytes > 0").fetchall()
            )
            shown = client.get(f"/records/{record}")
            assert shown.status_code == 200
            assert "(there is no such file), so their payloads are not shown" in shown.text
            raw = client.get(f"/records/{record}/raw")
            assert raw.status_code == 422
            assert raw.json()["error"].startswith("The log /")
            assert trace.payload(record) == b""
            with pytest.raises(StepscopeError, match="its payloads are not shown"):
                export(trace, "raw", "", tmp_path / "raw", record)
            for (graph,) in trace.cursor().execute("SELECT graph FROM graphs").fetchall():
                assert client.get(f"/graphs/{graph}").status_code == 200
            for log, compile_id in trace.cursor().execute("SELECT log, compile_id FROM compiles").fetchall():
                assert client.get(f"/compile/{log}/{compile_id.replace('/', '_')}").status_code in (200, 404)
            assert search(trace, "extern").hits == []
            [note] = [note for note in overview(trace).notes if "cannot be read" in note]
            assert note.endswith("their payloads are not shown. Everything else is.")
    finally:
        away.rename(made / "logs")


def test_a_log_that_changed_is_not_shown_as_it_was(made: Path, copied: Path) -> None:
    log = sorted((made / "logs").iterdir())[1]
    kept, stat = log.read_bytes(), log.stat()
    log.write_bytes(kept.replace(b"V", b"W"))
    try:
        with open_trace(copied) as trace:
            record = trace.cursor().execute("SELECT min(record) FROM records WHERE log = 1").fetchone()
            assert record is not None
            assert trace.header(*record) == b""
            assert any("it has changed since" in notice for notice in trace.notices)
    finally:
        log.write_bytes(kept)
        os.utime(log, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def change_manifest(store: Path, unit: int, **changes: Any) -> None:
    path = store / "units" / f"{unit:06d}" / "manifest.json"
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"folder": "../../.."},
        {"number": 7},
        {"number": 1 << 20},
        {"tables": {"../../x": {"rows": 1, "size_bytes": 1, "sha256": ""}}},
        {"tables": 3},
        {"log": {"address": ["/etc/passwd"], "size_bytes": 1, "modified": ""}},
        {"format": "stepscope-unit/9"},
        {"more": 1},
        {"plain_bytes": "1"},
    ],
)
def test_a_unit_whose_manifest_is_wrong_is_left_out(changes: dict[str, Any], copied: Path) -> None:
    change_manifest(copied, 3, **changes)
    assert [unit.number for unit in read_store(str(copied)).manifests] == [0, 1, 2, 4, 5, 6, 7]
    with open_trace(copied) as trace:
        assert trace.cursor().execute("SELECT count(*) FROM logs").fetchone() == (7,)
        assert trace.notices[0].startswith("1 of 8 logs is missing from this STORE")


@pytest.mark.slow
def test_pages_without_a_log_show_the_first_log_there_is(copied: Path) -> None:
    change_manifest(copied, 0, format="stepscope-unit/9")
    with open_trace(copied) as trace:
        client = Client(trace)
        assert {page: client.get(page).status_code for page in ("/", *LISTS)} == dict.fromkeys(("/", *LISTS), 200)
        assert client.get("/memory.json").json()["log"] == min(run.log for run in list_runs(trace)) == 1


def test_a_store_has_no_latest_log(copied: Path) -> None:
    with pytest.raises(StepscopeError, match="is a STORE: leave --latest out"):
        chosen([str(copied)], latest=True)
    assert chosen([str(copied)], latest=False) == [str(copied)]
    assert chosen(["-"], latest=True) == ["-"]


def test_a_manifest_opens_no_file_that_is_no_log(copied: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not a log\n" * 100)
    modified = datetime.fromtimestamp(secret.stat().st_mtime, timezone.utc).isoformat()
    log = {"address": str(secret), "size_bytes": secret.stat().st_size, "modified": modified}
    change_manifest(copied, 1, log=log, plain_bytes=1000)
    with open_trace(copied) as trace:
        assert trace.log_bytes(1, 0, 100) == b""
        assert any("it is not a log" in notice for notice in trace.notices)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda store: (store / "stepscope-store.json").write_text("{"), "cannot be read as a STORE"),
        (
            lambda store: (store / "stepscope-store.json").write_text('{"format": "x/2"}'),
            "not a STORE that this stepscope reads",
        ),
        (lambda store: shutil.rmtree(store / "units"), "contains no logs yet"),
        (lambda store: change_manifest(store, 2, schema="0"), "read by another version of stepscope"),
    ],
)
def test_what_cannot_be_opened_is_said(change: Any, sentence: str, copied: Path) -> None:
    change(copied)
    with pytest.raises(StepscopeError, match=sentence):
        open_trace(copied)


def test_an_address_without_a_store_is_said() -> None:
    with pytest.raises(StepscopeError, match="cannot be read as a STORE"):
        open_trace("memory://nothing/here")


def payloads(trace: Trace) -> list[bytes]:
    records = trace.cursor().execute("SELECT record FROM records ORDER BY record").fetchall()
    return [trace.header(record) + trace.payload(record) for (record,) in records]
