"""What recompiles and uncompiled code cost the steps in which they ran, as far as the log proves it."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape

import orjson
import pytest

from stepscope.viewer.compiles.queries import slowdown
from stepscope.viewer.compiles.queries.slowdown import Slowdown, StepFrames, StepTimes
from stepscope.viewer.overview.rows import StepRow
from stepscope.viewer.store.trace import Trace
from tests.logs import compile_summary_logs as logs
from tests.logs.synthetic import MONOTONIC_NS, UNIX_NS, LogBuilder, calls, graph, run
from tests.viewer.client import Client

Open = Callable[[LogBuilder | bytes], Trace]
NOTHING = StepTimes(0, None)


def slowdown_of(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[int, int | None, str]], recompiled_in: list[int], limit: int
) -> Slowdown:
    """`steps`: duration, compile time and called frames of each."""
    rows = [
        StepRow(0, n, "train", "call", 0, took, took, 1, 1, compiled) for n, (took, compiled, _) in enumerate(steps)
    ]
    called = [(0, n, frame) for n, (_, _, frames) in enumerate(steps) for frame in frames]
    monkeypatch.setattr(slowdown, "list_steps", lambda _: rows)
    monkeypatch.setattr("stepscope.viewer.compiles.queries.slowdown.sql.rows", lambda *_: called)
    return StepFrames(None).slowdown(0, "1", recompiled_in, limit)  # type: ignore[arg-type]


def test_a_step_counts_its_compiles_and_the_usual_ones_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int | None, str]] = [(10, 90, "12"), (10, 0, "12"), (14, 0, "12"), (10, 30, "12")]
    steps += [(60, 0, "2"), (70, 0, "3"), (80, 5, "2"), (90, None, "2")]
    found = slowdown_of(monkeypatch, steps, [0, 3], 3)
    assert found == Slowdown(usual=StepTimes(2, 12), recompiling=StepTimes(2, 70), uncompiled=StepTimes(1, 60))


def test_without_other_frames_no_later_step_is_known_to_be_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    found = slowdown_of(monkeypatch, [(10, 0, "1"), (10, 30, "1"), (60, 0, "2")], [1], 1)
    assert found.uncompiled == NOTHING


def test_the_page_says_in_which_step_a_value_came(opened: Open) -> None:
    log = LogBuilder().record(run(guesses_steps=True)).record(graph(phase="inference"))
    for number in range(4):
        log.record(calls(10 * number, 77, MONOTONIC_NS + 20_000_000 * (number + 1)))
    for number, after_ms in enumerate((0, 45)):
        for phase, ms in (("B", after_ms), ("E", after_ms + 9)):
            stamp = (UNIX_NS + ms * 1_000_000) / 1_000
            span = {"name": "dynamo", "ph": phase, "ts": stamp, "tid": 0, "args": {"compile_id": f"0/{number}"}}
            log.torch("chromium_event", {}, payload=orjson.dumps(span))
    logs.compiled(log, 0, 0, start_time_us=UNIX_NS // 1_000)
    log.artifact("recompile_reasons", logs.SIZE.format(of="0/0", expected=4, actual=8).encode(), **logs.ids(0, 1))
    logs.compiled(log, 0, 1, start_time_us=UNIX_NS // 1_000 + 45_000)
    client = Client(opened(log))
    (frame,) = client.get("/recompiles.json").json()["recompiles"]["frames"]
    assert frame["slowdown"]["usual"]["steps"] > 0
    assert frame["slowdown"]["recompiling"]["steps"] == 1
    html = unescape(client.get("/recompiles").text)
    step = frame["steps"]["0/1"]
    assert f'<code>8</code> <span class="dim">0/1, <a href="/steps/{step}?log=0">step {step}</a></span>' in html
    assert "times the usual" in html


def test_a_log_without_steps_says_why_there_is_no_time(opened: Open) -> None:
    html = unescape(Client(opened(logs.with_recompiles())).get("/recompiles").text)
    assert "no step called this frame without a compile in it" in html
    assert "uncompiled code leaves no calls in the log" in html
