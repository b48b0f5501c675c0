"""Payloads and tables as bytes: whole, in ranges, to a file, to standard output; scripts that browsers keep."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.formats import STDOUT
from stepscope.viewer.exports.write import export
from stepscope.viewer.records.queries.artifacts import list_records
from stepscope.viewer.search.queries.tables import list_tables
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.byte_range import byte_range
from stepscope.viewer.web import assets
from tests.logs.synthetic import WRAPPER, recorded
from tests.viewer.client import Client
from tests.waiting import PATIENCE_S

CODE = WRAPPER.encode()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(steps=4).write(tmp_path_factory.mktemp("raw") / "x.log")


@pytest.fixture(scope="module")
def trace(log: Path) -> Iterator[Trace]:
    with open_trace(log) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(trace: Trace) -> Client:
    return Client(trace)


@pytest.fixture(scope="module")
def record(trace: Trace) -> int:
    (row,) = list_records(trace, kind="inductor_output_code").rows
    return row.record


RANGES = [
    ("bytes=0-0", CODE[:1], "0-0"),
    ("bytes=0-99", CODE[:100], "0-99"),
    ("bytes=100-", CODE[100:], f"100-{len(CODE) - 1}"),
    ("bytes=-7", CODE[-7:], f"{len(CODE) - 7}-{len(CODE) - 1}"),
    ("bytes=0-999999", CODE, f"0-{len(CODE) - 1}"),
    ("bytes=-999999", CODE, f"0-{len(CODE) - 1}"),
]


@pytest.mark.parametrize(("header", "expected", "place"), RANGES)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_range(client: Client, record: int, method: str, header: str, expected: bytes, place: str) -> None:
    answer = client.get(f"/records/{record}/raw", method=method, headers={"range": header})
    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes {place}/{len(CODE)}"
    assert answer.headers["content-length"] == str(len(expected))
    assert answer.content == (expected if method == "GET" else b"")


@pytest.mark.parametrize("header", ["bytes=5000000-", "bytes=-0", "bytes=999999-1000000"])
def test_a_range_that_holds_nothing(client: Client, record: int, header: str) -> None:
    answer = client.get(f"/records/{record}/raw", headers={"range": header})
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{len(CODE)}")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"range": "bytes=9-3"},
        {"range": "bytes=-"},
        {"range": "lines=1-2"},
        {"range": "bytes=0-1,5-6"},
        {"range": "bytes=" + "9" * 40 + "-"},
        {"range": "bytes=0-4", "if-range": '"other"'},
    ],
)
def test_what_is_no_range_gets_all(client: Client, record: int, headers: dict[str, str]) -> None:
    answer = client.get(f"/records/{record}/raw", headers=headers)
    assert (answer.status_code, answer.content) == (200, CODE)
    assert answer.headers["accept-ranges"] == "bytes"
    head = client.get(f"/records/{record}/raw", method="HEAD")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(CODE)), b"")


def test_ranges_put_together_are_the_payload(client: Client, record: int) -> None:
    parts = [
        client.get(f"/records/{record}/raw", headers={"range": f"bytes={start}-{start + 99}"}).content
        for start in range(0, len(CODE), 100)
    ]
    assert b"".join(parts) == CODE


def test_records_without_payload(client: Client, trace: Trace) -> None:
    bare = next(row.record for row in list_records(trace).rows if row.payload_bytes is None)
    for number in (bare, 10**9):
        answer = client.get(f"/records/{number}/raw")
        assert (answer.status_code, answer.json()["ok"]) == (404, False)


def test_part_of_a_payload_from_the_command_line(trace: Trace, record: int, tmp_path: Path) -> None:
    out = tmp_path / "part"
    assert export(trace, "raw", "", out, record, "10-19") == (out, 10)
    assert out.read_bytes() == CODE[10:20]
    for part, sentence in (
        ("x", "is not a range"),
        ("99999999-", "lies outside of the payload"),
        ("0-1,3-4", "not a range"),
    ):
        with pytest.raises(StepscopeError, match=sentence):
            export(trace, "raw", "", out, record, part)


def test_byte_range_of_nothing() -> None:
    with pytest.raises(ValueError, match="there is no byte"):
        byte_range("0-", 0)


def test_every_table_is_listed_with_its_rows(client: Client, trace: Trace) -> None:
    text = client.get("/tables").text
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{trace.index}' AS own (READ_ONLY)")
        names = connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'own'").fetchall()
        counts = {name: connection.execute(f"SELECT count(*) FROM own.{name}").fetchone() for (name,) in names}
    rows = {row.name: row.rows for row in list_tables(trace)}
    assert rows == {"storages": None, **{name: count[0] for name, count in counts.items() if count}}
    assert all(f'href="/tables/{name}/csv"' in text for name in rows)


def test_downloads_hold_the_rows(client: Client, trace: Trace, tmp_path: Path) -> None:
    answer = client.get("/tables/launches/csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="launches.csv"'
    launches = {row.name: row.rows for row in list_tables(trace)}["launches"]
    assert len(list(csv.DictReader(io.StringIO(answer.text)))) == launches == 20
    (tmp_path / "t.parquet").write_bytes(client.get("/tables/launches/parquet").content)
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT count(*) FROM '{tmp_path / 't.parquet'}'").fetchone() == (20,)
    for path in ("/tables/nothing/csv", "/tables/launches/exe", "/tables/..%2F..%2Fx/csv", '/tables/a"b/csv'):
        assert client.get(path).status_code == 404


def test_a_table_to_standard_output(trace: Trace, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    for form in ("csv", "parquet"):
        path, count = export(trace, form, "records", tmp_path / form)
        assert export(trace, form, "records", STDOUT) == (STDOUT, count)
        assert capfdbinary.readouterr().out == path.read_bytes()


@pytest.mark.slow
def test_a_reader_that_stops_early(log: Path) -> None:
    """`stepscope export ... | head -1`: no traceback, whatever the rest."""
    code = "from stepscope.viewer.cli import main; main()"
    command = [sys.executable, "-c", code, "sql", str(log), "SELECT * FROM range(500000)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().strip() == b"range"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) in {0, 1}  # click ends with 1 where the reader went away


class TestStaticFiles:
    def test_the_address_names_the_content(self, client: Client) -> None:
        text = client.get("/").text
        addresses = re.findall(r'(?:src|href)="(/static/[^"]+)"', text)
        assert addresses
        for address in {*addresses, *assets.served_import_map()["imports"].values()}:
            answer = client.get(address)
            assert answer.status_code == 200
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"

    @pytest.mark.parametrize("query", ["", "?v=0123456789abcdef"])
    def test_any_other_address_is_asked_again(self, client: Client, query: str) -> None:
        answer = client.get(f"/static/js/core/page.js{query}")
        assert answer.headers["cache-control"] == "no-cache"
        again = client.get(f"/static/js/core/page.js{query}", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        other = client.get(f"/static/js/core/page.js{query}", headers={"if-none-match": '"other"'})
        assert (other.status_code, other.content) == (200, answer.content)

    def test_pages_are_never_kept(self, client: Client) -> None:
        for path in ("/", "/index.json", "/nothing", "/tables/logs/csv"):
            assert client.get(path).headers["cache-control"] == "no-cache"
