"""Who holds a storage."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import time
import weakref
from typing import Any

import pytest
import torch

from stepscope.tracer.runtime.lifetimes import holders
from stepscope.tracer.runtime.lifetimes.holders import GRAPH_OF, UNKNOWN, find_holders, overlapped
from tests.waiting import PATIENCE_S

kept_in_module: Any = None


@pytest.fixture
def module_global() -> Any:
    yield lambda value: globals().__setitem__("kept_in_module", value)
    globals()["kept_in_module"] = None


class Net:
    cache: Any = None


class Slotted:
    __slots__ = ("memory",)
    memory: Any


def holders_of(storage: Any) -> list[str]:
    (words,) = find_holders([storage], seconds=PATIENCE_S)
    return [text for text in words if "storage of " not in text and "holders_of" not in text]


def storage_of(make: Any) -> Any:
    """The storage of what `make` returns, which nobody here goes on holding."""
    return make().untyped_storage()


def test_a_list_of_a_module(module_global: Any) -> None:
    tensor = torch.ones(4)
    module_global([1, tensor, 2])
    storage = tensor.untyped_storage()
    del tensor
    assert f"list of 3 in kept_in_module of {__name__}" in holders_of(storage)


@pytest.mark.slow
def test_out_of_time_nothing_is_said_of_who_holds_a_container(
    module_global: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_global([torch.ones(4)])
    levels: list[int] = []
    look = gc.get_referrers

    def referrers(*values: Any) -> list[Any]:
        levels.append(len(values))
        return look(*values)

    monkeypatch.setattr(gc, "get_referrers", referrers)
    monkeypatch.setattr(holders, "monotonic", lambda: 100.0 if len(levels) > 1 else 0.0)
    (words,) = find_holders([kept_in_module[0].untyped_storage()], seconds=1)
    assert len(levels) == 2, "the tensor is in a list, and who has the list is looked for too late"
    assert not [text for text in words if "list of 1" in text]


@pytest.mark.slow
def test_nested_containers_and_dicts(module_global: Any) -> None:
    module_global({"a": (torch.ones(4),), "b": {5: torch.ones(4)}, "c": [{"d": torch.ones(4)}]})
    kept = kept_in_module
    storages = [one.untyped_storage() for one in (kept["a"][0], kept["b"][5], kept["c"][0]["d"])]
    found = find_holders(storages, seconds=PATIENCE_S)
    assert f"tuple of 1 in kept_in_module['a'] of {__name__} (dict of 3)" in found[0]
    assert f"kept_in_module['b'][5] of {__name__} (dict of 3)" in found[1]
    assert f"value ['d'] of a dict of 1 in list of 1 in kept_in_module['c'] of {__name__} (dict of 3)" in found[2]


def test_attributes_of_objects_slots_and_classes() -> None:
    plain, slotted = Net(), Slotted()
    plain.cache, slotted.memory, Net.cache = torch.ones(4), torch.ones(4), torch.ones(4)
    storages = [plain.cache.untyped_storage(), slotted.memory.untyped_storage(), Net.cache.untyped_storage()]
    found = find_holders(storages, seconds=PATIENCE_S)
    Net.cache = None
    assert "attribute cache of Net" in found[0]
    assert "attribute memory of Slotted" in found[1]
    assert "attribute cache of class Net" in found[2]


def test_the_cache_of_a_function_is_named_by_the_function() -> None:
    @functools.lru_cache
    def biases(length: int) -> torch.Tensor:
        return torch.ones(length)

    words = holders_of(biases(4).untyped_storage())
    assert f"the functools.lru_cache of {biases.__wrapped__.__qualname__}()" in words


def test_the_variable_of_a_function_that_a_traceback_keeps_is_named() -> None:
    def score() -> None:
        hidden = torch.ones(4)
        kept.append(hidden.untyped_storage())
        raise ValueError

    kept: list[Any] = []
    try:
        score()
    except ValueError as error:
        told = error
    words = holders_of(kept.pop())
    assert "local variable hidden of score(), which has ended but is kept by a traceback" in words
    assert told.__traceback__ is not None


def test_a_list_in_an_attribute_of_a_module() -> None:
    net = torch.nn.Linear(2, 2)
    seen = [torch.ones(4)]
    net.__dict__["seen"] = seen
    assert "list of 1 in attribute seen of Linear" in holders_of(seen[0].untyped_storage())


def test_a_parameter_and_its_gradient() -> None:
    net = torch.nn.Linear(2, 2)
    net(torch.ones(1, 2)).sum().backward()
    assert net.weight.grad is not None
    storages = [net.weight.untyped_storage(), net.weight.grad.untyped_storage()]
    found = find_holders(storages, seconds=PATIENCE_S)
    assert any("attribute _parameters['weight'] of Linear" in text for text in found[0])
    assert "gradient of a Parameter of shape [2, 2]" in found[1]


def test_local_variables_are_named_and_not_kept() -> None:
    def train() -> tuple[list[str], Any]:
        h = torch.ones(4)
        keep = [h.view(2, 2)]
        return holders_of(h.untyped_storage()), keep and weakref.ref(h.untyped_storage())

    words, storage = train()
    assert any(text.startswith("local variable h of train() at test_holders.py:") for text in words)
    assert any(text.startswith("list of 1 in local variable keep of train() at test_holders.py:") for text in words)
    assert storage() is None


def test_a_running_frame_keeps_nothing_after_the_search() -> None:
    h = torch.ones(4)
    dies = weakref.ref(h.untyped_storage())
    find_holders([h.untyped_storage()])
    del h
    assert dies() is None


def test_a_dict_that_the_program_got_from_locals_is_left_alone() -> None:
    h = torch.ones(4)
    before = locals()
    find_holders([h.untyped_storage()])
    assert before["h"] is h


def test_local_variables_of_other_threads() -> None:
    ready, done = threading.Event(), threading.Event()
    storages: list[Any] = []

    def work() -> None:
        mine = torch.ones(4)
        storages.append(weakref.ref(mine.untyped_storage()))
        ready.set()
        done.wait(2 * PATIENCE_S)

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(PATIENCE_S)
    words = find_holders([storages[0]()], seconds=PATIENCE_S)[0]
    done.set()
    thread.join()
    assert any(text.startswith("local variable mine of work() at") for text in words)


@pytest.mark.slow
def test_closures_and_generators() -> None:
    def closure() -> Any:
        inside = torch.ones(4)
        return lambda: inside

    def generator() -> Any:
        inside = torch.ones(4)
        yield inside.untyped_storage()

    function, running = closure(), generator()
    assert any("closure variable inside of" in text for text in holders_of(function().untyped_storage()))
    if sys.version_info < (3, 13):
        assert any("suspended" in text and "generator()" in text for text in holders_of(next(running)))


@pytest.mark.slow
def test_what_autograd_has_saved_is_found_and_no_hook_runs() -> None:
    ran: list[Any] = []

    def unpack(packed: Any) -> Any:
        ran.append(packed)
        return packed

    x = torch.ones(4, requires_grad=True)
    plain = x * 2
    storage, y = plain.untyped_storage(), plain.exp() * plain
    del plain
    assert "autograd: saved for the backward of MulBackward0" in holders_of(storage)
    with torch.autograd.graph.saved_tensors_hooks(lambda packed: packed, unpack):
        z = y * y.exp()
    hooked = y.untyped_storage()
    holders_of(hooked)
    assert not ran
    assert z.requires_grad


def _kept_loss() -> tuple[torch.UntypedStorage, torch.Tensor]:
    last = torch.ones(4, requires_grad=True).exp()
    return last.untyped_storage(), last.pow(2).sum()


def test_the_object_that_keeps_an_autograd_graph_is_named(module_global: Any) -> None:
    storage, loss = _kept_loss()
    module_global([loss])
    del loss
    said = f"{GRAPH_OF} in list of 1 in kept_in_module of {__name__}"
    words = holders_of(storage)
    assert said in words
    assert not any(text.startswith("autograd: saved") for text in words)


def test_nobody_holds_it_in_python() -> None:
    storage = storage_of(lambda: torch.ones(4))
    words = holders_of(storage)
    assert [text for text in words if "local variable storage" not in text] in ([], [UNKNOWN])


@pytest.mark.slow
def test_it_says_that_frozen_objects_are_hidden(module_global: Any) -> None:
    module_global([])
    gc.freeze()
    kept_in_module.append((torch.ones(4),))
    storage = kept_in_module[0][0].untyped_storage()
    said = "tuple of 1, which a running function or C++ holds, or an object that gc.freeze() hides"
    assert said in holders_of(storage)
    gc.unfreeze()
    assert f"tuple of 1 in list of 1 in kept_in_module of {__name__}" in holders_of(storage)


def test_strange_tensors_and_objects_are_passed_over() -> None:
    class Lying:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise ValueError

    class Raising(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("the program's own code was run")

    def program() -> list[str]:  # frames that name locals(), as those with assertions in pytest, are left out
        sparse, meta = torch.eye(3).to_sparse(), torch.ones(3, device="meta")
        tensor = torch.ones(3)
        keep = [Lying(), sparse, meta, torch.ones(3).as_subclass(Raising), tensor]
        return holders_of(tensor.untyped_storage()) if keep else []

    assert any("list of 5 in local variable keep" in text for text in program())


@pytest.mark.slow
def test_it_is_bounded() -> None:
    many = [torch.ones(1) for _ in range(70)]
    found = find_holders([tensor.untyped_storage() for tensor in many], seconds=PATIENCE_S)
    assert len(found) == 70
    assert all(found[:64])
    assert not any(found[64:])
    assert find_holders([many[0].untyped_storage()], seconds=0) == [[]]


@pytest.mark.slow
def test_only_searches_of_other_threads_make_deaths_late() -> None:
    start = time.perf_counter_ns()
    find_holders([torch.ones(4).untyped_storage()])
    assert not overlapped(start)
    thread = threading.Thread(target=find_holders, args=([torch.ones(4).untyped_storage()],))
    thread.start()
    thread.join()
    find_holders([torch.ones(4).untyped_storage()])
    assert overlapped(start)
    assert not overlapped(time.perf_counter_ns())
