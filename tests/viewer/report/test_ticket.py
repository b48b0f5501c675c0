"""Tickets in all forms: what they say, their sizes, and the way back from a report to its trace."""

from __future__ import annotations

import gzip
import os
import re
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from unittest.mock import patch

import pytest

from stepscope.viewer.cli import main
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.sources import find_logs
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.report.archive import archive
from stepscope.viewer.report.facts import ticket_facts
from stepscope.viewer.report.fit import rendered
from stepscope.viewer.report.markdown import MOST_CHARACTERS, render_markdown
from stepscope.viewer.report.ticket import gather
from stepscope.viewer.report.write import embedded_logs, render_ticket
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text import markdown
from tests.logs import compile_summary_logs, overflow_log, synthetic
from tests.logs.planted import machine
from tests.logs.synthetic import LogBuilder

Opened = Callable[[LogBuilder | bytes], Trace]
HOSTILE = "@octocat fixes #12 <img src=x> </details> ``` ` | [x](http://evil) GH-3 \x1b[31m\n# head"


def test_what_a_log_of_pytorch_alone_does_not_say_is_unknown(opened: Opened) -> None:
    found = ticket_facts(overview(opened(compile_summary_logs.with_breaks())).runs)
    facts = {fact.name: fact.value for fact in found.facts}
    assert (facts["Triton"], facts["CUDA of the build"]) == (None, None)
    assert facts["Ranks"] != "not distributed"
    assert found.lists[0].when_empty == "Not recorded: PyTorch alone wrote the log."


def test_the_facts_of_a_bug_report_are_there(opened: Opened) -> None:
    log = synthetic.recorded(machine=machine(), config={"_inductor.config.freezing": True})
    found = ticket_facts(overview(opened(log)).runs)
    facts = {fact.name: fact.value for fact in found.facts}
    assert facts["PyTorch"] == "2.13.0 (git cf30153c4c13, release build)"
    assert facts["Operating system"] == "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
    assert facts["C library"] == "glibc 2.36"
    assert facts["C++ compiler"] == "g++-12"
    assert facts["CPU"] == "Intel(R) Xeon(R) Processor, cpu, x86_64, AVX2"
    lists = {each.title: each.lines for each in found.lists}
    assert lists["Settings that differ from their defaults"] == ["_inductor.config.freezing = True"]
    assert lists["Installed packages"] == ["torch==2.13.0+cpu", "numpy==2.4.6"]


def test_an_older_log_says_less(opened: Opened) -> None:
    facts = {fact.name: fact.value for fact in ticket_facts(overview(opened(synthetic.recorded())).runs).facts}
    assert facts["PyTorch"] == "2.13.0"
    assert "C library" not in facts


def test_facts_in_which_logs_differ_name_them(tmp_path: Path) -> None:
    for pid, driver in ((1, "550.1.1"), (2, "560.1.1")):
        log = synthetic.recorded(pid=pid, machine=machine(gpu_driver=driver))
        log.write(tmp_path / f"stepscope_trace_rank_{pid}_{pid}_x.log")
    with open_trace(tmp_path) as trace:
        facts = {fact.name: fact.value for fact in ticket_facts(overview(trace).runs).facts}
    assert facts["GPU driver"] == "550.1.1 (log 0); 560.1.1 (log 1)"


@pytest.mark.slow
def test_measured_stands_apart_from_concluded(opened: Opened) -> None:
    ticket = gather(opened(overflow_log.recorded()))
    for text in (render_ticket(ticket), render_markdown(ticket)):
        assert 0 < text.index("Concluded") < text.rindex("Measured")


@pytest.mark.slow
def test_markdown_of_a_hostile_log_breaks_out_of_nothing(opened: Opened) -> None:
    log = overflow_log.recorded(argv=[HOSTILE], machine=machine(os=HOSTILE, variables={"TORCH_X": HOSTILE}))
    text = render_markdown(gather(opened(log), note=HOSTILE))
    outside = re.sub(r"(?ms)^(`{3,})[^\n]*\n.*?^\1$", "", text)
    plain = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
    assert not re.search(r"@\w|(?<!&)#\d|GH-\d|\w://", plain)
    assert "<img" not in plain
    assert plain.count("<details>") == plain.count("</details>") > 2
    assert "\x1b" not in text


def test_every_form_says_what_the_findings_do_not_see(opened: Opened) -> None:
    ticket = gather(opened(synthetic.recorded()))
    for text in (render_ticket(ticket), render_markdown(ticket)):
        assert "Values were not recorded; record with --level values to look for NaN, " in text


def test_text_in_markdown() -> None:
    assert markdown.prose("a_b @me #1") == "a\\_b @\u200bme #\u200b1"
    assert markdown.code("a`b|c") == "``a`b\\|c``"
    assert markdown.code("") == "–"
    assert markdown.block("a\n```\nb") == "````\na\n```\nb\n````"


@pytest.mark.slow
def test_markdown_fits_an_issue_and_says_what_it_leaves_out(opened: Opened) -> None:
    log = overflow_log.recorded(config={f"_inductor.config.x{number}": "y" * 400 for number in range(300)})
    ticket = gather(opened(log))
    text = render_markdown(ticket)
    assert len(text) <= MOST_CHARACTERS
    assert "Left out of this text for its size: the generated code of graph 0" in text
    small = render_markdown(ticket, 4_000)
    assert len(small.encode()) <= 4_000
    with pytest.raises(StepscopeError, match="give a larger --max-size"):
        render_markdown(ticket, 100)


@pytest.mark.slow
def test_a_report_gives_the_trace_back(tmp_path: Path) -> None:
    log = synthetic.recorded(end=False).write(tmp_path / "logs" / "stepscope_trace_rank_0_4711_x.log")
    with open_trace(log) as trace:
        ticket = gather(trace)
        html = render_ticket(ticket, embedded_logs(ticket, 10**6))
        before = overview(trace)
    report = tmp_path / "report.html"
    report.write_text(html, "utf-8")
    (source,) = find_logs(report)
    assert source.data_path.read_bytes() == log.read_bytes()
    assert source.path.name == log.name
    with open_trace(report) as again:
        after = overview(again)
    assert after.findings == before.findings
    assert after.counts == before.counts
    assert after.runs[0].complete is False


@pytest.mark.slow
def test_reports_without_a_log_say_so(tmp_path: Path, opened: Opened) -> None:
    trace = opened(synthetic.recorded())
    redacted, large = gather(trace, redact=True), gather(trace)
    assert not embedded_logs(redacted, 10**9)
    assert not embedded_logs(large, 100)
    report = tmp_path / "report.html"
    report.write_text(render_ticket(large), "utf-8")
    with pytest.raises(StepscopeError, match="is a report without its log"):
        find_logs(report)


def test_names_in_a_report_are_no_paths(tmp_path: Path, opened: Opened) -> None:
    ticket = gather(opened(synthetic.recorded()))
    html = render_ticket(ticket, embedded_logs(ticket, 10**6))
    name = re.search(r'data-log="([^"]*)"', html)
    assert name
    for hostile in ("../../etc/passwd", "/etc/passwd", "..", "a&#47;b", "C:\\x.log"):
        report = tmp_path / "report.html"
        report.write_text(html.replace(name[0], f'data-log="{hostile}"'), "utf-8")
        (source,) = find_logs(report)
        assert source.path.parent == report
        assert ".." not in source.path.parts
    report.write_text(re.sub(r'(data-log="[^"]*">)[^<]*', r"\1AAA", html), "utf-8")
    with pytest.raises(StepscopeError, match="is damaged"):
        find_logs(report)


@pytest.mark.slow
def test_sizes_are_respected_and_named(opened: Opened) -> None:
    trace = opened(overflow_log.recorded())
    whole = rendered(gather(trace), embedded_logs(gather(trace), 10**6), None)
    ticket = gather(trace)
    smaller = rendered(ticket, embedded_logs(ticket, 10**6), len(whole) - 10)
    assert len(smaller) < len(whole)
    assert ticket.left_out == ["the packed log"]
    assert b"Left out for the size that was asked for: the packed log." in smaller
    with pytest.raises(StepscopeError, match="The smallest report of this trace has"):
        rendered(gather(trace), [], 1000)


@pytest.mark.slow
def test_an_archive_holds_the_logs(tmp_path: Path) -> None:
    log = synthetic.recorded(end=False).write(tmp_path / "stepscope_trace_rank_0_4711_x.log")
    with open_trace(log) as trace:
        data = archive(gather(trace), None)
        small = gather(trace)
        without = archive(small, len(data) - 10)
        redacted = archive(gather(trace, redact=True), None)
    with zipfile.ZipFile(BytesIO(data)) as whole:
        assert whole.namelist() == ["report.md", "report.html", f"logs/{log.name}.gz"]
        assert gzip.decompress(whole.read(f"logs/{log.name}.gz")) == log.read_bytes()
        whole.extractall(tmp_path / "unpacked")
    with open_trace(tmp_path / "unpacked" / "logs") as again:
        assert overview(again).counts.launches
    assert small.left_out == [f"log 0, logs/{log.name}.gz"]
    with open_trace(log) as trace, pytest.raises(StepscopeError, match="The smallest archive of this trace has") as no:
        archive(gather(trace), 1000)
    assert float(str(no.value).split(" has ")[1].split(" kB")[0]) * 1000 < len(without) + 100
    for part in (without, redacted):
        with zipfile.ZipFile(BytesIO(part)) as whole:
            assert whole.namelist() == ["report.md", "report.html"]


def run(*arguments: str) -> int:
    with patch.object(sys, "argv", ["stepscope", *arguments]), pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.slow
def test_the_command_writes_whole_files_into_folders_that_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = str(synthetic.recorded().write(tmp_path / "stepscope_trace_rank_0_4711_x.log"))
    monkeypatch.chdir(tmp_path)
    for form, name in ((), "report.html"), (("--markdown",), "report.md"), (("--zip",), "report.zip"):
        assert run("report", log, *form) == 0
        assert Path(name).stat().st_size > 500
    before = Path("report.html").read_bytes()
    monkeypatch.setattr(os, "replace", _refuse)
    assert run("report", log, "--note", "again") == 2
    assert Path("report.html").read_bytes() == before
    capsys.readouterr()
    for out, said in (
        ("none/x.html", "There is no folder none"),
        (".", "is a folder"),
        (log, "is a log of this trace"),
    ):
        assert run("report", log, "-o", out) == 2
        assert said in capsys.readouterr().err
    assert run("report", log, "--keep", "source") == 2
    assert "give --redact, too" in capsys.readouterr().err
    assert not list(tmp_path.glob(".stepscope-*"))


def _refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.slow
def test_an_archive_as_a_trace_says_what_to_do(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "report.zip"
    path.write_bytes(archive(gather(opened(synthetic.recorded())), None))
    with pytest.raises(StepscopeError, match="unpack it and give its folder"):
        find_logs(path)


def test_breaks_and_recompiles_are_in_the_text(opened: Opened) -> None:
    text = render_markdown(gather(opened(compile_summary_logs.with_breaks())))
    assert "graph break" in text


@pytest.mark.slow
def test_a_name_and_a_note_in_another_encoding_are_written(tmp_path: Path) -> None:
    name = os.fsdecode(b"stepscope_trace_rank_0_4711_\xff.log")
    with open_trace(synthetic.recorded().write(tmp_path / name)) as trace:
        ticket = gather(trace, note="an \udcff in it")
        html = rendered(ticket, embedded_logs(ticket, 10**6), None)
        data = archive(ticket, None)
    assert b"an \xef\xbf\xbd in it" in html
    with zipfile.ZipFile(BytesIO(data)) as whole:
        assert whole.namelist()[2:] == ["logs/stepscope_trace_rank_0_4711_\ufffd.log.gz"]
    report = tmp_path / "report.html"
    report.write_bytes(html)
    with open_trace(report) as again:
        assert overview(again).counts.launches


def test_an_export_of_one_page_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(synthetic.recorded().write(tmp_path / "stepscope_trace_rank_0_4711_x.log"))
    assert run("export", log, "--to", "html", "--max-pages", "1", "-o", str(tmp_path / "pages")) == 0
    assert "pages (1 page)" in capsys.readouterr().out
