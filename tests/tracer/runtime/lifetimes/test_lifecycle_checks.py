"""Checks of memory steps, each beside what torch's own tracker (torch/_inductor/runtime/debug_utils.py) says."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._inductor.runtime import debug_utils

import stepscope
from stepscope.tracer import check_memory_step, track_tensor, tracked_empty_strided
from stepscope.tracer.runtime.lifetimes import holders

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of itself while it compiles

Step = tuple[list[str], list[str], bool]


def new(name: str, size: int = 4) -> torch.Tensor:
    return torch.empty(size)


class Seed(debug_utils.BufferMemoryTracker):
    """torch's tracker, which says what it finds."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def log_or_raise(self, msg: str) -> None:
        self.said.append(msg)


@pytest.fixture
def seed() -> Seed:
    return Seed()


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Mismatches raise, and a search for holders may take as long as a busy machine needs."""
    monkeypatch.setattr(holders, "monotonic", lambda: 0.0)
    torch._dynamo.reset()
    with inductor_config.patch({"test_configs.track_memory_lifecycle": "assert", "force_disable_caches": True}):
        yield


def mismatch(function: Callable[[], object]) -> str:
    with pytest.raises(stepscope.LifetimeError) as caught:
        function()
    return str(caught.value)


# What is right.


def test_births_and_deaths_as_told() -> None:
    buf0 = tracked_empty_strided((4, 4), (4, 1), dtype=torch.float32, device="cpu", name="buf0")
    assert buf0.shape == (4, 4)
    check_memory_step(allocated=["buf0"], freed=[])
    buf1 = tracked_empty_strided((4,), (1,), dtype=torch.float32, device="cpu", name="buf1")
    del buf0
    check_memory_step(allocated=["buf1"], freed=["buf0"])
    check_memory_step(allocated=[], freed=["buf1"], is_final_step=True)
    assert buf1.shape == (4,)


# What is wrong: each kind of mismatch, exactly.


def test_a_retained_reference() -> None:
    keep: list[Any] = []

    def run() -> None:
        buf0 = new("buf0")
        track_tensor(buf0, "buf0")
        keep.append(buf0)
        check_memory_step(allocated=["buf0"], freed=[])
        del buf0
        check_memory_step(allocated=[], freed=["buf0"])

    text = mismatch(run)
    assert "buf0 (16 bytes) should have been freed and is alive" in text
    assert "list of 1" in text


def test_an_early_free() -> None:
    def run() -> None:
        buf0 = new("buf0")
        track_tensor(buf0, "buf0")
        del buf0
        check_memory_step(allocated=["buf0"], freed=[])
        check_memory_step(allocated=[], freed=["buf0"], is_final_step=True)

    assert "buf0 (16 bytes) was freed and should be alive" in mismatch(run)


def test_a_wrong_schedule() -> None:
    def run() -> None:
        check_memory_step(allocated=["buf77"], freed=[])

    def too_many() -> None:
        buf5 = new("buf5")
        track_tensor(buf5, "buf5")
        check_memory_step(allocated=[], freed=[])
        del buf5

    def too_early() -> torch.Tensor:
        buf0 = new("buf0")
        track_tensor(buf0, "buf0")
        check_memory_step(allocated=["buf0"], freed=["buf0"])
        return buf0

    assert mismatch(run).endswith("buf77 should have been allocated and was not")
    assert "buf5 (16 bytes) was allocated and should not have been" in mismatch(too_many)
    assert "buf0 (16 bytes) should have been freed and is alive" in mismatch(too_early)


# M1


def test_reuse_is_no_mismatch(seed: Seed) -> None:
    buf0 = new("buf0")
    seed.set_tensor("buf0", buf0)
    track_tensor(buf0, "buf0")
    seed.check_step_delta(["buf0"], [], False)
    check_memory_step(allocated=["buf0"], freed=[])
    buf1 = buf0; del buf0  # reuse  # fmt: skip  # noqa: E702
    seed.check_step_delta(["buf1"], ["buf0"], False)
    check_memory_step(allocated=["buf1"], freed=["buf0"])
    assert len(seed.said) == 2
    del buf1
    check_memory_step(allocated=[], freed=["buf1"])
    check_memory_step(allocated=[], freed=[], is_final_step=True)


def test_reuse_in_a_later_step_than_the_death() -> None:
    buf0 = new("buf0")
    track_tensor(buf0, "buf0")
    check_memory_step(allocated=["buf0"], freed=[])
    check_memory_step(allocated=[], freed=["buf0"])
    buf1 = torch.as_strided(buf0, (2, 2), (2, 1)); del buf0  # fmt: skip  # noqa: E702
    check_memory_step(allocated=["buf1"], freed=[])
    del buf1
    check_memory_step(allocated=[], freed=["buf1"], is_final_step=True)


def test_what_reuses_a_buffer_may_not_die_early() -> None:
    def run() -> None:
        buf0 = new("buf0")
        track_tensor(buf0, "buf0")
        check_memory_step(allocated=["buf0"], freed=[])
        buf1 = buf0; del buf0  # fmt: skip  # noqa: E702
        del buf1
        check_memory_step(allocated=["buf1"], freed=["buf0"])
        check_memory_step(allocated=[], freed=["buf1"])

    assert "buf1 (16 bytes) was freed and should be alive" in mismatch(run)


# M2


def test_items_of_what_an_operator_returned(seed: Seed) -> None:
    seed.check_step_delta(["buf1"], [], False)
    buf1 = torch.ones(4).sort()
    check_memory_step(allocated=["buf1"], freed=[])
    buf2 = buf1[0]
    del buf1
    seed.check_step_delta(["buf2"], ["buf1"], False)
    check_memory_step(allocated=["buf2"], freed=["buf1"])
    assert len(seed.said) == 3
    check_memory_step(allocated=[], freed=["buf2"], is_final_step=True)
    del buf2


# M3


def test_inputs_that_may_be_freed(seed: Seed) -> None:
    def call(args: list[Any]) -> None:
        amax, _view = args
        args.clear()
        del amax
        check_memory_step(allocated=["amax", "_view"], freed=["amax"])
        check_memory_step(allocated=[], freed=["_view"], is_final_step=True)

    call([torch.ones(4), torch.ones(4)])
    seed.check_step_delta(["amax", "view"], ["amax"], False)
    assert len(seed.said) == 2


# M4


def test_buffers_of_no_bytes(seed: Seed) -> None:
    buf0 = torch.empty(0)
    seed.set_tensor("buf0", buf0)
    track_tensor(buf0, "buf0")
    seed.check_step_delta([], [], False)
    check_memory_step(allocated=[], freed=[])
    assert seed.said == ["Unexpected allocated tensors: OrderedSet(['buf0'])"]
    del buf0
    check_memory_step(allocated=[], freed=[], is_final_step=True)


# M5


def test_other_threads() -> None:
    failed: list[BaseException] = []

    def work(check: Callable[..., None]) -> None:
        try:
            check(allocated=[], freed=[], is_final_step=True)
        except Exception as error:
            failed.append(error)

    for check in (debug_utils.check_memory_step, check_memory_step):
        thread = threading.Thread(target=work, args=(check,))
        thread.start()
        thread.join()
    assert [type(error) for error in failed] == [AttributeError]  # torch's only


# M7


def test_an_exception_leaves_nothing_to_the_next_run(seed: Seed) -> None:
    keep = []

    def run(fail: bool) -> None:
        if fail:
            keep.append(new("bufX"))
            track_tensor(keep[0], "bufX")
            raise ValueError("planted")
        buf0 = new("buf0")
        track_tensor(buf0, "buf0")
        check_memory_step(allocated=["buf0"], freed=[])
        del buf0
        check_memory_step(allocated=[], freed=["buf0"], is_final_step=True)

    with pytest.raises(ValueError, match="planted"):
        run(fail=True)
    run(fail=False)
    seed.set_tensor("bufX", keep[0])
    seed.check_step_delta([], [], False)  # the next run's first step
    assert seed.said == ["Unexpected allocated tensors: OrderedSet(['bufX'])"]


# M8


def test_a_name_that_is_given_again(seed: Seed) -> None:
    first, second = new("b"), new("b")
    for tensor in (first, second):
        seed.set_tensor("b", tensor)
        track_tensor(tensor, "b")
    seed.advance_step()
    check_memory_step(allocated=["b"], freed=[])
    del first, tensor
    seed.check_step_delta([], [], False)
    check_memory_step(allocated=[], freed=[])
    assert seed.said == ["Unexpected tensor deaths: OrderedSet(['b'])"]
    del second
    check_memory_step(allocated=[], freed=["b"])


# M9


def test_tracking_a_storage_again_leaves_one_callback(seed: Seed) -> None:
    tensor = new("b")
    storage = tensor.untyped_storage()
    gc.collect()
    for _ in range(100):
        track_tensor(tensor, "b")
    assert weakref.getweakrefcount(storage) == 1
    for _ in range(100):
        seed.set_tensor("b", tensor)
    assert weakref.getweakrefcount(storage) > 100


# M10


def test_a_view_that_holds_the_storage(seed: Seed) -> None:
    a = new("a")
    view = a[:2]
    seed.set_tensor("a", a)
    track_tensor(a, "a")
    track_tensor(view, "view")
    check_memory_step(allocated=["a"], freed=[])
    del a
    check_memory_step(allocated=[], freed=["a"])
    seed.advance_step()
    del view
    check_memory_step(allocated=[], freed=["view"])
    seed.check_step_delta([], ["view"], False)
    assert "Unexpected tensor deaths: OrderedSet(['a'])" in seed.said


# M11


def test_outputs_and_missing_deaths_in_the_final_step(seed: Seed) -> None:
    def run(keep: list[Any]) -> torch.Tensor:
        buf2, buf3 = new("buf2"), new("buf3")
        track_tensor(buf2, "buf2")
        track_tensor(buf3, "buf3")
        keep.append(buf2)
        del buf2
        check_memory_step(allocated=["buf2", "buf3"], freed=["buf2", "buf3"], is_final_step=True)
        return buf3

    text = mismatch(lambda: run([]))
    assert "buf2 (16 bytes) should have been freed and is alive" in text
    assert "buf3" not in text
    kept = new("buf2")
    seed.set_tensor("buf2", kept)
    seed.check_step_delta(["buf2"], ["buf2"], True)
    assert seed.said == []  # torch misses it


# M12


def test_device_index_and_pinned_memory_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def empty_strided(*_: Any, **options: Any) -> torch.Tensor:
        asked.append(options)
        return torch.empty(2)

    monkeypatch.setattr(torch, "empty_strided", empty_strided)
    tracked_empty_strided((2,), (1,), dtype=torch.int8, device="cuda:1", name="buf0", pin_memory=True)
    assert asked == [{"dtype": torch.int8, "device": "cuda:1", "pin_memory": True}]


# M15


def test_a_graph_inside_a_graph(seed: Seed) -> None:
    def inner(shared: Seed | None) -> None:
        buf0 = new("buf0")
        if shared is not None:
            shared.set_tensor("buf0", buf0)
            shared.check_step_delta(["buf0"], [], True)
            return
        track_tensor(buf0, "buf0")
        check_memory_step(allocated=["buf0"], freed=[])
        del buf0
        check_memory_step(allocated=[], freed=["buf0"], is_final_step=True)

    def outer(shared: Seed | None) -> None:
        buf0 = new("buf0")
        if shared is not None:
            shared.set_tensor("buf0", buf0)
            inner(shared)
            shared.check_step_delta(["buf0"], [], False)
            return
        track_tensor(buf0, "buf0")
        inner(None)
        check_memory_step(allocated=["buf0"], freed=[])
        inner(None)
        del buf0
        check_memory_step(allocated=[], freed=["buf0"], is_final_step=True)

    outer(None)
    outer(seed)
    assert seed.said


def test_two_runs_that_take_turns() -> None:
    def run() -> Iterator[None]:
        buf0 = new("buf0")
        track_tensor(buf0, "buf0")
        yield
        check_memory_step(allocated=["buf0"], freed=[])
        yield
        del buf0
        check_memory_step(allocated=[], freed=["buf0"], is_final_step=True)

    for _ in zip(run(), run(), strict=True):
        pass
