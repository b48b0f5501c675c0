"""Tensors outside of compiled code of which more and more stay alive are found, with what holds them."""

from __future__ import annotations

import functools
import gc
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepscope
from stepscope.tracer.runtime.lifetimes import kept_tensors
from stepscope.tracer.runtime.lifetimes.kept_tensors import LOOKS, KeptTensorsWatch
from stepscope.tracer.schema.memory import KeptTensors
from tests.tracer.logs import read
from tests.tracer.runtime.lifetimes.kept_watches import BYTES, SIZE, STEPS, Sink, watched

kept: Any = None


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Looks and searches may take as long as they need: the heap of a test process is large."""
    global kept
    monkeypatch.setattr(kept_tensors, "MOST_SHARE", 1e9)
    monkeypatch.setattr(kept_tensors, "SECONDS", 60)
    kept = None
    yield
    kept = None


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.strip() == text]
    return found


@pytest.mark.slow
def test_a_list_of_a_module() -> None:
    global kept
    kept = []
    (found,) = watched(lambda n: kept.append(torch.rand(SIZE)))
    assert found.holder == f"list of 18 in kept of {__name__}"
    assert (found.step, found.tensors, found.with_graph) == ([6, 12, 18], [6, 12, 18], [0, 0, 0])
    assert found.storage_bytes == [BYTES * n for n in found.tensors]
    assert (found.dtype, found.device, found.hits, found.most_elements) == ("float32", "cpu", None, None)
    assert found.line is None, "several statements of this file add to it"


class Probe:
    """A hook that keeps the inputs of a module."""

    def __init__(self) -> None:
        self.seen: dict[str, list[Tensor]] = {"net": []}

    def __call__(self, module: nn.Module, inputs: tuple[Tensor]) -> None:
        self.seen["net"].append(inputs[0])


@pytest.mark.slow
def test_a_hook_that_keeps_inputs() -> None:
    net, probe = nn.Linear(SIZE[1], 1), Probe()
    net.register_forward_pre_hook(probe)
    (found,) = watched(lambda n: net(torch.rand(SIZE)))
    assert found.holder == "list of 18 in attribute seen['net'] of Probe (dict of 1)"
    assert (found.file, found.line) == (__file__, line_of('self.seen["net"].append(inputs[0])'))


class LateNorms:
    """A hook whose functions compute norms later, and keep the results of the module until then."""

    def __init__(self) -> None:
        self.later: list[tuple[int, Callable[[], Tensor]]] = []

    def __call__(self, module: nn.Module, inputs: tuple[Tensor], result: Tensor) -> None:
        self.later.append((len(self.later), lambda: result.norm()))


@pytest.mark.slow
def test_functions_whose_closures_keep_results() -> None:
    net, late = nn.Linear(5, SIZE[1]), LateNorms()
    net.register_forward_hook(late)
    (found,) = watched(lambda n: net(torch.rand(SIZE[0], 5)))
    assert found.holder == "list of 18 in attribute later of LateNorms"
    assert found.file == __file__
    assert found.line == line_of("self.later.append((len(self.later), lambda: result.norm()))")
    assert found.with_graph == [6, 12, 18]


@pytest.mark.slow
def test_tuples_in_a_local_list() -> None:
    replay: list[tuple[Tensor, int]] = []

    def step(number: int) -> None:
        replay.append((torch.rand(SIZE), number))

    (found,) = watched(step)
    assert found.holder == f"list of 18 in closure variable replay of {step.__qualname__}()"
    assert found.line == line_of("replay.append((torch.rand(SIZE), number))")


def test_a_cache_whose_keys_are_lost() -> None:
    @functools.cache
    def mask_of(lengths: Tensor) -> Tensor:
        return lengths[:, None].expand(SIZE) * torch.ones(SIZE)

    (found,) = watched(lambda n: mask_of(torch.rand(SIZE[0])))
    assert found.holder == f"the functools.lru_cache of {mask_of.__wrapped__.__qualname__}()"
    assert (found.hits, found.lost_keys, found.most_elements) == (0, 18, None)
    assert (found.file, found.line) == (__file__, line_of("def mask_of(lengths: Tensor) -> Tensor:") - 1)


@pytest.mark.slow
def test_a_cache_whose_keys_may_come_again() -> None:
    items = [torch.rand(SIZE[0]) for _ in range(STEPS)]
    load = functools.lru_cache(maxsize=64)(lambda one: one[:, None].expand(SIZE) * torch.ones(SIZE))
    (found,) = watched(lambda n: load(items[n]))
    assert (found.hits, found.lost_keys, found.most_elements) == (0, 0, 64)


def test_a_cache_that_is_hit_fills_up() -> None:
    load = functools.cache(lambda one: torch.rand(SIZE))
    assert watched(lambda n: load(n % 7)) == []


@pytest.mark.slow
def test_results_of_autograd() -> None:
    weight, losses = torch.ones(SIZE, requires_grad=True), []
    (found,) = watched(lambda n: losses.append(weight * n))
    assert found.with_graph == [6, 12, 18]
    assert found.tensors == [7, 13, 19], "the weight has the same form"


@pytest.mark.slow
def test_a_sum_whose_graph_grows() -> None:
    global kept
    kept = torch.zeros((), requires_grad=True)

    def step(number: int) -> None:
        global kept
        kept = kept + (torch.rand(SIZE) * kept).sum()

    (found,) = watched(step)
    assert found.holder == f"the autograd graph of a tensor in kept of {__name__}"


@pytest.mark.slow
def test_a_deque_tells_its_length() -> None:
    window = deque[Tensor](maxlen=100)
    (found,) = watched(lambda n: window.append(torch.rand(SIZE)))
    assert found.most_elements == 100


@pytest.mark.slow
def test_what_stops_or_is_small_is_healthy() -> None:
    last, first, small = deque[Tensor](maxlen=3), list[Tensor](), list[Tensor]()

    def step(number: int) -> None:
        last.append(torch.rand(SIZE))
        small.append(torch.rand(8, 9))
        if number < 14:
            first.append(torch.rand(SIZE))

    sink = Sink()
    assert watched(step, sink=sink) == []
    assert sink.written == []


def test_views_of_one_memory_count_once() -> None:
    whole, views = torch.rand(STEPS, *SIZE), []
    assert watched(lambda n: views.append(whole[n])) == []


@pytest.mark.slow
def test_cycles_that_a_collection_frees_have_no_holder() -> None:
    def step(number: int) -> None:
        cycle: list[Any] = [torch.rand(SIZE)]
        cycle.append(cycle)

    gc.collect()
    gc.freeze()  # so that no collection runs by chance
    gc.unfreeze()
    assert watched(step) == []


class Clamp(torch.autograd.Function):
    """A function whose context refers to its own result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result = x.clamp(-1, 1)
        ctx.clamped = result
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * (ctx.clamped.abs() < 1)


@pytest.mark.slow
@pytest.mark.parametrize("collects", [True, False])
def test_results_in_a_cycle_with_their_functions(collects: bool) -> None:
    def step(number: int) -> None:
        Clamp.apply(weight * 2).sum().backward()  # type: ignore[no-untyped-call]

    weight = torch.rand(SIZE, requires_grad=True)
    gc.collect()
    threshold = gc.get_threshold()
    gc.set_threshold(1 << 30)  # so that no collection runs by chance
    if not collects:
        gc.disable()
    try:
        (found,) = watched(step)
        assert gc.isenabled() is collects
    finally:
        gc.enable()
        gc.set_threshold(*threshold)
    assert found.holder == "a reference cycle through ctx.clamped of Clamp"
    assert (found.file, found.line) == (__file__, line_of("ctx.clamped = result"))
    assert found.cycle_is_collected is collects
    gc.collect()


@pytest.mark.slow
def test_a_list_of_results_whose_functions_save_them_has_no_cycle() -> None:
    class Saves(Clamp):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            result = x.clamp(-1, 1)
            ctx.save_for_backward(result)
            return result

    weight, results = torch.rand(SIZE, requires_grad=True), list[Tensor]()
    (found,) = watched(lambda n: results.append(Saves.apply(weight)))  # type: ignore[no-untyped-call]
    assert (found.holder.split(" in ")[0], found.cycle_is_collected) == ("list of 18", None)


@pytest.mark.slow
def test_what_a_tracker_follows_is_left_out() -> None:
    results: list[Tensor] = []

    def live() -> list[Any]:
        owner = SimpleNamespace(place=None)
        return [SimpleNamespace(is_given=False, reference=one.untyped_storage, owner=owner) for one in results]

    sink = Sink()
    sink.lifetimes.storages = live
    assert watched(lambda n: results.append(torch.rand(SIZE)), sink=sink) == []


@pytest.mark.slow
def test_nothing_is_kept_alive() -> None:
    results, alive = [torch.rand(SIZE)], weakref.WeakSet[Tensor]()

    def step(number: int) -> None:
        results.append(torch.rand(SIZE))
        alive.add(results[-1])

    sink = Sink()
    watch = KeptTensorsWatch(sink)
    for number in range(STEPS):
        watch.at_step(number)
        step(number)
    assert sink.written
    assert len(alive) == STEPS
    results.clear()
    assert len(alive) == 0


@pytest.mark.slow
def test_no_search_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tensors, "SECONDS", -1.0)
    losses: list[Tensor] = []
    assert watched(lambda n: losses.append(torch.rand(SIZE))) == []


@pytest.mark.slow
def test_what_grew_early_is_looked_at_once_more() -> None:
    steps, results = LOOKS[1][-1] + 1, list[Tensor]()
    found = watched(lambda n: results.append(torch.rand(SIZE)), steps)
    assert [one.step for one in found] == [[*LOOKS[0]], [*LOOKS[1]]]
    results.clear()

    def step(number: int) -> None:
        results.append(torch.rand(SIZE))
        if number > 20:
            results.clear()

    found = watched(step, steps)
    assert [one.step for one in found] == [[*LOOKS[0]]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_inputs_of_a_graph(tmp_path: Path) -> None:
    torch._dynamo.reset()
    global kept
    kept = []  # a function with assertions has code that uses its variables
    double = torch.compile(lambda x: x * 2)
    with stepscope.trace(tmp_path) as recorder:
        for _ in range(STEPS):
            kept += [torch.rand(SIZE)]
            double(kept[-1])
    assert recorder.path is not None
    (found,) = read(recorder.path).get(KeptTensors.KIND, [])
    assert [then - one for one, then in pairwise(found["tensors"])] == [6, 6]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_recording_that_ends_before_the_last_look(tmp_path: Path) -> None:
    torch._dynamo.reset()
    global kept
    kept = []
    double = torch.compile(lambda x: x * 2)
    with stepscope.trace(tmp_path) as recorder:
        for _ in range(16):
            kept += [torch.rand(SIZE)]
            double(kept[-1])
    assert recorder.path is not None
    (found,) = read(recorder.path).get(KeptTensors.KIND, [])
    assert found["step"] == [6, 12, 15]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_results_of_a_graph_belong_to_growth(tmp_path: Path) -> None:
    torch._dynamo.reset()
    results: list[Tensor] = []
    double = torch.compile(lambda x: x * 2)
    with stepscope.trace(tmp_path) as recorder:
        for _ in range(STEPS):
            results.append(double(torch.rand(SIZE)))
    assert recorder.path is not None
    written = read(recorder.path)
    assert KeptTensors.KIND not in written
    assert len(written["growth"][-1]["call"]) >= STEPS - 1


@pytest.mark.slow
def test_many_other_tensors_of_the_same_form() -> None:
    """As the parameters of layers, which the list of an optimizer has as well."""
    global kept
    kept = []
    layers = [torch.rand(SIZE) for _ in range(60)]
    (found,) = watched(lambda n: kept.append(torch.rand(SIZE)))
    assert (found.tensors, len(layers)) == ([66, 72, 78], 60)
    assert found.holder == f"list of 18 in kept of {__name__}"


@pytest.mark.slow
def test_a_form_of_the_last_look_alone() -> None:
    global kept
    kept = []
    last = list[Tensor]()

    def step(number: int) -> None:
        kept.append(torch.rand(SIZE))
        if number == STEPS - 2:
            last.append(torch.rand(SIZE[0], SIZE[1] + 2))

    (found,) = watched(step)
    assert found.tensors == [6, 12, 18]
