"""Launches and runs from what was printed, and the graph that they stand for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from stepscope.tracer.aoti import printed_launches
from stepscope.tracer.aoti.printed_graphs import assignment, continues, graph, key
from stepscope.tracer.aoti.printed_launches import LaunchPrints, LaunchReader, ModelRun, period
from stepscope.tracer.aoti.printer_output import Printed, PrintedLaunch, PrintedScalar, PrintedTensor, PrinterReader
from stepscope.tracer.schema.scalars import Assignment

TEXTS = Path(__file__).parent / "texts"
SITES = [
    ("aoti_torch_cpu_addmm_out", ("buf0", "arg4_1")), ("cpp_fused_relu_0", ("buf1",)),
    ("at::_ops::sort_stable::call", ("buf1",)), ("aoti_torch_cpu_mm_out", ("buf5", "buf3")),
    ("cpp_fused_sin_sum_1", ("buf5", "buf6", "buf7")),
    ("cpp_fused_add_mean_mul_slice_sum_2", ("buf12", "buf8", "buf10", "buf11")),
]  # fmt: skip
"""Of the model whose texts these are, as its generated code has them."""


def printed(name: str, times: int = 1) -> list[Printed]:
    reader = PrinterReader()
    return [*reader.feed((TEXTS / f"{name}.txt").read_bytes() * times), *reader.end()]


def tensor(moment: str, kernel: str, argument: str, mean: float = 0.5) -> PrintedTensor:
    return PrintedTensor(
        moment, kernel, argument, "float32", 128, mean, mean - 1, mean + 1, "cpu", [128], [1],  # type: ignore[arg-type]
    )  # fmt: skip


def number(moment: str, kernel: str, argument: str, value: int) -> PrintedScalar:
    return PrintedScalar(moment, kernel, argument, value)  # type: ignore[arg-type]


def line(moment: str, kernel: str) -> PrintedLaunch:
    return PrintedLaunch(moment, kernel)  # type: ignore[arg-type]


def runs(events: Iterable[Printed]) -> Iterator[ModelRun]:
    """All runs of a complete text."""
    reader = LaunchReader()
    for event in events:
        yield from reader.take(event)
    yield from reader.end()


def launched(run: ModelRun) -> list[tuple[str, tuple[str, ...]]]:
    return [(launch.kernel, launch.arguments) for launch in run.launches]


@pytest.mark.parametrize("name", ["values", "saved"])
def test_runs_of_a_model(name: str) -> None:
    found = list(runs(printed(name, 3)))
    assert [launched(run) for run in found] == [SITES] * 3
    assert all(launch.returned and launch.is_whole for run in found for launch in run.launches)


def test_names_alone_repeat_run_by_run() -> None:
    found = list(runs(printed("launches", 4)))
    assert [len(run.launches) for run in found] == [7] * 4  # the convolution is named here, and its values never are
    assert len(list(runs(printed("launches")))) == 1


def test_runs_without_inputs_are_handed_out_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed_launches, "MOST_HELD", 20)
    reader = LaunchReader()
    found = [run for event in printed("launches", 40) for run in reader.take(event)]
    assert len(found) > 30
    found += reader.end()
    assert [len(run.launches) for run in found] == [7] * 40
    assert len({key(run) for run in found}) == 1


@pytest.mark.parametrize(
    ("text", "length"), [("abcabcab", 3), ("abcabc", 3), ("abcab", 5), ("aaaa", 1), ("abcd", 4), ("aab" * 5, 3)]
)
def test_period(text: str, length: int) -> None:
    assert period(text) == length


def test_the_launch_that_did_not_return() -> None:
    names = [line("before", "a"), line("after", "a"), line("before", "b")]
    (run,) = runs(names)
    assert [(launch.kernel, launch.returned) for launch in run.launches] == [("a", True), ("b", False)]


def test_threads_have_lanes() -> None:
    mixed = [line("before", "a"), line("before", "b"), line("after", "b"), line("after", "a"), line("before", "c"),
             line("after", "c")]  # fmt: skip
    found = list(runs(mixed))
    assert [run.lane for run in found] == [0, 1]
    assert sorted(launch.kernel for run in found for launch in run.launches) == ["a", "b", "c"]
    assert all(launch.returned for run in found for launch in run.launches)


def test_models_of_other_levels_are_other_runs() -> None:
    found = list(runs([*printed("values"), *printed("launches", 2), *printed("saved", 2)]))
    assert [len(run.launches) for run in found] == [len(SITES), 7, 7, len(SITES), len(SITES)]


def test_an_argument_that_a_kernel_gets_twice() -> None:
    one = [tensor("before", "mm", name) for name in ("buf1", "buf0", "buf0")]
    events = [*one, *[tensor("after", "mm", name) for name in ("buf1", "buf0", "buf0")]]
    (run,) = runs(events)
    assert launched(run) == [("mm", ("buf1", "buf0", "buf0"))]
    assert run.launches[0].is_whole


def test_two_threads_in_one_kernel() -> None:
    once = [tensor("before", "k", "buf0"), tensor("after", "k", "buf0")]
    both = [tensor("before", "k", "buf0"), tensor("before", "k", "buf0"), tensor("after", "k", "buf0"),
            tensor("after", "k", "buf0")]  # fmt: skip
    found = list(runs([*once, *both]))
    assert sum(len(run.launches) for run in found) == 3
    assert all(launch.arguments == ("buf0",) for run in found for launch in run.launches)


def test_roles_and_versions_of_a_real_run() -> None:
    (run,) = runs(printed("values"))
    sites = {site.kernel: site for site in graph(0, run).sites}
    assert graph(0, run).dynamic is None, "what is printed does not show that sizes are constant"
    addmm = sites["aoti_torch_cpu_addmm_out"].arguments
    assert [(one.name, one.role, one.held) for one in addmm] == [
        ("buf0", "out", "uninitialised"), ("arg4_1", "in", "input"),
    ]  # fmt: skip
    (relu,) = sites["cpp_fused_relu_0"].arguments
    assert (relu.role, relu.held) == ("inout", "written")  # buf1 took over the memory of buf0
    assert relu.version is not None
    assert (relu.version.site, relu.version.argument, relu.version.moment) == (0, 0, "after")
    assert [one.role for one in sites["cpp_fused_sin_sum_1"].arguments] == ["in", "out", "out"]
    assert [one.role for one in sites["aoti_torch_cpu_mm_out"].arguments] == ["out", "in"]
    assert sites["at::_ops::sort_stable::call"].arguments[0].role == "in"
    assert sites["at::_ops::sort_stable::call"].kind == "fallback"


def test_a_run_that_was_cut_off_is_of_the_graph_it_began() -> None:
    whole = key(ModelRun(0, {}, [_launch("a", "x", "y"), _launch("b", "z")]))
    assert continues(whole, key(ModelRun(0, {}, [_launch("a", "x")])))
    assert continues(whole, key(ModelRun(0, {}, [_launch("a", "x", "y"), _launch("b")])))
    assert not continues(whole, key(ModelRun(0, {}, [_launch("a", "x"), _launch("b", "z")])))
    assert not continues(whole, key(ModelRun(0, {}, [_launch("c")])))


def _launch(kernel: str, *names: str) -> LaunchPrints:
    return LaunchPrints(kernel, before=[tensor("before", kernel, name) for name in names])


def test_numbers_are_scalars_of_the_launch_and_symbols_of_the_call() -> None:
    """As for Triton kernels: tensors and numbers in the order of the arguments, before the launch and after it."""

    def launch(kernel: str, **given: int) -> list[Printed]:
        found: list[Printed] = []
        for moment in ("before", "after"):
            found.append(tensor(moment, kernel, "buf0"))
            found += [number(moment, kernel, name, value) for name, value in given.items()]
        return found

    def call(size: int) -> list[Printed]:
        given = PrintedTensor("input", None, "arg0_1", "float32", 128, 0.5, 0.0, 1.0)
        numbers = {"s77": size, "triton_a_xnumel": 3 * size, "50L*s77": 50 * size, "8192L": 8192, "u0": 1 << 70}
        return [given, *launch("triton_a", **numbers), *launch("triton_b", s77=size, u0=7)]

    first, second = runs([*call(300), *call(77)])
    assert key(first) == key(second)
    known = graph(0, first)
    assert [(one.position, one.name, one.expression) for one in known.sites[0].scalars] == [
        (1, None, "s77"), (2, "xnumel", "triton_a_xnumel"), (3, None, "argument_3_of_site_0"), (4, None, "8192"),
        (5, None, "u0"),
    ]  # fmt: skip
    assert [one.name for one in known.sites[0].arguments] == ["buf0"]
    assert known.dynamic is True
    assert known.symbols == ["s77", "triton_a_xnumel", "argument_3_of_site_0", "u0"]
    assert assignment(known.symbols, first) == Assignment([0, 1, 2, 3, 3], [0, 0, 0, 0, 1], [300, 900, 15000, None, 7])
    assert assignment(known.symbols, second) == Assignment([0, 1, 2, 3, 3], [0, 0, 0, 0, 1], [77, 231, 3850, None, 7])


def test_a_number_that_stands_before_the_tensors() -> None:
    (run,) = runs([number("before", "k", "s0", 5), tensor("before", "k", "buf0"), tensor("after", "k", "buf0")])
    assert [(position, one.argument) for position, one in run.launches[0].scalars] == [(0, "s0")]
    assert launched(run) == [("k", ("buf0",))]


@pytest.mark.parametrize(
    ("kernel", "before", "held"),
    [("cpp_fused_sin_0", math.nan, None), ("cpp_fused_sin_0", 0.5, "uninitialised"),
     ("aoti_torch_cpu_mm_out", math.nan, "uninitialised")],
)  # fmt: skip
def test_memory_that_holds_nan_may_be_that_of_a_buffer_that_was_not_printed(
    kernel: str, before: float, held: str | None
) -> None:
    (run,) = runs([tensor("before", kernel, "buf3", before), tensor("after", kernel, "buf3", math.nan)])
    (argument,) = graph(0, run).sites[0].arguments
    assert argument.held == held
