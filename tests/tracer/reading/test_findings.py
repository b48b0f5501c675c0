"""Findings as objects for notebooks: read by the command, shown as text and as HTML in which nothing runs."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

import stepscope
from stepscope.tracer.reading.command import NotRead, write_report
from stepscope.tracer.reading.findings import MOST_SHOWN, Finding, Findings, read_findings
from tests.logs import overflow_log
from tests.logs.synthetic import recorded

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(2)>'


class Tags(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return overflow_log.recorded().write(tmp_path / "recorded.log")


def hostile(title: str = HOSTILE) -> Finding:
    return Finding("nonfinite", "critical", title, HOSTILE, HOSTILE, HOSTILE, 1, 2, HOSTILE, {"x": HOSTILE})


@pytest.mark.slow
def test_findings_of_a_log_are_read(log: Path) -> None:
    found = read_findings(log)
    assert found[0].severity == "critical"
    assert found[0].title in repr(found)
    assert f"stepscope serve {log}" in repr(found)
    assert {row.kind for row in found} == {"nonfinite"}


def test_html_has_no_script_no_address_and_no_colour() -> None:
    rows = Findings(Path(f"/tmp/{HOSTILE}"), [hostile()], 3)
    for html in (rows._repr_html_(), rows[0]._repr_html_()):
        page = Tags(html)
        assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td", "span", "code", "br", "p", "small"}
        assert page.attributes == {"style"}
        assert "&lt;script&gt;" in html
        assert "color" not in html
        assert "background" not in html


def test_many_findings_are_cut_with_their_number() -> None:
    rows = Findings(Path("x.log"), [hostile(f"title {number}.") for number in range(MOST_SHOWN + 2)], 3)
    for text in (repr(rows), rows._repr_html_()):
        assert f"title {MOST_SHOWN - 1}." in text
        assert f"title {MOST_SHOWN}." not in text
        assert "2 more findings are not shown." in text


@pytest.mark.slow
def test_an_empty_list_says_what_was_looked_at(tmp_path: Path) -> None:
    healthy = read_findings(recorded().write(tmp_path / "healthy.log"))
    assert (len(healthy), "No findings in 12 launches." in healthy._repr_html_()) == (0, True)
    assert "No compiled graph ran." in repr(Findings(tmp_path, [], 0))


@pytest.mark.slow
def test_a_log_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotRead, match=r"missing\.log"):
        read_findings(tmp_path / "missing.log")
    said = write_report(tmp_path / "missing.log", tmp_path / "report.html", "note")
    assert said.startswith(f"The report of {tmp_path / 'missing.log'} could not be written: ")


@pytest.mark.slow
def test_a_script_with_the_name_of_the_package_is_not_run(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (log.parent / "stepscope.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(log.parent)
    assert read_findings(Path(log.name))


@pytest.mark.slow
def test_a_report_starts_with_its_note(log: Path) -> None:
    report = log.with_name("report.html")
    said = write_report(log, report, "--force: \0 and \ud800 " + "x" * 1_000_000)
    assert said == f"The report of the recorded run is {report}"
    assert r"--force: \0 and \ud800 xxx" in report.read_text("utf-8")


def test_a_recorder_shows_its_state(tmp_path: Path) -> None:
    html = stepscope.trace(tmp_path)._repr_html_()
    assert html == "<p><code>&lt;stepscope recorder: not recording, level launches, log not begun&gt;</code></p>"
