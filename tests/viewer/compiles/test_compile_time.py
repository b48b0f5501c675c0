"""Compile time: its spans, their sums, and the chart that folds what is far apart."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.viewer.store.trace import Trace
from tests.logs import compile_summary_logs as logs
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client

Opened = Callable[[LogBuilder | bytes], Trace]


def spans_log() -> LogBuilder:
    """`outer` holds `inner` and `other`, which go into each other as those of two threads do; `lost` has no end."""
    log = logs.compiled(LogBuilder(), 0, 0)
    for name, phase, at in (
        ("outer", "B", 0), ("inner", "B", 10), ("other", "B", 20), ("inner", "E", 30), ("other", "E", 60),
        ("lost", "B", 70), ("outer", "E", 100), ("never", "B", 120),
    ):  # fmt: skip
        logs.chromium(log, name, phase, at)
    return logs.chromium(log, "automatic_dynamic", "i", 50, reason="size change")


def test_spans_have_self_time_and_what_has_no_end_is_marked(opened: Opened) -> None:
    client = Client(opened(spans_log()))
    assert client.get("/compile-time?sort=total").status_code == 200
    found = client.get("/compile-time.json?sort=total").json()
    totals = {one["name"]: (one["count"], one["total_ns"], one["self_ns"]) for one in found["totals"]}
    assert totals == {"outer": (1, 100_000, 40_000), "inner": (1, 20_000, 20_000), "other": (1, 40_000, 40_000)}
    flame = found["flame"]
    assert (flame["end_ns"], flame["binned"]) == (120_000, False)
    spans = flame["spans"]
    names = [flame["names"][index] for index in spans["name"]]
    assert list(zip(names, spans["depth"], spans["start_ns"], spans["duration_ns"], strict=True)) == [
        ("outer", 0, 0, 100_000), ("inner", 1, 10_000, 20_000), ("other", 2, 20_000, 40_000),
    ]  # fmt: skip
    marks = {(mark["name"], mark["kind"], mark["ns"]) for mark in flame["marks"]}
    assert marks == {
        ("lost", "unfinished", 70_000), ("never", "unfinished", 120_000), ("automatic_dynamic", "instant", 50_000),
    }  # fmt: skip
    (instant,) = [mark for mark in flame["marks"] if mark["kind"] == "instant"]
    assert instant["arguments"]["reason"] == "size change"


def test_long_stretches_without_a_span_are_folded(opened: Opened) -> None:
    hour = 3_600_000_000
    log = logs.compiled(LogBuilder(), 0, 0)
    for number, at in enumerate((0, 2_000, 500_000, hour, hour + 4_000, 5 * hour)):
        logs.span(log, f"span {number}", at, at + 1_000)
    logs.chromium(log, "automatic_dynamic", "i", hour + 2_500, reason="size change")
    client = Client(opened(log))
    page = client.get("/compile-time.json").json()
    flame, us = page["flame"], 1000
    shown = [gap["shown_ns"] for gap in flame["gaps"]]
    assert [gap["length_ns"] for gap in flame["gaps"]] == [hour * us - 501_000 * us, 4 * hour * us - 5_000 * us]
    assert 0 < shown[0] == shown[1] < 501_000 * us / 10
    second, third = 501_000 * us + shown[0], 506_000 * us + 2 * shown[0]
    starts = [0, 2_000 * us, 500_000 * us, second, second + 4_000 * us, third]
    assert flame["spans"]["start_ns"] == starts
    assert set(flame["spans"]["duration_ns"]) == {1_000 * us}
    assert flame["end_ns"] == third + 1_000 * us
    assert [mark["ns"] for mark in flame["marks"]] == [second + 2_500 * us]
    assert {one["name"]: one["longest_start_ns"] for one in page["totals"]} == {
        f"span {number}": start for number, start in enumerate(starts)
    }
    window = client.get(f"/compile-time/spans.json?start_ns={second - 10}&end_ns={second + 2_000 * us}").json()
    assert window["spans"]["start_ns"] == [second]
    assert "60 min, 4.0 h. Time restarts after each gap." in client.get("/compile-time").text


def test_the_server_sends_no_more_spans_than_a_screen_shows(opened: Opened) -> None:
    log = logs.compiled(LogBuilder(), 0, 0)
    for number in range(3000):
        logs.span(log, f"pass {number % 7}", 10 * number, 10 * number + 8)
    client = Client(opened(log))
    wide = client.get("/compile-time/spans.json?width=100").json()
    counts = wide["spans"]["count"]
    assert len(counts) <= 2 * 101
    assert sum(counts) == 3000
    assert wide["binned"]
    near = client.get("/compile-time/spans.json?width=1000&start_ns=15000000&end_ns=15200000").json()
    assert near["spans"]["start_ns"] == [15_000_000 + 10_000 * number for number in range(-0, 21)]
    assert set(near["spans"]["count"]) == {1}
    assert not near["binned"]
