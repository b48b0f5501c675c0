"""Pages of ranks, and ranks of real logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from stepscope.viewer.ranks.queries.difference import rank_difference
from stepscope.viewer.ranks.queries.ranks import ranks
from stepscope.viewer.store.open import open_trace
from tests.logs import synthetic
from tests.logs.rank_logs import (
    ALL_GATHER,
    ALL_REDUCE,
    WAIT,
    found_in,
    opened_ranks,
    rank_log,
    with_change,
    write,
)
from tests.viewer.client import Client
from tests.viewer.conftest import sample_logs


@pytest.fixture
def client(tmp_path: Path) -> Any:
    change = {"operator": "<script>", "schedule": [ALL_GATHER, WAIT, "<img src=x>"], "cache": "hit", "shape": (1, 2)}
    with open_trace(write(tmp_path, with_change(3, changed=2, at=2, **change))) as trace:
        yield Client(trace)


def test_ranks_page(client: Client) -> None:
    text = client.get("/ranks").text
    assert text.count("<h1") == 1
    for words in ("ranks 0, 1", "Ranks differ first in", "the ranks may hang"):
        assert words in text
    answer = client.get("/ranks.json").json()
    assert [row["aspect"] for row in answer["aspects"] if row["state"] == "differ"] == [
        "collectives", "graphs", "tensors", "caches",
    ]  # fmt: skip
    for row in answer["aspects"]:
        assert row["first"] is None or client.get(row["first"]["page"]).status_code == 200


@pytest.mark.parametrize("aspect", ["compile_ids", "caches", "collectives", "graphs", "tensors", "times"])
def test_difference_page(client: Client, aspect: str) -> None:
    text = client.get(f"/ranks/difference?aspect={aspect}&left=0&right=2").text
    answer = client.get(f"/ranks/difference.json?aspect={aspect}&left=0&right=2").json()["difference"]
    differs = aspect not in ("compile_ids", "times")
    assert ('id="first"' in text) is differs
    assert (answer["split"] is not None) is differs
    assert sum(row["is_first"] for row in answer["rows"]) == differs
    assert "<img" not in text
    assert "<script>" not in text.partition("<main")[2]
    if aspect == "graphs":
        changed = [line for line in answer["graph"]["lines"] if line["state"] != "equal"]
        assert [("sin()" in line["left"], "<script>()" in line["right"]) for line in changed] == [(True, True)]
    if aspect == "tensors":
        assert [(row["left"]["text"], row["right"]["text"]) for row in answer["operations"]] == [
            ("op0 → float32[4, 4] stride [4, 1]", "op0 → float32[1, 2] stride [4, 1]")
        ]
        assert [row["left"]["estimated_ns"] for row in answer["operations"]] == [17.5]
    if aspect == "collectives":
        sides = [
            (row["left"] and row["left"]["value"], row["right"] and row["right"]["value"]) for row in answer["rows"]
        ]
        assert sides[8:] == [
            ("all_reduce_", None),
            ("wait_tensor", None),
            ("all_gather_into_tensor", "all_gather_into_tensor"),
            ("wait_tensor", "wait_tensor"),
            (None, "<img src=x>"),
        ]


def test_addresses_that_name_nothing(client: Client) -> None:
    for query in ("aspect=nothing", "left=99", "aspect=graphs&right=-1", "left=x"):
        answer = client.get(f"/ranks/difference?{query}")
        assert answer.status_code == 404
        assert "Traceback" not in answer.text
    assert client.get("/ranks/difference?aspect=graphs&left=1&right=1").status_code == 200


def test_one_log_says_what_is_missing(tmp_path: Path) -> None:
    with open_trace(synthetic.recorded().write(tmp_path / "one.log")) as trace:
        text = Client(trace).get("/ranks").text
        assert "Nothing to compare" in text
        assert "torchrun" in text
        assert found_in(trace) == []


def test_long_sequences_are_cut_around_the_first_difference(tmp_path: Path) -> None:
    schedule = [ALL_REDUCE, WAIT] * 1500
    other = schedule[:]
    other[2001] = ALL_GATHER
    logs = {rank: rank_log(rank, [{"schedule": other if rank else schedule}]) for rank in range(2)}
    with open_trace(write(tmp_path, logs)) as trace:
        shown = rank_difference(trace, "collectives", 0, 1)
    assert shown.split is not None
    assert shown.split.left == 2001
    assert shown.before == 2001 - 20
    assert shown.before + len([row for row in shown.rows if row.left]) + shown.left_after == 3000
    assert [(row.left_index, row.right_index) for row in shown.rows if row.is_first] == [(None, 2001)]


# Real logs


def scanned(path: Path) -> list[tuple[dict[str, Any], bytes]]:
    """Headers and payloads of a log, read apart from the package."""
    found: list[tuple[dict[str, Any], list[bytes]]] = []
    for line in path.read_bytes().replace(b"\r\n", b"\n").split(b"\n"):
        match = re.match(rb"V\d{4} \S+ \d+ [^ ]+\] (\{.*)", line)
        if match:
            found.append((orjson.loads(match[1]), []))
        elif line.startswith(b"\t") and found:
            found[-1][1].append(line[1:])
    return [(header, b"\n".join(payload)) for header, payload in found]


def first_difference(left: Sequence[object], right: Sequence[object]) -> int | None:
    pairs = zip([*left, None], [*right, None], strict=False)
    return None if left == right else next(i for i, (a, b) in enumerate(pairs) if a != b)


@pytest.mark.skipif(sample_logs() is None, reason="no logs of PyTorch are here")
def test_collectives_of_real_ranks() -> None:
    folder = (sample_logs() or Path()) / "multi_rank_schedule"
    schedules = [
        [
            name.split(".")[-2]
            for header, payload in scanned(path)
            if header.get("artifact", {}).get("name") == "inductor_collective_schedule"
            for name in orjson.loads(payload)
        ]
        for path in sorted(folder.iterdir())
    ]
    found, findings = opened_ranks(folder)
    assert schedules[0] == schedules[2]
    place = first_difference(schedules[0], schedules[1])
    assert [(finding.severity, finding.evidence["aspect"]) for finding in findings] == [("critical", "collectives")]
    evidence = findings[0].evidence
    assert place is not None
    assert evidence["left_place"] == place + 1
    assert (evidence["left"], evidence["right"]) == (schedules[0][place], schedules[1][place])
    assert (evidence["left_items"], evidence["right_items"]) == (len(schedules[0]), len(schedules[1]))
    assert [row.collectives for row in found.rows] == [
        sum(name != "wait_tensor" for name in schedule) for schedule in schedules
    ]
    assert [group["ranks"] for group in evidence["groups"]] == ["ranks 0, 2", "rank 1"]


@pytest.mark.skipif(sample_logs() is None, reason="no logs of PyTorch are here")
def test_compiles_and_caches_of_real_ranks() -> None:
    folder = (sample_logs() or Path()) / "multi_rank_logs"
    records = [scanned(path) for path in sorted(folder.iterdir())]
    compiles = [[h["frame_compile_id"] for h, _ in log if "dynamo_start" in h] for log in records]
    caches = [
        [
            (h["frame_compile_id"], h["artifact"]["name"])
            for h, _ in log
            if re.search("_cache_(hit|miss|bypass)$", h.get("artifact", {}).get("name", ""))
        ]
        for log in records
    ]
    with open_trace(folder) as trace:
        found, findings = ranks(trace), {row.evidence["aspect"]: row for row in found_in(trace)}
        by_aspect = {str(row.aspect): row for row in found.aspects}
        shown = {aspect: rank_difference(trace, aspect, 1, 3) for aspect in ("compile_ids", "caches")}
    severities = {aspect: row.severity for aspect, row in findings.items()}
    assert severities == {"compile_ids": "warning", "graphs": "warning", "times": "warning"}
    assert [row.compiles for row in found.rows] == [len(ids) for ids in compiles]
    for aspect, sequence in (("compile_ids", compiles), ("caches", caches)):
        groups = {tuple(log for log in range(4) if sequence[log] == other) for other in sequence}
        assert {tuple(group.logs) for group in by_aspect[aspect].groups} == groups
        split = shown[aspect].split
        assert split is not None
        assert split.left == first_difference(sequence[1], sequence[3])
    assert {tuple(group.logs) for group in by_aspect["graphs"].groups} == {(0, 2), (1, 3)}
