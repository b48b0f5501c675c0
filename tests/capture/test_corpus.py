"""The recorder over the corpus: it changes no number, sees every launch, and leaves nothing behind."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.capture.conftest import Corpus, programs
from tests.capture.independent import count_statements
from tests.programs import NAMES

UNSEEN = "cpp_wrapper"
SEEN = [name for name in NAMES if name != UNSEEN]
# torch does not keep their graphs: the second run compiles them again.
UNCACHED = {"cond", "max_autotune", "while_loop", "while_loop_zero"}
CATEGORY = {"subgraph": "subgraph", "copy": "copy"}

temperatures = pytest.mark.parametrize("temperature", ["cold", "warm"])


def test_names_are_the_corpus() -> None:
    from tests.programs import load

    assert sorted(load()) == sorted(NAMES)


@temperatures
@pytest.mark.parametrize("name", programs(NAMES))
def test_results_are_bit_equal(corpus: Corpus, name: str, temperature: str) -> None:
    import torch

    expected = corpus.reference[name].results
    found = corpus.recorded(temperature)[name].results
    assert len(expected) == len(found)
    for step, (before, after) in enumerate(zip(expected, found, strict=True)):
        assert len(before) == len(after)
        assert before, "a program whose results are no tensors proves nothing"
        for position, (a, b) in enumerate(zip(before, after, strict=True)):
            assert torch.equal(a, b), f"step {step}, tensor {position}"


@temperatures
@pytest.mark.parametrize("name", programs(SEEN))
def test_every_launch_statement_is_a_site(corpus: Corpus, name: str, temperature: str) -> None:
    outcome = corpus.recorded(temperature)[name]
    graphs = outcome.trace.of("graph")
    assert {graph["wrapper_key"] for graph in graphs} == set(outcome.facts["wrappers"])
    for graph in graphs:
        assert graph["not_recorded"] is None
        expected = count_statements(outcome.facts["wrappers"][graph["wrapper_key"]])
        found: dict[str, Counter[str]] = {function: Counter() for function in graph["functions"]}
        for site in graph["sites"]:
            found[site["function"]][CATEGORY.get(site["kind"], "kernel")] += 1
        assert found.keys() == expected.keys()
        for function, counts in found.items():
            assert counts == +expected[function], function


@temperatures
@pytest.mark.parametrize("name", programs(SEEN))
def test_every_launch_is_recorded(corpus: Corpus, name: str, temperature: str) -> None:
    expected = corpus.reference[name].counts
    assert expected, "nothing was launched"
    assert corpus.recorded(temperature)[name].trace.kernels_by_step() == expected


@temperatures
@pytest.mark.parametrize("name", programs(SEEN))
def test_nothing_was_skipped_and_nothing_failed(corpus: Corpus, name: str, temperature: str) -> None:
    trace = corpus.recorded(temperature)[name].trace
    assert trace.of("skipped") == []
    assert trace.of("failure") == []
    assert [end["reason"] for end in trace.of("end")] == ["detach"]


@temperatures
@pytest.mark.parametrize("name", programs(SEEN))
def test_every_storage_lived_as_expected(corpus: Corpus, name: str, temperature: str) -> None:
    trace = corpus.recorded(temperature)[name].trace
    assert trace.of("lifetimes")
    assert trace.of("lifetime_mismatch") == []


@temperatures
@pytest.mark.parametrize("name", programs(NAMES))
def test_original_code_runs_after_detach(corpus: Corpus, name: str, temperature: str) -> None:
    facts = corpus.recorded(temperature)[name].facts
    assert facts["wrappers"]
    assert facts["changed"] == []


@temperatures
@pytest.mark.parametrize("name", programs(SEEN))
def test_clock_of_a_call_holds_its_launches(corpus: Corpus, name: str, temperature: str) -> None:
    for batch in corpus.recorded(temperature)[name].trace.of("launches"):
        row = 0
        columns = (batch["calls"][name] for name in ("launches", "start_ns", "duration_ns"))
        for count, start, duration in zip(*columns, strict=True):
            launches = zip(batch["start_ns"][row : row + count], batch["end_ns"][row : row + count], strict=True)
            times = [start, *(time for launch in launches for time in launch), start + duration]
            assert times == sorted(times)
            row += count


@temperatures
@pytest.mark.parametrize("name", programs([UNSEEN]))
def test_cpp_wrapper_is_said_to_be_unseen(corpus: Corpus, name: str, temperature: str) -> None:
    trace = corpus.recorded(temperature)[name].trace
    skipped = trace.of("skipped")
    assert len(skipped) == 1
    assert "C++" in skipped[0]["why"]
    graphs = trace.of("graph")
    assert [graph["sites"] for graph in graphs] == [[]]
    assert graphs[0]["not_recorded"]
    assert list(trace.launches()) == []


@pytest.mark.parametrize("name", programs([name for name in SEEN if name not in UNCACHED]))
def test_warm_run_knows_what_the_cold_run_knew(corpus: Corpus, name: str) -> None:
    """Sites, arguments and scheduler nodes are the same when the compile cache answers."""
    cold = {graph["wrapper_key"]: graph for graph in corpus.cold[name].trace.of("graph")}
    for graph in corpus.warm[name].trace.of("graph"):
        assert graph["cached"]
        before = cold[graph["wrapper_key"]]
        assert graph["sites"] == before["sites"]
        assert graph["memory"] == before["memory"]


@temperatures
@pytest.mark.parametrize("name", programs(SEEN))
def test_every_kernel_names_its_scheduler_nodes(corpus: Corpus, name: str, temperature: str) -> None:
    for graph in corpus.recorded(temperature)[name].trace.of("graph"):
        kernels = [site for site in graph["sites"] if site["kind"] not in ("subgraph", "copy")]
        assert [site["kernel"] for site in kernels if not site["snodes"]] == []
