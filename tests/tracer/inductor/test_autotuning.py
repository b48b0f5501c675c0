"""What the autotuner measured is told for the node that uses it, with stand-ins for Inductor's nodes and choices."""

from __future__ import annotations

import math
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.tracer.inductor import autotuning
from stepscope.tracer.inductor.autotuning import MOST_CHOICES, AutotuneTap
from stepscope.tracer.schema.tuning import Autotuned


class Named:
    """A buffer, an operation or a choice."""

    def __init__(self, name: str, **attributes: Any) -> None:
        self.name = name
        vars(self).update(attributes)

    def get_name(self) -> str:
        return self.name

    def get_size(self) -> list[Any]:
        return list(getattr(self, "size", [4, 8]))

    def get_stride(self) -> list[int]:
        return [8, 1]

    def get_dtype(self) -> str:
        return "torch.float32"

    def get_operation_name(self) -> str:
        return self.name

    def info_dict(self) -> dict[str, str]:
        return {"kernel_call_name": f"extern_kernels.{self.name}"}


class Graph:
    sizevars = SimpleNamespace(optimization_hint=lambda size, fallback: 16 if size == "s0" else size)


A, B = Named("arg0_1"), Named("arg1_1")
MM, OTHER = Named("mm"), Named("other_mm")
RENDERS = [object() for _ in range(MOST_CHOICES + 50)]
TEMPLATE = Named("triton_mm_7", make_kernel_render=RENDERS[7], description="BLOCK_M=64")


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> AutotuneTap:
    def fail(what: str, error: BaseException) -> None:
        raise error

    return AutotuneTap(fail)


def told(tap: AutotuneTap, graph: Graph, times: dict[Any, float], nodes: list[Any], inputs: Any = (A, B)) -> Any:
    from torch._inductor.virtualized import V

    with V.set_graph_handler(graph):  # type: ignore[arg-type]
        tap._feedback(times, "mm", inputs, [*times], dict)
    return tap.take(graph, nodes)


def test_the_choice_of_a_template_is_the_one_that_its_node_renders(tap: AutotuneTap) -> None:
    slower = Named("triton_mm_8", make_kernel_render=RENDERS[8], description="BLOCK_M=128")
    node = Named("op3", inputs=[A, B], make_kernel_render=RENDERS[8])
    extern = Named("op4", inputs=[A, B])
    (record,) = told(tap, Graph(), {MM: 0.5, slower: 0.25, TEMPLATE: 0.125}, [extern, node])
    assert (record.snode, record.chosen, record.measured, record.dynamic) == ("op3", 1, None, False)
    assert [(one.name, one.duration_ns) for one in record.choices] == [
        ("triton_mm_7", 125_000), ("triton_mm_8", 250_000), ("mm", 500_000),
    ]  # fmt: skip
    assert [(one.dtype, one.size) for one in record.inputs] == [("float32", [4, 8])] * 2


def test_an_operator_is_found_by_its_inputs(tap: AutotuneTap) -> None:
    node = Named("op0", inputs=[A, B, Named("arg2_1")], python_kernel_name="extern_kernels.other_mm")
    times = {MM: 0.5, OTHER: 0.25, TEMPLATE: math.inf}
    (record,) = told(tap, Graph(), times, [Named("op1", inputs=[B, A]), node])
    assert (record.snode, record.choices[record.chosen].name) == ("op0", "other_mm")
    assert record.choices[-1].duration_ns is None, "it failed"


@pytest.mark.parametrize("nodes", [[], [Named("op0", inputs=[A, B]), Named("op1", inputs=[A, B])]])
def test_what_is_not_certain_is_left_out(tap: AutotuneTap, nodes: list[Any]) -> None:
    assert told(tap, Graph(), {MM: 0.5, TEMPLATE: 0.25}, nodes) == []


def test_each_graph_has_its_own(tap: AutotuneTap) -> None:
    graph, nodes = Graph(), [Named("op0", inputs=[A, B])]
    told(tap, graph, {MM: 0.5}, [])
    assert tap.take(Graph(), nodes) == tap.take(graph, nodes) == []


def test_symbolic_sizes_are_those_that_were_measured(tap: AutotuneTap) -> None:
    rows = Named("arg0_1", size=["s0", 8])
    (record,) = told(tap, Graph(), {MM: 0.5}, [Named("op0", inputs=[rows, B])], (rows, B))
    assert record.dynamic
    assert record.inputs[0].size == [16, 8]


def test_of_many_choices_the_fastest_and_the_chosen_one_are_kept(tap: AutotuneTap) -> None:
    times = {Named(f"triton_mm_{at}", make_kernel_render=each): 1.0 + at for at, each in enumerate(RENDERS)}
    node = Named("op0", inputs=[A, B], make_kernel_render=RENDERS[-1])
    (record,) = told(tap, Graph(), times, [node])
    assert len(record.choices) == MOST_CHOICES + 1
    assert record.choices[record.chosen].name == f"triton_mm_{MOST_CHOICES + 49}"


def test_times_of_this_process_are_told_from_those_of_a_cache(tap: AutotuneTap) -> None:
    from torch._inductor import select_algorithm

    cache: Any = select_algorithm.AlgorithmSelectorCache
    with ExitStack() as undo, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "benchmark", lambda owner, choices: dict.fromkeys(choices, 0.5))
        patch.setattr(cache, "__call__", lambda owner, choices: owner.benchmark(choices))
        patch.setattr(select_algorithm, "_ALGORITHM_SELECTOR_CACHE", None)
        tap.attach(undo)
        assert select_algorithm._ALGORITHM_SELECTOR_CACHE is None  # to make one is an event in torch's own log
        selector = cache()
        savers = selector.feedback_saver_fns
        for _ in range(2):
            selector([MM])
        assert savers == [tap._feedback]
        nodes = [Named("op0", inputs=[A, B])]
        found = [told(tap, Graph(), {MM: time}, nodes)[0].measured for time in (0.5, 0.25)]
        undo.close()
        assert savers == []
    assert found == [True, False]


def test_a_torch_without_the_autotuner_records_nothing(monkeypatch: pytest.MonkeyPatch, tap: AutotuneTap) -> None:
    from torch._inductor import select_algorithm

    monkeypatch.delattr(select_algorithm, "AlgorithmSelectorCache")
    with ExitStack() as undo:
        tap.attach(undo)
    assert tap.take(Graph(), []) == []


def test_what_was_kept_is_of_an_earlier_process() -> None:
    kept = {
        "graph": -1, "snode": "op0", "operation": "mm", "dynamic": False, "measured": True, "chosen": 0,
        "inputs": [{"name": "arg0_1", "dtype": "float32", "size": [4], "stride": [1]}],
        "choices": [{"name": "mm", "description": "", "duration_ns": 5}],
    }  # fmt: skip
    record = autotuning.from_payload(kept)
    assert isinstance(record, Autotuned)
    assert record.measured is False
    assert record.choices[0].duration_ns == 5
