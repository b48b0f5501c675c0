"""A figure is the same wherever it stands: on pages, in the text of the summary and in its JSON."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest

from stepscope.viewer.findings.memory import growth as growths
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import evidence_text, format_bytes, format_ns
from tests.logs import compile_summary_logs as logs
from tests.logs.memory_logs import training
from tests.logs.memory_records import growth
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client
from tests.viewer.memory.test_memory_findings import losses

Open = Callable[[LogBuilder | bytes], Trace]


def shown(trace: Trace, path: str) -> str:
    """The text of a page."""
    page = re.sub(r"(?s)<(script|style|template)\b.*?</\1>", " ", Client(trace).get(path).text)
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    return re.sub(r" ([,.;])", r"\1", text)


@pytest.mark.slow
def test_sizes_of_memory(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growths, "LEAST_BYTES", 1)
    trace = opened(training(5, keep=99).record(growth(losses(range(4)), ["list of 4 in keep of __main__"])))
    memory = summary(trace)["memory"]
    peak, grown = format_bytes(memory["peak_bytes"]), format_bytes(memory["growth_bytes_per_step"])
    text = summary_text(trace)
    assert f"at most {peak} " in text
    assert f"grows by {grown} per step" in text
    assert f"Memory grows by {grown} per step" in text
    assert f"peak on cpu {peak}," in shown(trace, "/memory")
    assert f"bytes per step {grown}" in shown(trace, "/") or f"grows by {grown} per step" in shown(trace, "/")


def test_the_unit_of_a_fact_is_in_its_name() -> None:
    assert evidence_text(4_194_304, "bytes_per_step") == "4.2 MB"
    assert evidence_text(4_194_304, "peak_bytes") == "4.2 MB"


def test_the_size_of_the_log(opened: Open) -> None:
    trace = opened(training(4))
    size = format_bytes(sum(log.path.stat().st_size for log in trace.logs))
    page = shown(trace, "/")
    assert f"log {size}, no hook failed" in page
    assert page.count(size) == 2
    assert f"{size} of log" in summary_text(trace)


def compiled() -> LogBuilder:
    log = logs.compiled(LogBuilder(), 0, 0)
    for name, phase, at in (("dynamo", "B", 0), ("inside", "B", 100), ("inside", "E", 2_000), ("dynamo", "E", 5_000)):
        logs.chromium(log, name, phase, at)
    return logs.span(log, "dynamo", 600_000, 604_000)


def test_compile_time(opened: Open) -> None:
    trace = opened(compiled())
    facts = summary(trace)
    whole = format_ns(sum(row["duration_ns"] for row in facts["compiles"]))
    assert f"Compile time {whole} " in shown(trace, "/")
    assert f"Compiles  1  {whole}" in summary_text(trace)
    page = shown(trace, "/compile-time")
    assert f"Compile time {whole} in 1 compile" in page
    assert "its outermost spans take 9.00 ms together" in page
    assert "the chart of 3 spans is 604 ms long" in page


def test_spans_at_the_same_time(opened: Open) -> None:
    log = logs.compiled(LogBuilder(), 0, 0)
    for thread in (0, 1):
        logs.span(log, "dynamo", 0, 5_000, tid=thread)
    page = shown(opened(log), "/compile-time")
    assert "its outermost spans take 10.0 ms together." in page
    assert "Some ran at the same time, so the chart of 2 spans is 5.00 ms long." in page


def test_a_compile_has_one_status(opened: Open) -> None:
    log = logs.compiled(LogBuilder(), 0, 0)
    logs.compiled(log, 0, 1)
    log.artifact("recompile_reasons", b'["0/0: x == 1"]', frame_id=0, frame_compile_id=1, attempt=0)
    trace = opened(log)
    row = next(line for line in summary_text(trace).splitlines() if line.strip().startswith("0/1 "))
    status = re.search(r"↻ ?(\w+)", shown(trace, "/compile"))
    assert status is not None
    assert status[1] in row


def test_refused_compiles_are_no_recompiles(opened: Open) -> None:
    trace = opened(logs.with_recompiles())
    counts = re.findall(r"(\d+) recompiles? in .*?Each recompile (\d+)", shown(trace, "/recompiles"))
    assert counts
    assert all(said == listed for said, listed in counts)
