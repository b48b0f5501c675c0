"""Lists with several pages: the server sorts and filters all their rows, not only those of the page that is shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from stepscope.viewer.store.trace import Trace
from tests.logs import compile_summary_logs as logs
from tests.logs.memory_logs import training
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client

Open = Callable[[LogBuilder | bytes], Trace]


def twin(client: Client, address: str) -> Any:
    """The twin of a page that is there."""
    assert client.get(address).status_code == 200
    path, _, query = address.partition("?")
    return client.get(f"{path}.json?{query}").json()


def sorted_links(page: str) -> dict[str, str]:
    """The links in the heads of columns, by the text of the head."""
    found = re.findall(r'<th[^>]*><a class="quiet" href="([^"]+)">([^<]+)</a>', page)
    return {text: unescape(href) for href, text in found}


def with_lookups(count: int) -> LogBuilder:
    log = LogBuilder()
    for number in range(count):
        state = "hit" if number % 3 else "miss"
        logs.compiled(log, number, 0)
        payload = b'{"key": "key%d", "time_saved_ns": %d, "components": []}' % (number, number * 7 % count)
        log.artifact(f"fx_graph_cache_{state}", payload, frame_id=number, frame_compile_id=0, attempt=0)
    return log


def test_lookups_of_all_pages_are_sorted_and_filtered(opened: Open) -> None:
    client = Client(opened(with_lookups(130)))
    whole = twin(client, "/caches")["caches"]
    assert whole["total"] == 130
    assert len(whole["rows"]) == 50
    page = client.get("/caches").text
    first = twin(client, sorted_links(page)["time saved"])["caches"]["rows"]
    assert [row["time_saved_ns"] for row in first] == [*range(129, 79, -1)]
    text = client.get(sorted_links(page)["time saved"]).text
    later = unescape(re.findall(r'rel="next" href="([^"]+)"', text)[0])
    assert [row["time_saved_ns"] for row in twin(client, later)["caches"]["rows"]] == [*range(79, 29, -1)]
    found = twin(client, "/caches?text=KEY12")["caches"]
    assert sorted(row["key"] for row in found["rows"]) == sorted(["key12", *(f"key12{n}" for n in range(10))])
    assert found["total"] == 11
    assert "No matching lookups" in client.get("/caches?text=nothing").text


def test_unknown_values_come_last_in_both_directions(opened: Open) -> None:
    client = Client(opened(training(2)))
    for order in ("", "&order=down"):
        sizes = [row["payload_bytes"] for row in twin(client, f"/records?sort=size{order}")["page"]["rows"]]
        known = [size for size in sizes if size is not None]
        assert len({*known}) > 1
        assert sizes == sorted(known, reverse=bool(order)) + [None] * (len(sizes) - len(known))


def test_records_of_all_pages_are_sorted(opened: Open) -> None:
    client = Client(opened(with_lookups(130)))
    everything = twin(client, "/records")["page"]
    assert everything["total"] > len(everything["rows"])
    last = twin(client, "/records?sort=record&order=down")["page"]["rows"][0]["record"]
    assert last not in [row["record"] for row in everything["rows"]]


def test_graphs_are_sorted_and_filtered(opened: Open) -> None:
    client = Client(opened(training(3)))
    graphs = twin(client, "/graphs")["graphs"]
    assert len(graphs) > 1
    by_launches = [row["launches"] for row in twin(client, "/graphs?sort=launches&order=down")["graphs"]]
    assert by_launches == sorted((row["launches"] for row in graphs), reverse=True)
    phase = graphs[-1]["phase"]
    assert {row["phase"] for row in twin(client, f"/graphs?text={phase.upper()}")["graphs"]} == {phase}
    assert "No matching graphs" in client.get("/graphs?text=nothing").text


def test_graph_breaks_are_sorted_and_filtered(opened: Open) -> None:
    client = Client(opened(logs.with_breaks()))
    found = twin(client, "/graph-breaks?sort=cause")["breaks"]["causes"]
    causes = [row["cause"] for row in found]
    assert len(causes) > 1
    assert causes == sorted(causes)
    only = twin(client, f"/graph-breaks?text={causes[-1].upper()}")["breaks"]
    assert causes[-1] in [row["cause"] for row in only["causes"]]
    assert only["matching_causes"] == len(only["causes"])
    assert "No matching graph breaks" in client.get("/graph-breaks?text=nothing+of+it").text


def test_recompiled_frames_are_sorted_and_filtered(opened: Open) -> None:
    client = Client(opened(logs.with_recompiles()))
    frames = twin(client, "/recompiles?sort=time")["recompiles"]["frames"]
    times = [row["recompile_ns"] or 0 for row in frames]
    assert times == sorted(times, reverse=True)
    name = frames[-1]["name"]
    only = twin(client, f"/recompiles?text={name}")["recompiles"]
    assert name in [row["name"] for row in only["frames"]]
    assert only["total_recompiles"] == sum(row["recompiles"] for row in frames)
    assert "No matching recompiles" in client.get("/recompiles?text=nothing+of+it").text


def test_the_heading_of_one_recompiled_frame_counts_its_recompiles(opened: Open) -> None:
    client = Client(opened(logs.with_recompiles()))
    step, size = twin(client, "/recompiles")["recompiles"]["frames"]
    for frame in (step, size):
        only = twin(client, f"/recompiles?frame={frame['frame_id']}")["recompiles"]
        totals = (only["total_frames"], only["total_recompiles"], only["total_ns"])
        assert totals == (1, frame["recompiles"], frame["recompile_ns"])


@pytest.mark.parametrize("path", ["/caches", "/graphs", "/graph-breaks", "/recompiles", "/records"])
def test_an_unknown_column_is_said(opened: Open, path: str) -> None:
    answer = Client(opened(training(1))).get(f"{path}?sort=price")
    assert answer.status_code == 404
    assert "cannot be sorted by “price”" in answer.text
