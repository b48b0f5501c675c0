"""Elements of small tensors: from the log to the panel, to JSON and to SQL; never into a redacted report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.statistics import Elements
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.steps.page import launch_page_of
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.text.formats import to_json
from tests.logs import overflow_log
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, calls, compile_records, run
from tests.logs.unpacking import data_of, whole_report

pytestmark = pytest.mark.slow


NUMBERS: list[Any] = [0.5, -0.6875, "nan", "inf", "-inf", 2**60, True, *range(25)]


def log_with(elements: Elements | None, size: float = 64.0) -> LogBuilder:
    log = compile_records(LogBuilder().record(run(level="values")))
    log.record(overflow_log.graph()).record(overflow_log.layout()).record(overflow_log.tensors())
    log.record(calls(0, 0, MONOTONIC_NS + 1_000_000))
    log.record(replace(overflow_log.values(0, size), elements=elements))
    return log.record(End("exit", MONOTONIC_NS + 2_000_000))


def test_from_the_log_to_the_panel(tmp_path: Path) -> None:
    kept = Elements([2, 3], [NUMBERS, [float(n) for n in range(32)]])
    with open_trace(log_with(kept).write(tmp_path / "x.log")) as trace:
        detail = launch_detail(trace, 0)
        assert detail is not None
        shown = [str(2**60) if number == 2**60 else number for number in NUMBERS]
        assert [[row.elements for row in values.after] for values in detail.values] == [[], [], [shown]]
        assert detail.values[0].before[0].elements is None
        assert sql.number(trace, "SELECT count(elements) FROM value_rows") == 2
        page = json.loads(to_json(launch_page_of(trace, 1)))
        (read,) = page["launch"]["values"][0]["before"]
        assert read["elements"] == shown
        for redact in (False, True):
            html = whole_report(trace, redact=redact)
            assert ("-0.6875" in html + json.dumps(data_of(html))) is not redact


def test_in_the_evidence_of_what_is_not_finite(tmp_path: Path) -> None:
    """Of the tensors that the finding speaks of, and of those on the way; never in a redacted report."""
    infinite: list[Any] = [-0.6875, *["inf"] * 3, *range(28)]
    nan: list[Any] = [-0.8125, *["nan"] * 7, *range(24)]
    log = log_with(Elements([2, 3], [infinite, nan]), size=99_999.0)
    with open_trace(log.write(tmp_path / "x.log")) as trace:
        (finding,) = summary(trace)["findings"]
        proof = finding["evidence"]
        assert [(row["side"], row["elements"]) for row in proof["elements"]] == [("in", infinite), ("out", nan)]
        assert [row["argument"] for row in proof["elements"]] == [
            text.split()[0] for text in proof["in"] + proof["out"]
        ]
        assert [link["elements"] for link in proof["chain"]] == [infinite, nan]
        for redact in (False, True):
            html = whole_report(trace, redact=redact)
            for number in ("-0.6875", "-0.8125"):
                assert (number in html + json.dumps(data_of(html))) is not redact
            assert ("[-0.8125, nan, nan" in html) is not redact


@pytest.mark.parametrize(
    ("elements", "skipped"),
    [
        (None, {}),
        (Elements([2], [[1.0, 2.0]]), {}),  # not as many as the tensor has
        (Elements([2], [["<script>", *NUMBERS[1:]]]), {}),
        (Elements([2], [[None, *NUMBERS[1:]]]), {}),
        (Elements([2], [[[1], *NUMBERS[1:]]]), {}),
        (Elements([2, 3], [NUMBERS]), {"broken_payload": 1}),
        (Elements([7], [NUMBERS]), {"broken_payload": 1}),
    ],
)
def test_old_logs_and_damaged_ones(tmp_path: Path, elements: Elements | None, skipped: dict[str, int]) -> None:
    with open_trace(log_with(elements).write(tmp_path / "x.log")) as trace:
        assert summary(trace)["ingest"]["skipped"] == skipped
        assert not sql.number(trace, "SELECT count(elements) FROM value_rows")
