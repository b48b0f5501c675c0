"""Hostile logs: nothing runs, nothing is written elsewhere, nothing else is lost, each problem has its place."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from stepscope.viewer.compiles.queries.compiles import list_compiles
from stepscope.viewer.ingest.damage import REASONS
from stepscope.viewer.overview.queries.damage import problem_counts, problems
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.records.queries.artifacts import list_records, record_detail
from stepscope.viewer.search.queries.search import search
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web import render
from tests.logs.hostile import PATHS, SCRIPT, healthy, hostile_logs, log_of
from tests.logs.plain_reader import LOST, kinds, places, read_plainly, records
from tests.logs.poisoned import write_poisoned
from tests.logs.synthetic import LogBuilder, compile_records
from tests.logs.unpacking import whole_report
from tests.viewer.client import Client
from tests.viewer.crawling import EVERY_PAGE, PageChecker, crawl, visits
from tests.viewer.ingest.test_fuzz import begins, read

LOGS = hostile_logs()
HEALTHY = healthy().data
LAST_HEALTHY = HEALTHY.rindex(b"\nV") + 1
"""Tabs and blank lines behind a record are its own."""
LAUNCHES = sum(len(json.loads(text)["site"]) for text in re.findall(rb'"stepscope_launches".*\n\t(.*)', HEALTHY))
CONTENT = {
    "scripts": {"absurd_value", "broken_payload"},
    "string_ids": {"absurd_value"},
    "threads": {"absurd_value"},
    "dates": {"absurd_value"},
    "nul_bytes": {"absurd_value", "broken_payload"},
    "deep_json": {"broken_payload"},
    "missing_fields": {"absurd_value"},
    "wrong_payloads": {"broken_payload"},
    "absurd_numbers": {"broken_payload"},
    "line_ends": {"crlf"},
}
"""What is wrong with the values of records; what is wrong with their form is found by a plain reader. In all other
logs each record is odd, but what a record may be."""


def check_sound(trace: Trace, data: bytes) -> None:
    """What is true of every log: the healthy records are there, problems are counted and have a place."""
    (after,) = list_records(trace, kind="after_all").rows
    detail = record_detail(trace, after.record)
    assert detail is not None
    assert detail.payload == '{"sound": true}'
    counts = overview(trace).counts
    assert (counts.launches or 0) + (counts.subgraph_calls or 0) >= LAUNCHES
    assert "77/0" in {row.compile_id.rpartition(":")[2] for row in list_compiles(trace)}
    found = problems(trace)
    for row in found:
        assert row.reason in REASONS
        assert row.line is not None
        assert row.byte is not None
        assert LAST_HEALTHY <= row.byte < len(data)
        assert data.count(b"\n", 0, row.byte) + 1 == row.line
    orjson.dumps(summary(trace))
    assert not {"\x1b", "\x07", "\u202e", "\x00"} & set(summary_text(trace))


@contextmanager
def watched() -> Iterator[list[tuple[str, bool]]]:
    """(path, whether it is written) of all that Python opens, makes, renames or removes meanwhile."""
    seen: list[tuple[str, bool]] = []
    HOOK.append(seen)
    try:
        yield seen
    finally:
        HOOK.remove(seen)


HOOK: list[list[tuple[str, bool]]] = []
PACKED_LOG = re.compile(r'<script type="application/x-stepscope-(?:log|ring)".*?</script>', re.S)
CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}


def note(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook cannot be taken away: it rests while nobody watches."""
    if not HOOK or not (event == "open" or event in CHANGES or event.startswith(("shutil.", "subprocess."))):
        return
    flags = arguments[2] if event == "open" else 0
    written = event != "open" or bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    for name in arguments[: 1 if event == "open" else 2]:
        if isinstance(name, (str, bytes, os.PathLike)):
            HOOK[-1].append((os.fsdecode(name), written))


sys.addaudithook(note)


def _is_bytecode(path: str) -> bool:
    own = Path(render.__file__).parents[2]
    return "__pycache__" in Path(path).parts[-2:] and _is_in(path, own, Path(sys.prefix), Path(sys.base_prefix))


def _is_in(path: str, *folders: Path) -> bool:
    return any(Path(path).absolute().is_relative_to(folder) for folder in folders)


def elsewhere(seen: list[tuple[str, bool]], *allowed: Path) -> list[str]:
    """What was written outside `allowed`, or has a name that a log gave.

    SQL runs in a Python of its own, and Python writes the bytecode of a module that a command imports.
    """
    return [
        path
        for path, written in seen
        if "evil" in path
        or path.startswith("/etc/passwd")
        or (written and path != sys.executable and not _is_in(path, *allowed, Path("/dev")) and not _is_bytecode(path))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_nothing_is_lost_or_written(name: str, tmp_path: Path, cache_folder: Path) -> None:
    data = log_of(LOGS[name])
    path = tmp_path / "inner" / "folder" / "x.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    render.environment.cache_clear()  # it keeps templates where the cache was when it was made
    with watched() as seen, open_trace(path) as trace:
        check_sound(trace, data)
        assert dict(list_records(trace, limit=1).kinds) == kinds(data)
        found = {(row.reason, row.line, row.byte) for row in problems(trace)}
        form = {place for place in found if place[0] not in CONTENT.get(name, ())}
        assert form == places(data)
        assert {place[0] for place in found - form} == CONTENT.get(name, set())
        assert problem_counts(trace).keys() == {place[0] for place in found}
        client = Client(trace)
        page = client.get("/problems").text
        for row in problems(trace)[:200]:
            assert f'<td class="num">{row.byte:,}</td>' in page
        own = [row for row in list_records(trace, limit=10**6).rows if (row.name or row.event) not in kinds(HEALTHY)]
        for record in list({row.name or row.event: row.record for row in own}.values())[:12]:
            assert client.get(f"/records/{record}").status_code == 200
    assert not elsewhere(seen, path.parent, cache_folder)
    assert {entry.name for entry in path.parent.iterdir()} == {"x.log"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["inner"]


@pytest.mark.parametrize("at_once_bytes", [0, 1 << 40])
@pytest.mark.parametrize("name", LOGS)
def test_records_and_problems_are_those_of_a_plain_reader(
    name: str, at_once_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either way to read: many whole records at once, as in large logs, or line by line."""
    monkeypatch.setattr("stepscope.viewer.ingest.logs.AT_ONCE_BYTES", at_once_bytes)
    data = log_of(LOGS[name])
    rows = read(data)
    assert begins(rows) == [(one.line, one.byte, one.event or "unreadable") for one in records(data)]
    found = {(row["reason"], row["line"], row["byte"]) for row in rows.tables["problems"]}
    assert {place for place in found if place[0] not in CONTENT.get(name, ())} == places(data)


@pytest.mark.slow
def test_scripts_stay_text_on_every_page(tmp_path: Path) -> None:
    start = (*EVERY_PAGE, "/search?text=alert", "/sql?query=FROM records", "/compile/0_0/provenance?log=2")
    with open_trace(write_poisoned(tmp_path / "logs")) as trace:
        assert {*problem_counts(trace)} == {"no_run_record"}
        client = Client(trace)
        visited = crawl(client, each=2, most=110, start=start)
        assert {status for status in visited.values() if status >= 400} == set(), visited
        seen = visits(list(visited))
        assert [path for path, addresses in seen.items() if not addresses] == []
        # The script is there to be seen, in the part of the page that is its own.
        mains = {path: client.get(addresses[-1]).text.partition("<main")[2] for path, addresses in seen.items()}
        assert {path for path, main in mains.items() if "&lt;script&gt;alert(1)" not in main} <= WITHOUT_TEXT


WITHOUT_TEXT = {"/tables", "/problems", "/graphs/{graph}/buffers"}


def test_truncation_at_every_byte() -> None:
    log = LogBuilder().torch("str", ["/src/model.py", 7]).torch("link", {"name": "n", "url": "u"})
    log.artifact("text", b"one\ntwo\n\n", "string", frame_id=0, frame_compile_id=0)
    data = log.torch("dynamo_start", {"stack": []}, b"payload").torch("link", {}).data
    assert len(data) < 1_000
    for size in range(1, len(data)):
        rows = read(data[:size])
        found = {(row["reason"], row["line"], row["byte"]) for row in rows.tables["problems"]}
        assert found - {("not_a_log", None, None)} == places(data[:size])
        assert [begin[:2] for begin in begins(rows)] == [(one.line, one.byte) for one in records(data[:size])]
        assert len(LOST & {row["reason"] for row in rows.tables["problems"]}) == 0, "what is torn is not called broken"


@pytest.mark.slow
def test_a_line_of_a_hundred_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    wide = b"x" * 50_000_000 + b"<script>alert(1)</script>" + b"y" * 50_000_000
    path.write_bytes(log_of(LogBuilder().artifact("wide", wide, "string").data + b"z" * 20_000_000 + b"\n"))
    with open_trace(path) as trace:
        assert problem_counts(trace) == {"not_a_record": 1}
        (row,) = list_records(trace, kind="wide").rows
        client = Client(trace)
        page = client.get(f"/records/{row.record}")
        assert page.status_code == 200
        assert len(page.content) < 5_000_000
        part = client.get(f"/records/{row.record}/raw", headers={"range": "bytes=50000000-50000024"})
        assert part.content == b"<script>alert(1)</script>"
        (hit,) = search(trace, "alert(1)", kind="wide", seconds=60).hits
        assert (hit.record, hit.line) == (row.record, 1)


def folder_of_all(folder: Path) -> int:
    """All hostile logs that are not large, an empty file and one that is no log; how many hold records."""
    small = [data for data in LOGS.values() if len(data) < 300_000]
    for number, data in enumerate(small):
        (folder / f"stepscope_trace_rank_{number}_1_x.log").write_bytes(log_of(data))
    (folder / "stepscope_trace_rank_98_1_x.log").touch()
    (folder / "stepscope_trace_rank_99_1_x.log").write_bytes(b"\x89PNG\r\n" + bytes(1_000))
    return len(small)


@pytest.mark.slow
def test_all_of_them_in_one_folder(tmp_path: Path) -> None:
    count = folder_of_all(tmp_path)
    with open_trace(tmp_path) as trace:
        assert list_records(trace, kind="after_all").total == count
        counts = problem_counts(trace)
        assert (counts["empty_file"], counts["not_a_log"]) == (1, 1)
        visited = crawl(Client(trace), most=45, start=EVERY_PAGE)
        assert {status for status in visited.values() if status >= 400} == set(), visited


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, cache_folder: Path) -> Run:
    """Runs a command in the folder ``out``; exit code and what it wrote to the terminal."""
    from stepscope.viewer import cli

    out, temporary = tmp_path / "out", tmp_path / "temporary"
    out.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(out)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def run_command(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["stepscope", *arguments])
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        render.environment.cache_clear()
        with watched() as seen, pytest.raises(SystemExit) as ended:
            cli.main()
        assert not elsewhere(seen, tmp_path / "logs", out, temporary, cache_folder), arguments
        text, error = capfd.readouterr()
        assert not error or arguments[0] in ("ingest", "report"), arguments
        assert "Traceback" not in error
        assert not list(temporary.iterdir()), arguments
        controls = {"\x1b", "\x07", "\x00"} | ({"\u202e"} if "--json" not in arguments else set())
        assert not set(text + error) & controls, (arguments, "drives the terminal")
        return int(ended.value.code or 0), text

    return run_command


@pytest.mark.slow
@pytest.mark.parametrize("write", [folder_of_all, write_poisoned])
def test_every_command_stands_it(
    write: Callable[[Path], object], run: Run, healthy_tags: Counter[str], tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    write(logs)
    trace = str(logs)
    code, text = run("summary", trace, "--json")
    assert (code, json.loads(text)["format"]) == (0, "stepscope-summary/1")
    assert run("summary", trace)[0] == 0
    assert run("check", trace)[0] == 1
    assert run("check", trace, "--fail-on", "storage_overlap")[0] == 0
    assert run("search", trace, "alert")[0] == 0
    assert run("compare", trace, trace)[0] == 0
    assert run("sql", trace, "select event, name, count(*) from records group by all order by all")[0] == 0
    assert run("report", trace, "-o", "report.html")[0] == 0
    assert tags(Path("report.html").read_text("utf-8")) == healthy_tags
    for form in ("chrome", "csv", "parquet"):
        assert run("export", trace, "--to", form, "--table", "records", "-o", f"out.{form}")[0] == 0
    assert json.loads(Path("out.chrome").read_text("utf-8"))["traceEvents"]
    check_raw(run, logs)
    assert run("ingest", trace, "--to", "store", "--workers", "1")[0] == 0
    assert json.loads(run("summary", "store", "--json")[1])["counts"] == json.loads(text)["counts"]
    assert {entry.name for entry in tmp_path.iterdir()} == {"logs", "out", "temporary"}
    expected = {"report.html", "out.chrome", "out.csv", "out.parquet", "raw", "store"}
    assert {entry.name for entry in Path().iterdir()} == expected
    assert not [path for path in PATHS if path.startswith("/") and "evil" in path and Path(path).exists()]


def tags(html: str) -> Counter[str]:
    """What a report of a healthy run has too: its own scripts, styles and pictures, but not the logs in it."""
    checker = PageChecker()
    checker.feed(PACKED_LOG.sub("", html))
    return Counter(wrong.partition(" ")[0] for wrong in checker.wrong)


@pytest.fixture(scope="module")
def healthy_tags(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    folder = tmp_path_factory.mktemp("healthy")
    (folder / "healthy.log").write_bytes(HEALTHY)
    with open_trace(folder / "healthy.log", index_dir=folder / "index") as trace:
        return tags(whole_report(trace))


def check_raw(run: Run, logs: Path) -> None:
    """Payloads leave as a plain reader has them, whatever they hold."""
    plain = [one for path in sorted(logs.glob("*.log")) for one in records(path.read_bytes())]
    found = [(number, one.payload) for number, one in enumerate(plain) if one.payload is not None]
    for number, payload in found[:: len(found) // 2]:
        assert run("export", str(logs), "--to", "raw", "--record", str(number), "-o", "raw")[0] == 0
        assert Path("raw").read_bytes() == payload


def test_the_crawl_sees_what_is_wrong() -> None:
    for html in (
        "<img src=x>", "<p onclick=x>", "<script>alert(1)</script>", "<a href=' javascript:x'>", "<b style=''>",
        "<a href='//evil.example'>", "<form action='https://evil.example'>", "<script src='https://x/y.js'>",
    ):  # fmt: skip
        checker = PageChecker()
        checker.feed(html)
        assert checker.wrong, html
    for html in (
        "<a href='/x'>",
        "<a href='https://x.y'>",
        "<script src='/static/a.js'></script>",
        f"<p>{orjson.dumps(SCRIPT).decode().replace('<', '&lt;')}</p>",
    ):
        checker = PageChecker()
        checker.feed(html)
        assert not checker.wrong, html


def test_the_watch_sees_what_is_written(tmp_path: Path) -> None:
    with watched() as seen:
        (tmp_path / "inside").write_text("x")
        (tmp_path.parent / "evil.txt").write_text("x")
        (tmp_path.parent / "evil.txt").unlink()
    assert len(elsewhere(seen, tmp_path)) == 2
    assert not elsewhere([row for row in seen if "inside" in row[0]], tmp_path)


def test_the_plain_reader_reads_plainly() -> None:
    log = compile_records(compile_records(LogBuilder()).artifact("text", b"one\n\ntwo", "string"), frame=1)
    assert places(log.data) == set()
    assert kinds(log.data)["text"] == 1
    assert [one.payload for one in read_plainly(log.data) if one.kind == "text"] == [b"one\n\ntwo"]
    start = log.data.rindex(b"\nV", 0, log.data.index(b"\tone")) + 1
    assert places(log.data.replace(b"\n\tone", b"\n\tune")) == {
        ("wrong_md5", log.data.count(b"\n", 0, start) + 1, start)
    }
