"""Values over the corpus: they change no number, and say what the tensors really were."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.capture.conftest import Corpus, programs
from tests.capture.logs import Trace
from tests.programs import NAMES

SEEN = [name for name in NAMES if name != "cpp_wrapper"]
COUNTS = ("nan", "positive_infinity", "negative_infinity", "zero", "near_overflow", "subnormal", "first_bad")


def rows(trace: Trace) -> Iterator[dict[str, Any]]:
    """The value rows, with what their layout says of them."""
    layouts = {layout["layout"]: layout for layout in trace.of("value_layout")}
    steps = {
        call: step
        for batch in trace.of("launches")
        for call, step in zip(batch["calls"]["call"], batch["calls"]["step"], strict=True)
    }
    for batch in trace.of("values"):
        sparse = {name: dict(zip(batch[name]["row"], batch[name]["value"], strict=True)) for name in COUNTS}
        exact = batch["exact"]
        bounds = {row: (low, high) for row, low, high in zip(exact["row"], exact["min"], exact["max"], strict=True)}
        start = 0
        for call, number in zip(batch["call"], batch["layout"], strict=True):
            layout = layouts[number]
            for n in range(len(layout["site"])):
                row = start + n
                low, high = bounds.get(row, (batch["min"][row], batch["max"][row]))
                yield {
                    "call": call, "step": steps[call], "min": low, "max": high,
                    "mean": batch["mean"][row], "std": batch["std"][row],
                    "graph": layout["graph"],
                    **{key: column[n] for key, column in layout.items() if isinstance(column, list)},
                    **{name: sparse[name].get(row, -1 if name == "first_bad" else 0) for name in COUNTS},
                }  # fmt: skip
            start += len(layout["site"])
        assert start == len(batch["min"]) == len(batch["max"]) == len(batch["mean"]) == len(batch["std"])


@pytest.mark.parametrize("name", programs(NAMES))
def test_results_are_bit_equal_with_values(corpus: Corpus, name: str) -> None:
    import torch

    expected, found = corpus.reference[name].results, corpus.values[name].results
    for before, after in zip(expected, found, strict=True):
        for a, b in zip(before, after, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("name", programs(SEEN))
def test_nothing_fails_and_nothing_is_left(corpus: Corpus, name: str) -> None:
    outcome = corpus.values[name]
    assert outcome.trace.of("failure") == []
    assert outcome.facts["changed"] == []
    assert {row["skipped"] for row in rows(outcome.trace)} == {None}


@pytest.mark.parametrize("name", programs(SEEN))
def test_every_result_stands_among_the_values(corpus: Corpus, name: str) -> None:
    """What a step returns was an output of some launch of it, with just these statistics."""
    import torch

    outcome = corpus.values[name]
    by_step: dict[int, list[dict[str, Any]]] = {}
    for row in rows(outcome.trace):
        by_step.setdefault(row["step"], []).append(row)
    assert by_step
    steps = [by_step[step] for step in sorted(by_step)]
    for results, seen in zip(outcome.results[-1:], steps[-1:], strict=True):
        for tensor in results:
            if tensor.numel() == 0 or tensor.is_complex() or (name == "scatter" and tensor.shape[1:] == (2,)):
                continue  # the last one is what `nonzero` returns, which runs between two graphs
            low, high = tensor.min().item(), tensor.max().item()
            zeros = int((tensor == 0).sum())
            want = (tensor.numel(), low, high, zeros)
            assert any(_is(row, *want) for row in seen), (name, tuple(tensor.shape), tensor.dtype, want)
            assert torch.isfinite(tensor).all()


def _is(row: dict[str, Any], numel: int, low: float, high: float, zeros: int) -> bool:
    if row["numel"] != numel or row["zero"] != zeros or row["min"] is None:
        return False
    return math.isclose(row["min"], low, rel_tol=1e-6) and math.isclose(row["max"], high, rel_tol=1e-6)


@pytest.mark.parametrize("name", programs(SEEN))
def test_what_a_launch_finds_is_what_its_writer_left(corpus: Corpus, name: str) -> None:
    """Each argument was read again before each launch: its version must have the same statistics."""
    trace = corpus.values[name].trace
    sites = {graph["graph"]: graph["sites"] for graph in trace.of("graph")}
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    compared = 0
    for row in rows(trace):
        key = row["call"], row["site"], row["argument"], row["moment"], row["item"], row["part"]
        argument = sites[row["graph"]][row["site"]]["arguments"][row["argument"]]
        version = argument["version"]
        if row["moment"] == "before":
            assert argument["held"] in ("input", "written"), argument
            assert version is not None, argument
            where = version["site"], version["argument"], version["moment"], version["item"]
            earlier = last.get((row["call"], *where[:3], where[3], row["part"]))
            own = (row["site"], row["argument"], "before") == where[:3]
            if earlier is not None and not own and earlier["numel"] == row["numel"]:
                compared += 1
                keys = ("min", "max", "mean", "std", "nan", "zero", "subnormal", "positive_infinity")
                assert [earlier[key] for key in keys] == [row[key] for key in keys], (name, key, argument)
        last[key] = row
    several = any(site["arguments"] for graph in sites.values() for site in graph[1:])
    assert compared or not several or name in NOTHING_TO_COMPARE


NOTHING_TO_COMPARE = {"while_loop_zero"}
