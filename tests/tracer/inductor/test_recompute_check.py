"""Mismatches of the reordering passes, with faults that the tests plant; on a fake process group."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.tracer.inductor.scheduler import recompute_check
from tests import python_processes
from tests.tracer.logs import read

ROOT = Path(__file__).resolve().parents[3]
REORDER, SINK = "reorder_communication_preserving_peak_memory", "sink_waits_iterative"
FAULT_BYTES = 64
WAYS = (
    "unrecorded", "unrecorded torch", "ours", "torch", "unrecorded reorder torch", "reorder torch", "reorder ours",
    "sink ours", "unrecorded reorder sink", "reorder sink ours", "torch no_budget",
)  # fmt: skip


@dataclass
class Done:
    order: list[str]
    same_key: bool
    printed: str
    log: str | None

    @property
    def found(self) -> list[dict[str, Any]]:
        assert self.log is not None
        records = read(Path(self.log))
        assert not records["failure"]
        return records["recompute_mismatch"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    folder = tmp_path_factory.mktemp("recompute")
    command = [sys.executable, "-m", "tests.tracer.inductor.recompute_program", str(folder), *WAYS]
    ran = python_processes.run(command, timeout=400)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return {way: Done(**json.loads(line)) for way, line in zip(WAYS, ran.stdout.splitlines(), strict=True)}


def curves(mismatch: dict[str, Any], name: str) -> list[tuple[int, int]]:
    return list(zip(mismatch[f"{name}_after_alloc_bytes"], mismatch[f"{name}_after_free_bytes"], strict=True))


def check_sums(mismatch: dict[str, Any]) -> None:
    """The recomputed curve is the sum of the buffers; the one before the swap has the same bytes in another order."""
    live, recomputed = 0, curves(mismatch, "recomputed")
    table = mismatch["buffers"]
    for index, (after_alloc, after_free) in enumerate(recomputed):
        live += sum(b for b, first in zip(table["alloc_bytes"], table["first_snode"], strict=True) if first == index)
        assert after_alloc == live
        live -= sum(b for b, last in zip(table["free_bytes"], table["last_snode"], strict=True) if last == index)
        assert after_free == live
    assert mismatch["peak_after_bytes"] == max(alloc for alloc, _ in recomputed)
    at_peak = [index for index, (alloc, _) in enumerate(recomputed) if alloc == mismatch["peak_after_bytes"]]
    assert mismatch["peak_snodes"] == at_peak
    assert len(mismatch["snode"]) == len(recomputed) == len(curves(mismatch, "carried"))


@pytest.mark.slow
def test_a_healthy_pass_has_no_mismatch(done: dict[str, Done]) -> None:
    assert done["ours"].found == []
    assert done["ours"].order == done["unrecorded"].order


def test_the_known_false_alarm_is_explained_by_the_budget(done: dict[str, Done]) -> None:
    (alarm,) = done["torch"].found
    assert alarm["reasons"] == ["peak"]
    assert alarm["is_explained"] is True
    assert alarm["found_by"] == "torch"
    assert alarm["allowed_peak_bytes"] == int(alarm["peak_before_bytes"] * 1.2)
    assert alarm["peak_before_bytes"] < alarm["peak_after_bytes"] <= alarm["allowed_peak_bytes"]
    assert curves(alarm, "carried") == curves(alarm, "recomputed")
    assert alarm["reason_snode"] == [alarm["snode"][alarm["peak_snodes"][0]]]
    check_sums(alarm)


def test_without_the_budget_there_is_no_false_alarm(done: dict[str, Done]) -> None:
    assert done["torch no_budget"].found == []


def test_torchs_flag_compiles_to_what_it_compiles_to_without_us(done: dict[str, Done]) -> None:
    assert done["torch"].order == done["unrecorded torch"].order
    assert done["reorder torch"].order == done["unrecorded reorder torch"].order
    assert done["reorder torch"].order != done["reorder ours"].order  # torch stops at the first difference


def test_our_switch_changes_neither_the_order_nor_the_cache_key(done: dict[str, Done]) -> None:
    assert done["reorder sink ours"].order == done["unrecorded reorder sink"].order
    assert all(run.same_key for run in done.values())


def test_the_report_is_not_printed(done: dict[str, Done]) -> None:
    assert "ITERATIVE" in done["unrecorded torch"].printed
    assert "ITERATIVE" not in done["torch"].printed + done["reorder torch"].printed + done["reorder ours"].printed


@pytest.mark.parametrize("words", ["reorder torch", "reorder ours"])
def test_a_planted_fault_is_found_at_its_swap(done: dict[str, Done], words: str) -> None:
    first = done[words].found[0]
    assert (first["pass_name"], first["swap"], first["is_explained"]) == (REORDER, 0, False)
    assert first["found_by"] == words.split()[1].replace("ours", "stepscope")
    assert (first["reasons"], first["reason_snode"]) == (["candidate"], [first["candidate"]])
    at = first["snode"].index(first["candidate"])
    differences = [
        (index, carried[0] - recomputed[0], carried[1] - recomputed[1])
        for index, (carried, recomputed) in enumerate(
            zip(curves(first, "carried"), curves(first, "recomputed"), strict=True)
        )
        if carried != recomputed
    ]
    assert differences == [(at, FAULT_BYTES, 0)]
    assert (first["graph"], first["subgraph"], first["compile_id"]) == (0, None, "0/0")
    check_sums(first)


def test_the_swap_is_told_with_its_nodes_their_bytes_and_last_uses(done: dict[str, Done]) -> None:
    found = [*done["reorder ours"].found, *done["sink ours"].found]
    for mismatch in found:
        candidate, *group = mismatch["swapped"]
        assert [candidate["name"], *(node["name"] for node in group)] == [mismatch["candidate"], *mismatch["group"]]
        assert all(node["operators"] and node["reads"] and node["writes"] for node in mismatch["swapped"])
        live = 0
        nodes = zip(
            curves(mismatch, "recomputed"), mismatch["recomputed_alloc_bytes"], mismatch["recomputed_free_bytes"],
            strict=True,
        )  # fmt: skip
        for (after_alloc, after_free), alloc, free in nodes:
            assert (after_alloc, after_free) == (live + alloc, live + alloc - free)
            live = after_free
        # The planted fault is in what is live, not in what the nodes allocate and free.
        assert mismatch["carried_alloc_bytes"] == mismatch["recomputed_alloc_bytes"]
        assert mismatch["carried_free_bytes"] == mismatch["recomputed_free_bytes"]
        table = mismatch["buffers"]
        last = dict(zip(table["name"], table["last_snode"], strict=True))
        for buffer, before, after in zip(
            mismatch["last_use_buffer"], mismatch["last_use_before"], mismatch["last_use_after"], strict=True
        ):
            assert mismatch["candidate"] in (before, after)
            assert before != after
            assert mismatch["snode"][last[buffer]] == after
    kernels = {kernel for mismatch in found for node in mismatch["swapped"] for kernel in node["kernels"]}
    assert any("mm" in kernel for kernel in kernels)
    assert any("wait_tensor" in kernel for kernel in kernels)


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def get_name(self) -> str:
        return self.name


@pytest.mark.parametrize(("pass_name", "before", "after"), [(REORDER, "op2", "op1"), (SINK, "op1", "op2")])
def test_a_last_use_goes_to_the_node_that_comes_later(pass_name: str, before: str, after: str) -> None:
    """The one pass moves the candidate behind its group, the other one before it."""
    candidate, first, second = Named("op1"), Named("op2"), Named("op3")
    swap: Any = SimpleNamespace(
        candidate=candidate, group=[first, second], last_uses={first: [Named("buf0")], second: []}, pass_name=pass_name
    )
    assert recompute_check._last_uses(swap) == [("buf0", before, after)]


def test_all_reasons_are_kept(done: dict[str, Done]) -> None:
    both = [found for found in done["reorder ours"].found if len(found["reasons"]) > 1]
    assert both
    for found in both:
        assert found["reasons"] == ["peak", "candidate"]
        carried = max(found["carried_after_alloc_bytes"])
        assert carried == found["peak_after_bytes"] + FAULT_BYTES


def test_mismatches_of_one_compile_differ(done: dict[str, Done]) -> None:
    found = done["reorder sink ours"].found
    places = [(entry["pass_name"], entry["swap"]) for entry in found]
    assert len(set(places)) == len(places) > 1
    assert places == sorted(places)
    assert done["sink ours"].found
    assert {entry["pass_name"] for entry in done["sink ours"].found} == {SINK}


def test_the_figures_before_a_swap_are_those_of_the_order_before(done: dict[str, Done]) -> None:
    found = done["reorder ours"].found
    for earlier, later in pairwise(found):
        if later["swap"] == earlier["swap"] + 1:
            after = dict(zip(earlier["snode"], curves(earlier, "recomputed"), strict=True))
            before = dict(zip(later["snode"], curves(later, "before"), strict=True))
            assert before == after
    assert any(later["swap"] == earlier["swap"] + 1 for earlier, later in pairwise(found))
