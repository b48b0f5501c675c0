"""Search finds each line that holds a text, and says which record, which line of its payload, and what stands there."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer import cli
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest import unpack
from stepscope.viewer.records.queries.artifacts import list_records
from stepscope.viewer.search.queries import search as module
from stepscope.viewer.search.queries.jump import jumps
from stepscope.viewer.search.queries.search import SearchHit, SearchPiece, search
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import WRAPPER, LogBuilder, compile_records, recorded
from tests.logs.value_logs import NAN, ValueLog, attention
from tests.viewer.client import Client

Open = Callable[[LogBuilder | bytes], Trace]


LOG = recorded(steps=4).artifact("note", "schön und é\n\nbuf0".encode(), "string").data


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    path = tmp_path_factory.mktemp("search") / "x.log"
    path.write_bytes(LOG)
    with open_trace(path) as opened:
        yield opened


def lines_with(data: bytes, fits: Callable[[str], bool]) -> list[tuple[int, int | None, str]]:
    """(record, line of its payload or None for its header, text): counted line by line, without the index."""
    found, record, line = [], -1, None
    for text in data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n"):
        record, line = (record, (line or 0) + 1) if text.startswith("\t") else (record + 1, None)
        if fits(text.removeprefix("\t")):
            found.append((record, line, text.removeprefix("\t")))
    return found


def places(hits: list[SearchHit]) -> list[tuple[int | None, int | None]]:
    return [(hit.record, hit.line) for hit in hits]


def everything(trace: Trace, text: str, limit: int = 7, **asked: object) -> list[SearchHit]:
    """All hits, page by page."""
    hits: list[SearchHit] = []
    offset: int | None = 0
    while offset is not None:
        piece: SearchPiece = search(trace, text, limit=limit, offset=offset, **asked)  # type: ignore[arg-type]
        assert piece.looked_bytes == (piece.total_bytes if piece.next_offset is None else piece.next_offset)
        hits += piece.hits
        offset = piece.next_offset
    return hits


@pytest.mark.parametrize("text", ["buf", "BUF0", "call(", "forward", "{", "train.py", "no such text", "é"])
@pytest.mark.parametrize("block", [64, 1 << 22])
def test_plain_text(trace: Trace, monkeypatch: pytest.MonkeyPatch, text: str, block: int) -> None:
    monkeypatch.setattr(module, "_TEXT_BLOCK", block)
    expected = lines_with(LOG, lambda line: text.lower() in line.lower())
    hits = everything(trace, text)
    # A line longer than a block is looked through in pieces, each of which may be named.
    found = list(dict.fromkeys(places(hits)))
    assert found == [(record, line) for record, line, _ in expected]
    if block > len(LOG):
        assert len(hits) == len(expected)
        for hit, (_, _, line) in zip(hits, expected, strict=True):
            assert hit.match.lower() == text.lower()
            assert hit.before.removeprefix("...") + hit.match + hit.after.removesuffix("...") in line


def test_case(trace: Trace) -> None:
    expected = lines_with(LOG, lambda line: "AOT" in line)
    assert places(everything(trace, "AOT", case=True)) == [(record, line) for record, line, _ in expected]
    assert len(everything(trace, "AOT")) > len(expected) > 0


@pytest.mark.parametrize(
    "pattern", [r"^def \w+", r"buf[12]$", r"\bmm\b", "x*", r"(?:a|b)uf\d, ", r"\Adef", r"[^x]{90}"]
)
def test_regular_expressions(trace: Trace, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.setattr(module, "_REGEX_BLOCK", 2_000)
    compiled = re.compile(pattern.replace("$", r"\Z"))
    expected = lines_with(LOG.removesuffix(b"\n"), lambda line: compiled.search(line) is not None)
    hits = everything(trace, pattern, regex=True, case=True)
    found = list(dict.fromkeys((record, line) for record, line in places(hits)))
    assert [place for place in found if place[0] is not None] == [(record, line) for record, line, _ in expected]


def test_what_is_no_expression_is_said(trace: Trace) -> None:
    with pytest.raises(StepscopeError, match=r"^This is not a valid regular expression: missing \)"):
        search(trace, "(", regex=True)


def test_an_expression_that_explodes_elsewhere_does_not_here(opened: Open) -> None:
    log = LogBuilder().artifact("long", b"a" * 200_000 + b"!", "string")
    piece = search(opened(log), r"^(a|aa)+$", regex=True, seconds=60)
    assert (piece.hits, piece.next_offset) == ([], None)


def test_only_some_records(trace: Trace) -> None:
    of_kind = everything(trace, "buf0", kind="inductor_output_code")
    (code,) = list_records(trace, kind="inductor_output_code").rows
    wanted = [number for number, line in enumerate(WRAPPER.split("\n"), 1) if "buf0" in line]
    assert places(of_kind) == [(code.record, number) for number in wanted]
    assert {hit.compile_id for hit in everything(trace, "a", compile_id="0/0")} == {"0/0"}
    assert everything(trace, "buf0", kind="inductor_output_code", compile_id="9/9") == []
    assert places(everything(trace, r"^def", regex=True, kind="inductor_output_code")) == [
        (code.record, number) for number, line in enumerate(WRAPPER.split("\n"), 1) if line.startswith("def")
    ]


def test_crlf(opened: Open) -> None:
    plain, crlf = (
        everything(opened(data), "buf0") for data in (recorded().data, recorded().data.replace(b"\n", b"\r\n"))
    )
    assert [replace_place(hit) for hit in plain] == [replace_place(hit) for hit in crlf]
    assert len(everything(opened(recorded().data.replace(b"\n", b"\r\n")), r"\)$", regex=True)) > 3


def replace_place(hit: SearchHit) -> tuple[object, ...]:
    return hit.record, hit.line, hit.before, hit.match, hit.after


@pytest.mark.parametrize("pack", [gzip.compress, vars(unpack)["zstd"].compress])
def test_packed_logs(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    name = "x.log.gz" if pack is gzip.compress else "x.log.zst"
    (tmp_path / name).write_bytes(pack(recorded().data))
    with open_trace(tmp_path / name) as trace:
        expected = lines_with(recorded().data, lambda line: "buf1" in line)
        assert places(everything(trace, "buf1")) == [(record, line) for record, line, _ in expected]


def test_several_logs(tmp_path: Path) -> None:
    for rank in range(3):
        log = recorded(rank=rank).artifact("note", f"only rank {rank}".encode(), "string")
        log.write(tmp_path / f"stepscope_trace_rank_{rank}_1_x.log")
    with open_trace(tmp_path) as trace:
        hits = everything(trace, "only rank", limit=1)
        assert [(hit.log, hit.match + hit.after) for hit in hits] == [(rank, f"only rank {rank}") for rank in range(3)]
        assert [hit.log for hit in everything(trace, "only rank", log=1)] == [1]
        assert everything(trace, "only rank 2", log=1) == []
        assert everything(trace, "anything", log=77) == []
        for hit in hits:
            assert trace.payload(hit.record or 0).decode() == f"only rank {hit.log}"


def test_lines_that_belong_to_no_record_are_found(opened: Open) -> None:
    hits = everything(opened(b"noise at first\n" + recorded().data + b"noise at last\n"), "noise at")
    assert [hit.before + hit.match + hit.after for hit in hits] == ["noise at first", "noise at last"]


def test_a_very_long_line(opened: Open) -> None:
    log = LogBuilder().artifact("wide", b"x" * 9_000_000 + b"needle" + b"y" * 5_000_000 + b"\nneedle", "string")
    first, second = everything(opened(log), "needle")
    assert (first.line, second.line) == (1, 2)
    assert first.before == "..." + "x" * 120
    assert first.after == "y" * 200 + "..."


def test_time_is_bounded_and_what_was_looked_at_is_said(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TEXT_BLOCK", 256)
    piece = search(trace, "no such text", seconds=0)
    assert (piece.hits, piece.next_offset) == ([], piece.looked_bytes)
    assert 0 < piece.looked_bytes < piece.total_bytes == trace.logs[0].size
    for offset in (piece.total_bytes, piece.total_bytes + 10**12):
        assert search(trace, "buf", offset=offset).hits == []


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    log = recorded().artifact("hostile", b"<script>alert(1)</script> buf0 <b>", "string")
    with open_trace(log.write(tmp_path_factory.mktemp("search") / "x.log")) as opened:
        yield Client(opened)


def test_the_page_marks_and_escapes(client: Client) -> None:
    text = client.get("/search?text=alert(1)").text
    assert "&lt;script&gt;<mark>alert(1)</mark>&lt;/script&gt;" in text
    assert "<script>alert" not in text
    assert re.search(r'<a href="/records/\d+\?line=1#payload-1">hostile</a>', text)


def test_a_hit_leads_to_its_line_with_those_around(tmp_path: Path) -> None:
    payload = "\n".join(f"line {number}" for number in range(1, 31)) + "\nneedle " + "x" * 5000
    log = recorded().artifact("haystack", payload.encode(), "string")
    with open_trace(log.write(tmp_path / "x.log")) as opened:
        client = Client(opened)
        (link,) = re.findall(r'href="(/records/\d+\?line=31)#payload-31"', client.get("/search?text=needle").text)
        html = client.get(link).text
        assert re.findall(r'id="payload-(\d+)"', html) == ["27", "28", "29", "30", "31"]
        assert html.count("needle") == 2, "among the lines around, and in the whole"
        assert len(re.findall(r"x{100,}", html)[0]) < 2000
        assert "has no line 32" in client.get(link.replace("31", "32")).text


def test_the_page_says_what_is_wrong(client: Client) -> None:
    assert "This is not a valid regular expression" in client.get("/search?text=(&regex=1").text
    assert "No matches" in client.get("/search?text=zzzzzz").text
    assert "Enter a kernel, a file" in client.get("/search").text
    assert client.get("/search?text=a&offset=x").status_code == 404
    assert client.get("/search?text=a&log=99999999999999999999").status_code == 404


def test_the_twin_goes_on_where_the_page_ended(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = client.get("/search.json?text=buf").json()["piece"]["hits"]
    monkeypatch.setattr(module, "PIECE_SECONDS", 0)
    monkeypatch.setattr(module, "_TEXT_BLOCK", 512)
    found: list[Any] = []
    offset: Any = 0
    while offset is not None:
        piece = client.get(f"/search.json?text=buf&offset={offset}").json()["piece"]
        found += piece["hits"]
        offset = piece["next_offset"]
    assert {(hit["record"], hit["line"]) for hit in found} == {(hit["record"], hit["line"]) for hit in whole}
    assert len(whole) > 5


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["stepscope", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    log = (
        compile_records(LogBuilder()).artifact("odd", b"a\x1b[2Jneedle\xe2\x80\xae", "string").write(tmp_path / "x.log")
    )
    run(monkeypatch, "search", str(log), "needle")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("log 0 record 7 odd – line 1: a [2Jneedle")
    assert line.isprintable()
    run(monkeypatch, "search", str(log), "NEEDLE", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert [(hit["record"], hit["line"], hit["match"]) for hit in answer["hits"]] == [(7, 1, "needle")]
    run(monkeypatch, "search", str(log), "NEEDLE", "--case")
    assert capsys.readouterr() == ("", "stepscope: no line contains this text\n")


class TestJumps:
    @pytest.mark.parametrize(
        ("text", "page"),
        [
            ("launch 5", "/launches/5"),
            ("step 2", "/steps/2?log=0"),
            ("Record 3", "/records/3"),
            ("graph 0", "/graphs/0"),
            ("0/0", "/compile/0_0?log=0"),
            ("compile 0/", "/compile/0_0?log=0"),
            ("buf1", "/graphs/0/buffers/buf1"),
            ("cpp_fused_RELU_0", "/kernels/cpp_fused_relu_0"),
            ("kernel relu", "/kernels/cpp_fused_relu_0"),
            ("model.py", "/compile/0_0?log=0"),
            ("memory", "/memory"),
            ("sql", "/sql"),
        ],
    )
    def test_the_surest_comes_first_and_is_there(self, trace: Trace, text: str, page: str) -> None:
        first = jumps(trace, text)[0]
        assert first.page == page
        assert Client(trace).get(first.page).status_code in {200, 303}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("text", "kind", "page"),
        [
            ("bmm", "operator", "/sites?name=aten.bmm"),
            ("aten._softmax", "operator", "/sites?name=aten._softmax"),
            ("op1", "scheduler node", "/sites?name=op1"),
            ("model.py:11", "line", "/sites?name=model.py%3A11"),
            ("nan", "finding", "/steps/0?log=0&launch=1"),
            ("leak", "symptom", "/memory"),
            ("peak", "symptom", "/memory"),
            ("recompiles", "page", "/recompiles"),
        ],
    )
    def test_what_programs_consist_of_is_found(self, opened: Open, text: str, kind: str, page: str) -> None:
        program = attention()
        log = ValueLog(program)
        log.call(program, buf1=NAN)
        trace = opened(log.end())
        assert (kind, page) in [(jump.kind, jump.page) for jump in jumps(trace, text)]
        answer = Client(trace).get(page)
        assert answer.status_code == 200
        assert "No launch site" not in answer.text

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "sites"), [("model.py:11", 1), ("/src/model.py:11", 1), ("odel.py:11", 0)])
    def test_a_line_is_of_the_file_with_this_name(self, opened: Open, name: str, sites: int) -> None:
        log = ValueLog(program := attention())
        log.call(program)
        trace = opened(log.end())
        assert len(Client(trace).get(f"/sites.json?name={name}").json()["sites"]) == sites
        assert [jump.kind for jump in jumps(trace, name)] == ["line"] * sites

    @pytest.mark.parametrize("text", ["", "  ", "launch 999", "step 77", "%", "'", '"; DROP', "9" * 60, "zzz", "0//"])
    def test_nothing_is_guessed(self, trace: Trace, text: str) -> None:
        assert jumps(trace, text) == []

    def test_a_number_is_all_that_it_may_be(self, trace: Trace) -> None:
        assert {jump.kind for jump in jumps(trace, "2")} == {"launch", "step", "record"}
        assert Client(trace).get("/jump.json?text=0/0").json()["jumps"][0]["label"] == "0/0"
