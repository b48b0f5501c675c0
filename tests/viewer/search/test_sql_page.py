"""The SQL page reads the index and does nothing else, for a bounded time; what is wrong is one sentence."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from stepscope.viewer import cli
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.search.ask import ask
from stepscope.viewer.search.queries.examples import EXAMPLES, Example
from stepscope.viewer.search.queries.tables import list_tables
from stepscope.viewer.search.result_views import CurveView, TimelineView, views_of
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import recorded
from tests.viewer.client import Client
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql")
    (folder / "secret.csv").write_text("a\n1\n")
    return recorded(steps=4).write(folder / "x.log")


@pytest.fixture(scope="module")
def trace(log: Path) -> Iterator[Trace]:
    with open_trace(log) as opened:
        yield opened


def test_rows(trace: Trace) -> None:
    answer = ask(trace, "SELECT step, launches, NULL AS n, 1.5 AS x, 'a' || chr(0) AS t FROM steps ORDER BY step")
    assert answer.columns == ["step", "launches", "n", "x", "t"]
    assert answer.rows == [[step, 8 if step == 1 else 4, None, 1.5, "a\0"] for step in range(4)]
    assert not answer.more


def test_values_that_json_cannot_say(trace: Trace) -> None:
    answer = ask(
        trace, "SELECT 2::HUGEINT ** 70, 'inf'::DOUBLE, [1, 2], DATE '2026-01-02', 9007199254740993, '\\x00'::BLOB"
    )
    text = json.dumps(answer.rows, allow_nan=False)
    assert "2026-01-02" in text
    assert "9007199254740993" in text


@pytest.mark.parametrize(
    "statement", ["WITH a AS (SELECT 1) FROM a", "DESCRIBE logs", "EXPLAIN SELECT 1", "VALUES (1);", "SHOW TABLES"]
)
def test_what_reads_is_answered(trace: Trace, statement: str) -> None:
    assert ask(trace, statement).rows


REFUSED = [
    "CREATE TABLE memory.main.x AS SELECT 1",
    "DROP TABLE records",
    "INSERT INTO logs SELECT * FROM logs",
    "UPDATE logs SET path = ''",
    "DELETE FROM records",
    "COPY logs TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "EXPORT DATABASE '{folder}/out'",
    "ATTACH '{folder}/out.db'",
    "INSTALL httpfs",
    "LOAD json",
    "SET enable_external_access = true",
    "PRAGMA memory_limit = '1GB'",
    "CALL pragma_version()",
    "SELECT 1; SELECT 2",
    "USE memory",
    "",
    "-- nothing",
    "BEGIN",
]
FILES = [
    "SELECT * FROM '{folder}/secret.csv'",
    "SELECT * FROM read_csv('{folder}/secret.csv')",
    "SELECT * FROM read_text('{folder}/secret.csv')",
    "SELECT * FROM read_blob('/etc/hostname')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM query('SELECT * FROM read_text(''{folder}/secret.csv'')')",
    "SELECT * FROM query_table('{folder}/secret.csv')",
    "EXPLAIN ANALYZE SELECT * FROM read_text('{folder}/secret.csv')",
]
WRONG = [
    "SELEC 1",
    "SELECT nothing FROM logs",
    "SELECT * FROM none",
    "SELECT 1/",
    "SELECT $1",
    "SELECT 'a'::INT",
    "\udcff",
]


@pytest.mark.parametrize("statement", [*REFUSED, *FILES, *WRONG])
def test_what_does_not_is_refused_in_a_sentence(trace: Trace, log: Path, statement: str) -> None:
    before = sorted(path.name for path in log.parent.iterdir())
    with pytest.raises(StepscopeError) as caught:
        ask(trace, statement.format(folder=log.parent))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert sorted(path.name for path in log.parent.iterdir()) == before


def test_a_statement_of_broken_bytes_is_named_as_that(trace: Trace) -> None:
    with pytest.raises(StepscopeError, match=r"^The statement is not valid UTF-8\.$"):
        ask(trace, "SELECT '\udcff'")


def test_variables_of_this_program_are_no_tables(trace: Trace) -> None:
    secret = [{"a": 1}]
    with pytest.raises(StepscopeError, match="secret does not exist"):
        ask(trace, "SELECT * FROM secret")
    assert secret


def test_rows_and_time_are_bounded(trace: Trace) -> None:
    answer = ask(trace, "SELECT * FROM range(1000000000000)", most=10)
    assert (len(answer.rows), answer.more) == (10, True)
    started = time.monotonic()
    with pytest.raises(StepscopeError, match=r"longer than 0.2 s"):
        ask(trace, "SELECT count(*) FROM range(1000000000) a, range(1000000000) b", seconds=0.2)
    assert time.monotonic() - started < PATIENCE_S
    assert ask(trace, "SELECT 1").rows == [[1]]


@pytest.mark.slow
def test_the_page(trace: Trace) -> None:
    client = Client(trace)
    start = client.get("/sql").text
    assert "Which kernels take the most time?" in start
    assert "The statistics of a tensor before or after a launch." in start
    assert "The query failed" in client.get("/sql?query=DROP TABLE logs").text
    page = client.get("/sql?query=SELECT '<script>alert(1)</script>' AS \"<b>\", NULL").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert '<th title="VARCHAR">&lt;b&gt;</th>' in page
    assert client.get("/sql.json?query=SELECT 1 AS a").json()["answer"]["rows"] == [[1]]


def test_every_table_and_column_has_a_meaning(trace: Trace) -> None:
    for table in list_tables(trace):
        assert table.meaning, table.name
        for (column, _), meaning in zip(table.columns, table.meanings, strict=True):
            assert meaning, f"{table.name}.{column}"
            assert meaning.endswith("."), meaning


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.symptom)
def test_examples_run(trace: Trace, example: Example) -> None:
    assert ask(trace, example.query).columns


@pytest.mark.slow
def test_a_result_is_drawn_if_it_can_be(trace: Trace) -> None:
    answer = ask(
        trace, "SELECT kernel, thread, start_ns, duration_ns FROM launches JOIN sites USING (site) WHERE step = 0"
    )
    timeline = views_of(answer).timeline
    assert timeline is not None
    assert min(timeline.start) == 0
    assert [answer.rows[row][0] for row in timeline.row] == timeline.name
    beyond = ask(trace, "SELECT 9100000000000000000 + range * 5 AS start_unix_ns, 3 AS duration_ns FROM range(3)")
    assert views_of(beyond).timeline == TimelineView([0, 5, 10], [3, 3, 3], [""] * 3, [""] * 3, [0, 1, 2])
    curve = views_of(ask(trace, "SELECT step, duration_ns, NULL::DOUBLE AS none, kind FROM steps ORDER BY step")).curve
    assert curve is not None
    assert (curve.x, list(curve.series), curve.lines) == ([0, 1, 2, 3], ["duration_ns"], None)
    mixed = "SELECT * FROM (VALUES (2, 20), (NULL, 30), (0, 40), (9100000000000000000, 50)) AS found(step, live_bytes)"
    ordered = CurveView("step", [0, 2, "9100000000000000000"], {"live_bytes": [40, 20, 50]}, [2, 0, 3], None)
    assert views_of(ask(trace, mixed)).curve == ordered
    by_rank = "SELECT s.step, r.rank, s.step + r.rank AS n FROM steps s, range(2) r(rank) ORDER BY s.step DESC"
    of_ranks = views_of(ask(trace, by_rank)).curve
    assert of_ranks is not None
    assert of_ranks.x == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [int((of_ranks.lines or [])[place][-1]) + x for place, x in enumerate(of_ranks.x)] == of_ranks.series["n"]
    assert [*of_ranks.series] == ["n"]
    assert views_of(ask(trace, "SELECT kernel FROM sites")).names == ["table"]
    client = Client(trace)
    query = "query=SELECT step, duration_ns FROM steps"
    assert 'data-plot="result"' in client.get(f"/sql?{query}").text
    assert 'data-plot="result"' not in client.get(f"/sql?{query}&view=table").text


def test_a_result_is_downloaded(trace: Trace, tmp_path: Path) -> None:
    client = Client(trace)
    query = "query=SELECT step, 'a,\"b' AS t, NULL::DOUBLE AS n, [1, 2] AS l, step FROM steps WHERE step < 2 ORDER BY 1"
    answer = client.get(f"/sql/csv?{query}")
    assert answer.text == 'step,t,n,l,step\n0,"a,""b",,"[1, 2]",0\n1,"a,""b",,"[1, 2]",1\n'
    assert "result.csv" in answer.headers["content-disposition"]
    path = tmp_path / "result.parquet"
    path.write_bytes(client.get(f"/sql/parquet?{query}").content)
    with duckdb.connect() as connection:
        rows = connection.execute(f"FROM '{path}'").fetchall()
    assert rows == [(0, 'a,"b', None, [1, 2], 0), (1, 'a,"b', None, [1, 2], 1)]
    assert client.get("/sql/csv?query=DROP TABLE logs").status_code == 422
    assert client.get("/sql/xlsx?query=SELECT 1").status_code == 404
    assert client.get("/sql/csv").status_code == 404


@pytest.mark.slow
def test_the_command(log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["stepscope", "sql", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    assert run(str(log), "SELECT step, NULL AS n FROM steps WHERE step < 2 ORDER BY 1") == (0, "step,n\n0,\n1,\n", "")
    code, out, _ = run(str(log), "SELECT 7 AS a", "--json")
    assert (code, json.loads(out)["rows"]) == (0, [[7]])
    code, out, error = run(str(log), "DROP TABLE logs")
    assert (code, out) == (2, "")
    assert (
        error
        == "stepscope: Only a single statement that reads is run, one with SELECT, WITH, FROM, DESCRIBE or EXPLAIN.\n"
    )
