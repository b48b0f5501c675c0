"""The pages of a report are packed except the first, which a reader without scripts sees; so are its scripts."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.redaction import scan
from stepscope.viewer.redaction.secrets import Secrets
from stepscope.viewer.report.packed_pages import with_packed_pages
from stepscope.viewer.report.ticket import gather
from stepscope.viewer.report.write import render_report, render_ticket
from stepscope.viewer.store.trace import Trace
from tests.logs import overflow_log, synthetic
from tests.logs.synthetic import LogBuilder
from tests.logs.unpacking import data_of, everything
from tests.viewer.crawling import PageChecker

pytestmark = pytest.mark.slow


Opened = Callable[[LogBuilder | bytes], Trace]


def test_findings_and_facts_need_no_script(opened: Opened) -> None:
    plain = render_report(opened(overflow_log.recorded())).partition("<main")[2].partition("</main>")[0]
    assert re.search(r'class="finding critical".*becomes NaN in', plain, re.S)
    assert "Facts for a bug report" in plain
    assert "need JavaScript" in plain
    assert re.findall(r'data-route="([^"]*)"', plain) == ["/", "left out"]


def test_each_packed_page_is_one_element_with_escaped_texts(opened: Opened) -> None:
    pages = data_of(render_report(opened(synthetic.recorded(argv=["<script>alert(1)</script>.py"]))))["pages"]
    assert {"/steps", "/graphs/0", "/kernels", "/problems"} <= pages.keys()
    for route, html in pages.items():
        checker = PageChecker()
        checker.feed(html)
        assert not checker.wrong, route
        assert html.startswith('<div class="page" data-route="')
        assert len(re.findall(r"<div\b", html)) == html.count("</div>"), route


def test_a_text_that_looks_like_a_page_is_no_page() -> None:
    html = (
        '<main><div class="page shown" data-route="/">first</div><div class="page" data-route="/a?b=1&amp;c=2">'
        '&lt;div class="page" data-route="/x"&gt;</div></main><script id="report-data"></script>'
    )
    whole = with_packed_pages(html, {"spans": 1})
    assert whole.startswith('<main><div class="page shown" data-route="/">first</div></main>')
    assert data_of(whole)["spans"] == 1
    assert [*data_of(whole)["pages"]] == ["/a?b=1&c=2"]


def test_scripts_are_packed_whole(opened: Opened) -> None:
    html = render_report(opened(synthetic.recorded()))
    found = re.search(r'id="report-scripts">([^<]*)<', html)
    assert found
    held = json.loads(gzip.decompress(base64.b64decode(found[1])))
    assert {*held["roots"]} <= held["modules"].keys()
    assert "export function openReport" in held["modules"]["#js/report/page.js"]


def test_the_lines_of_a_launch_are_those_of_its_wrapper(opened: Opened) -> None:
    data = data_of(render_report(opened(overflow_log.recorded())))
    shown = [page for of_call in data["panels"] for page in of_call if page["code_lines"]]
    assert shown
    for page in shown:
        wrapper = data["wrappers"][str(page["launch"]["graph"]["graph"])]
        assert all(line is not None or wrapper[number - 1] is not None for number, line in page["code_lines"])
        assert any(line is None for _, line in page["code_lines"])


def test_styles_of_packed_pages_are_packed(opened: Opened) -> None:
    html = render_report(opened(synthetic.recorded()))
    found = re.search(r'id="report-scripts">([^<]*)<', html)
    assert found
    packed = json.loads(gzip.decompress(base64.b64decode(found[1])))["css"]
    assert (".timeline-box{" in html, ".timeline-box{" in packed, ".finding{" in html) == (False, True, True)


def test_what_is_left_in_a_packed_page_is_found(opened: Opened) -> None:
    trace = opened(synthetic.recorded(argv=["/home/someone/hunter2_model.py"]))
    ticket = gather(trace, redact=True)
    assert ticket.redaction is not None
    html = render_ticket(ticket)
    assert "hunter2_model" not in everything(html)
    secrets = Secrets({"paths": {"/home/someone/hunter2_model.py"}}, {})
    leak = with_packed_pages(
        '<main><div class="page" data-route="/a"><p title="/home/someone/hunter2_model.py">'
        'x</p></div></main><script id="report-data"></script>',
        {},
    )
    assert "hunter2_model" not in leak
    with pytest.raises(StepscopeError, match="found what --redact removes"):
        scan.check("The report", leak.encode(), secrets, ticket.redaction.shown, trace)
