"""Births and deaths of storages in recorded programs, against sums made by hand and against torch's profiler."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import stepscope
from stepscope.tracer.runtime.lifetimes import call_layouts
from stepscope.tracer.runtime.lifetimes import trackers as lifetimes_core
from stepscope.tracer.runtime.lifetimes.holders import find_holders
from stepscope.tracer.schema.gaps import Failure
from stepscope.tracer.schema.memory import LifetimeLayout, LifetimeMismatch, Lifetimes
from tests.tracer.logs import read

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of itself while it compiles

kept: list[Any] = []


def _no_compiler() -> None:
    raise RuntimeError("no compiler")


@pytest.fixture(autouse=True, params=["compiled", "python"])
def afresh(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each test with the compiled form of what follows storages, and without."""
    if request.param == "python":
        monkeypatch.setattr(lifetimes_core, "load", _no_compiler)
    else:
        lifetimes_core.load()
    monkeypatch.setattr(call_layouts, "find_holders", partial(find_holders, seconds=60))  # other work on the machine
    torch._dynamo.reset()
    yield
    kept.clear()


Records = dict[str, list[dict[str, Any]]]


def record(folder: Path, run: Callable[[], object], **settings: Any) -> Records:
    with stepscope.trace(folder, **settings) as recorder:
        run()
    assert recorder.path is not None
    records = read(recorder.path)
    assert not records[Failure.KIND]
    return records


def live_bytes(layout: dict[str, Any], launches: int) -> list[int]:
    """At each launch, of what the call made itself."""
    made = [n for n, kind in enumerate(layout["kind"]) if kind != "input"]
    dead = dict(zip(layout["dead"], layout["dead_at"], strict=True))
    return [
        sum(
            layout["storage_bytes"][n]
            for n in made
            if layout["born"][n] <= position and dead.get(n, launches) > position
        )
        for position in range(launches)
    ]


def deaths(layout: dict[str, Any]) -> dict[str, int]:
    return {layout["name"][n]: at for n, at in zip(layout["dead"], layout["dead_at"], strict=True)}


def test_a_chain_of_products_by_hand(tmp_path: Path) -> None:
    def chain(a: torch.Tensor) -> torch.Tensor:
        b = a @ a
        c = b @ b
        d = c @ b
        return d @ d

    records = record(tmp_path, lambda: torch.compile(chain)(torch.ones(16, 16)))
    (layout,) = records[LifetimeLayout.KIND]
    size = 16 * 16 * 4
    # b; b, c; b, c, d; d, and the result in the memory of b or c, which was free
    assert live_bytes(layout, 4) == [size, 2 * size, 3 * size, 2 * size]
    assert layout["kind"].count("input") == 1
    assert layout["storage_bytes"][0] == size
    assert not records[LifetimeMismatch.KIND]


def test_multi_output_zero_size_and_in_place(tmp_path: Path) -> None:
    def mixed(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, places = a.sort(0)
        empty = torch.zeros(0) + 1
        return values.cos() @ values, places, empty

    records = record(tmp_path, lambda: torch.compile(mixed)(torch.rand(8, 8)))
    (layout,) = records[LifetimeLayout.KIND]
    sizes = dict(zip(layout["name"], layout["storage_bytes"], strict=True))
    assert 0 in sizes.values()
    assert 8 * 8 * 8 in sizes.values()  # int64 places of the sort
    assert not records[LifetimeMismatch.KIND]


def block() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32))


def test_calls_that_run_alike_share_a_layout(tmp_path: Path) -> None:
    model = block()
    compiled = torch.compile(model)

    def train() -> None:
        for _ in range(6):
            model.zero_grad()
            compiled(torch.ones(4, 32)).sum().backward()

    records = record(tmp_path, train)
    followed = [layout for batch in records[Lifetimes.KIND] for layout in batch["layout"]]
    assert len(followed) == 12
    assert len(set(followed[4:])) == 2
    assert not records[LifetimeMismatch.KIND]


def test_saved_activations_are_the_forward_s_and_die_in_the_backward(tmp_path: Path) -> None:
    model = block()
    records = record(tmp_path, lambda: torch.compile(model)(torch.ones(4, 32)).sum().backward())
    forward, backward = records[LifetimeLayout.KIND]
    met = [n for n, back in enumerate(backward["calls_back"]) if back == 1]
    saved = {backward["met_as"][n] for n in met if forward["kind"][backward["met_as"][n]] != "input"}
    assert saved
    assert {backward["name"][n] for n in met if backward["met_as"][n] in saved} & set(deaths(backward))


def allocated(events: Any) -> int:
    return sum(event.nbytes() for event in events if event.name() == "[memory]" and event.nbytes() > 0)


def test_bytes_are_those_that_the_profiler_sees(tmp_path: Path) -> None:
    model = block().requires_grad_(False)
    compiled, x = torch.compile(model), torch.ones(4, 32)
    compiled(x)
    with stepscope.trace(tmp_path, lifetimes_every=1) as recorder:
        compiled(x)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            result = compiled(x)
        del result
    assert recorder.path is not None
    batches = read(recorder.path)
    layouts = {layout["layout"]: layout for layout in batches[LifetimeLayout.KIND]}
    last = [number for batch in batches[Lifetimes.KIND] for number in batch["layout"]][-1]
    made = [
        size
        for kind, size in zip(layouts[last]["kind"], layouts[last]["storage_bytes"], strict=True)
        if kind != "input"
    ]
    assert made
    assert sum(made) == allocated(profiler.profiler.kineto_results.events())


# What must be found.


@torch.library.custom_op("stepscope_tests::stash", mutates_args=())
def stash(x: torch.Tensor) -> torch.Tensor:
    """Keeps what it is given."""
    kept.append(x)
    return x + 1


@stash.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def stashing(a: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = (stash(a.sin()) @ a).cos() @ a
    return result


def no_reuse() -> Any:
    return torch._inductor.config.patch(force_disable_caches=True, inplace_buffers=False, allow_buffer_reuse=False)


@pytest.mark.slow
def test_a_retained_reference_is_the_one_mismatch(tmp_path: Path) -> None:
    with no_reuse():
        records = record(tmp_path, lambda: torch.compile(stashing)(torch.ones(8, 8)))
    (found,) = records[LifetimeMismatch.KIND]
    assert found["kind"] == ["missing_death"]
    assert found["storage_bytes"] == [256]
    assert found["actual"] == [None]
    assert found["expected"][0] is not None
    assert any("list of 1 in kept" in words for words in found["holders"][0])


def test_an_early_free_is_the_one_mismatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    original: Any = PythonWrapperCodegen.generate

    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        code, *rest = original(self, *args, **kwargs)
        lines = code.value.splitlines()
        last_use = next(n for n, line in enumerate(lines) if "extern_kernels.mm(buf0, buf1" in line)
        lines[last_use] = lines[last_use].replace("buf0, buf1", "buf1, buf1")
        freed = next(n for n, line in enumerate(lines) if line.strip() == "del buf0")
        lines.insert(last_use - 3, lines.pop(freed))  # above the comments of the launch
        code.value = "\n".join(lines)
        return code, *rest

    def chain(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        b = a @ a
        c = b @ a
        return b @ c, a + 1

    monkeypatch.setattr(PythonWrapperCodegen, "generate", generate)
    with no_reuse():
        records = record(tmp_path, lambda: torch.compile(chain)(torch.ones(8, 8)))
    (found,) = records[LifetimeMismatch.KIND]
    assert found["kind"] == ["unexpected_death"]
    assert found["buffer"] == ["buf0"]
    assert (found["expected"], found["actual"], found["expected_by"]) == ([3], [2], ["schedule"])


def test_a_wrong_schedule_is_the_one_mismatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import memory

    original = memory.compute_memory_timeline

    def compute(*args: Any) -> Any:
        infos, *rest = original(*args)
        for info in infos:
            if info.buffer.get_name() == "buf0":
                info.end_step -= 1
        return infos, *rest

    def chain(a: torch.Tensor) -> torch.Tensor:
        b = a @ a
        c = b @ a
        return (b @ c) @ a

    monkeypatch.setattr(memory, "compute_memory_timeline", compute)
    with no_reuse():
        records = record(tmp_path, lambda: torch.compile(chain)(torch.ones(8, 8)))
    (found,) = records[LifetimeMismatch.KIND]
    assert (found["kind"], found["buffer"], found["expected_by"]) == (["missing_death"], ["buf0"], ["schedule"])
    assert (found["expected"], found["actual"]) == ([2], [3])


def test_a_buffer_that_only_the_schedule_knows_and_one_that_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepscope.tracer.inductor.scheduler import scheduler_memory

    original = scheduler_memory.buffers

    def renamed(*args: Any) -> Any:
        found = original(*args)
        found.name[found.name.index("buf0")] = "buf99"
        return found

    def chain(a: torch.Tensor) -> torch.Tensor:
        return ((a @ a) @ a) @ a

    monkeypatch.setattr(scheduler_memory, "buffers", renamed)
    with no_reuse():
        records = record(tmp_path, lambda: torch.compile(chain)(torch.ones(8, 8)))
    (found,) = records[LifetimeMismatch.KIND]
    assert found["kind"] == ["missing_allocation", "unexpected_allocation"]
    assert found["buffer"] == ["buf99", "buf0"]
    assert found["storage_bytes"] == [256, 256]
    assert found["storage"] == [None, 1]


# What must not be found.


@pytest.mark.slow
def test_an_exception_in_between(tmp_path: Path) -> None:
    @torch.library.custom_op("stepscope_tests::fails_once", mutates_args=())
    def fails_once(x: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(1)
            raise ValueError("once")
        return x + 1

    fails_once.register_fake(lambda x: torch.empty_like(x))

    def run() -> None:
        compiled = torch.compile(lambda a: fails_once(a.sin()) @ a)
        with pytest.raises(ValueError, match="once"):
            compiled(torch.ones(8, 8))
        gc.collect()
        compiled(torch.ones(8, 8))

    assert not record(tmp_path, run)[LifetimeMismatch.KIND]


def test_threads_and_the_same_names(tmp_path: Path) -> None:
    compiled = torch.compile(lambda a: ((a @ a).sin() @ a).cos())

    def run() -> None:
        compiled(torch.ones(8, 8))
        threads = [threading.Thread(target=lambda: [compiled(torch.ones(8, 8)) for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    records = record(tmp_path, run, lifetimes_every=1)
    assert not records[LifetimeMismatch.KIND]
    assert sum(len(batch["call"]) for batch in records[Lifetimes.KIND]) == 81


def test_a_graph_inside_another_s_custom_operator(tmp_path: Path) -> None:
    inner = torch.compile(lambda x: (x @ x).sin())

    @torch.library.custom_op("stepscope_tests::nested", mutates_args=())
    def nested(x: torch.Tensor) -> torch.Tensor:
        return torch.clone(inner(x))

    nested.register_fake(lambda x: torch.empty_like(x))
    outer = torch.compile(lambda a: (nested(a.sin()) @ a).cos() @ a)
    records = record(tmp_path, lambda: [outer(torch.ones(8, 8)) for _ in range(3)])
    assert not records[LifetimeMismatch.KIND]
    assert sum(len(batch["call"]) for batch in records[Lifetimes.KIND]) == 6


def test_later_calls_are_followed_every_so_many_steps(tmp_path: Path) -> None:
    compiled = torch.compile(lambda a: a.sin() @ a)
    records = record(tmp_path, lambda: [compiled(torch.ones(8, 8)) for _ in range(40)], lifetimes_every=10)
    followed = [call for batch in records[Lifetimes.KIND] for call in batch["call"]]
    first = followed[0]
    assert [call - first for call in followed] == [0, 1, 2, 3, 4, 5, 6, 7, 10, 20, 30]


@pytest.mark.slow
def test_switched_off_and_on_again(tmp_path: Path) -> None:
    compiled = torch.compile(lambda a: a.sin() @ a)

    def run() -> None:
        for mode in ("log", "off", "log"):
            stepscope.configure(lifetimes=mode)
            compiled(torch.ones(8, 8))

    records = record(tmp_path, run)
    assert sum(len(batch["call"]) for batch in records[Lifetimes.KIND]) == 2
    numbers = [layout["layout"] for layout in records[LifetimeLayout.KIND]]
    assert len(set(numbers)) == len(numbers)


# Inputs that a backward graph may free: what the forward graph has saved for it.
