"""The terms of the pages: one text for each, in the documentation too, and a “?” that opens it."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.viewer.report.write import render_report
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.glossary import TERMS
from tests.logs import overflow_log
from tests.logs.unpacking import whole_report
from tests.viewer.client import Client
from tests.viewer.web.test_pages import PATHS

DOCS = Path(__file__).parents[3] / "docs" / "architecture.md"
BUTTON = re.compile(
    r'<button type="button" class="term" popovertarget="([\w-]+)" aria-label="What is meant by ([^"]+)\?">\?<'
)
TEXT = re.compile(r'<span class="term-text" id="([\w-]+)" popover><b>([^<]+)</b> ([^<]+)</span>')


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    with open_trace(overflow_log.recorded().write(tmp_path_factory.mktemp("trace") / "recorded.log")) as opened:
        yield opened


def test_the_documentation_has_the_same_texts() -> None:
    table = DOCS.read_text("utf-8").partition("## Glossary")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"(?m)^\| (?!term |---)(.+?) \| (.+?) \|$", table))
    assert {term: re.sub(r" \[.*", "", text) for term, text in rows.items()} == TERMS
    assert list(TERMS) == sorted(TERMS, key=str.lower)


def explained(page: str) -> list[str]:
    """The terms that a page explains, each of which must lead to its text."""
    texts = {id: (name, html.unescape(text)) for id, name, text in TEXT.findall(page)}
    found = BUTTON.findall(page)
    for id, name in found:
        assert texts[id] == (name, TERMS[name].replace("`", ""))
    return [name for _, name in found]


@pytest.mark.slow
def test_pages_explain_a_term_once(trace: Trace) -> None:
    client = Client(trace)
    found = {path: explained(client.get(path).text) for path in (*PATHS, "/recompiles", "/graph-breaks", "/caches")}
    assert {path: names for path, names in found.items() if any(n > 1 for n in Counter(names).values())} == {}
    for path, name in (
        ("/", "launch site"), ("/steps", "step"), ("/graphs", "graph"), ("/graphs/0?site=1", "AOT id"),
        ("/compile", "compile id"), ("/compile/0_0?log=0", "frame"), ("/values?log=0", "value row"),
        ("/kernels", "launch site"), ("/graph-breaks", "graph break"), ("/recompiles", "recompile"),
        ("/caches", "cache hit"), ("/graphs/0/buffers", "buffer"), ("/records?text=graph", "artifact"),
    ):  # fmt: skip
        assert name in found[path], path


@pytest.mark.slow
def test_a_report_has_each_text_once(trace: Trace) -> None:
    page = whole_report(trace)
    assert sorted(name for _, name, _ in TEXT.findall(page)) == sorted(TERMS)
    assert set(explained(page)) >= {"launch site", "graph break", "AOT id"}
    assert "launch site" in explained(render_report(trace).partition("</main>")[0]), "the first page needs no script"
