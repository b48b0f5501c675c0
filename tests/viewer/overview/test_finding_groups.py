"""Findings that several logs share: one entry with the logs that have it, while JSON tells each log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope.viewer.overview.finding_groups import finding_groups
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.overview.summary import findings, findings_text
from stepscope.viewer.report.markdown import render_markdown
from stepscope.viewer.report.ticket import gather
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import recorded
from tests.viewer.client import Client

RANKS = 12
_DIED = Finding(
    "end", "critical", "process 12 ended after launch 3, relu_0", "A rule.", {}, "/", log=0, kernel="relu_0"
)


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Trace]:
    for rank in range(RANKS):
        recorded(end=False, pid=1000 + rank, rank=rank).write(tmp_path / f"stepscope_trace_rank_{rank:02}.log")
    with open_trace(tmp_path, index_dir=tmp_path / "index") as trace:
        yield trace


@pytest.mark.slow
def test_ranks_that_died_alike_are_one_entry(dead: Trace) -> None:
    text = findings_text(dead)
    assert text.count("The log has no end record") == 1
    assert "and for parameters and buffers that should be equal on all ranks and are not." in " ".join(text.split())
    assert "  It is found in ranks 1 to 11, too." in text.splitlines()
    page = Client(dead).get("/").text
    assert page.count('<p class="finding-title">') == 1
    assert 'in 11 more logs, too: <a href="/steps/2?log=1&amp;launch=31"' in page
    assert "rank 8</a> and 3 more." in page
    assert "It is found in 11 more logs, too." in render_markdown(gather(dead))
    assert len(findings(dead)["findings"]) == RANKS


def test_what_differs_in_more_than_names_and_numbers_stays_apart() -> None:
    other = replace(_DIED, log=1, title="process 13 ended after launch 7, relu_0")
    assert [(group.first, group.others) for group in finding_groups([_DIED, other])] == [(_DIED, [other])]
    for changed in (
        {"title": "process 13 was killed"}, {"kernel": "relu_1"}, {"severity": "info"}, {"log": 0}, {"log": None},
    ):  # fmt: skip
        apart = replace(other, **changed)
        assert [group.first for group in finding_groups([_DIED, apart])] == [_DIED, apart]


def test_the_second_of_a_log_joins_the_second_of_another() -> None:
    second, third = replace(_DIED, page="/2"), replace(_DIED, page="/3")
    others = [replace(one, log=1) for one in (_DIED, second)]
    groups = finding_groups([_DIED, second, third, *others])
    assert [(group.first, group.others) for group in groups] == [
        (_DIED, [others[0]]), (second, [others[1]]), (third, []),
    ]  # fmt: skip
