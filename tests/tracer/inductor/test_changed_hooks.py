"""Hooks of modules that change after the compile, as the hooks of the recorder see them."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stepscope
from stepscope.tracer.inductor import changed_hooks
from stepscope.tracer.inductor.changed_hooks import HooksWatch
from stepscope.tracer.schema.steps import ChangedHooks
from tests.tracer.logs import read

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def double(module: Any, args: Any, output: Any) -> Any:
    return output * 2


def negate(module: Any, args: Any, output: Any) -> Any:
    return -output


def ahead(module: Any, args: Any) -> None:
    pass


def watching(modules: list[nn.Module], monkeypatch: pytest.MonkeyPatch) -> tuple[HooksWatch, list[ChangedHooks]]:
    """A watch that has seen a graph that calls some modules."""
    written: list[ChangedHooks] = []
    watch = HooksWatch(written.append, lambda where, error: pytest.fail(f"{where}: {error}"))
    with monkeypatch.context() as patch:
        patch.setattr(changed_hooks, "current_compile_id", lambda: "0/0")
        patch.setattr(changed_hooks, "_called", lambda _: {id(one) for one in modules})
        patch.setattr(changed_hooks, "objects_of_compile", lambda: modules)
        watch.captured(None)
    return watch, written


def found(
    tmp_path: Path, net: nn.Module, change: Callable[[], object], calls: int = 2, first: int = 1
) -> list[tuple[str, str, str, bool]]:
    torch._dynamo.reset()
    compiled, x = torch.compile(net), torch.ones(2, 4)
    with stepscope.trace(tmp_path) as recorder, torch.no_grad():
        for _ in range(first):
            compiled(x)
        change()
        for _ in range(calls - first):
            compiled(x)
    assert recorder.path is not None
    records = read(recorder.path).get(ChangedHooks.KIND, [])
    return [(one["module"], one["attribute"], one["name"], one["is_added"]) for one in records]


def test_a_hook_that_is_added(tmp_path: Path) -> None:
    net = Net()
    told = found(tmp_path, net, lambda: net.layers[1].register_forward_hook(functools.partial(double)))
    assert told == [("Net.layers.1", "_forward_hooks", "double", True)]


def test_dynamo_guards_on_hooks_that_were_there(tmp_path: Path) -> None:
    net = Net()
    handle = net.layers[0].register_forward_hook(double)

    def change() -> None:
        handle.remove()
        net.layers[0].register_forward_hook(negate)

    assert found(tmp_path, net, change) == []


def test_a_hook_that_is_removed_and_one_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    handle = net.layers[0].register_forward_hook(double)
    watch, written = watching([net.layers[0]], monkeypatch)
    handle.remove()
    net.layers[0].register_forward_hook(negate)
    for phase in ("forward", "backward", "backward", "forward", "forward", "forward"):
        watch.look("0", phase)
    assert [(one.call, one.name, one.is_added) for one in written] == [(2, "double", False), (2, "negate", True)]


def test_a_pre_hook_is_seen_at_the_next_power_of_two(tmp_path: Path) -> None:
    net = Net()
    told = found(tmp_path, net, lambda: net.layers[1].register_forward_pre_hook(ahead), calls=4, first=3)
    assert told == [("Net.layers.1", "_forward_pre_hooks", "ahead", True)]


def test_hooks_that_stay_or_are_added_again_and_those_of_the_frame(tmp_path: Path) -> None:
    net = Net()
    handle = net.layers[0].register_forward_hook(double)

    def change() -> None:
        handle.remove()
        net.layers[0].register_forward_hook(double)
        net.register_forward_hook(negate)  # what calls the frame runs it

    assert found(tmp_path, net, change) == []


def test_hooks_of_torch_itself(tmp_path: Path) -> None:
    net = Net()
    hook: Any = torch.nn.modules.module._addindent
    assert found(tmp_path, net, lambda: net.layers[0].register_forward_hook(hook)) == []


def test_guards_on_hooks_compile_again(tmp_path: Path) -> None:
    net = Net()
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
        assert found(tmp_path, net, lambda: net.layers[1].register_forward_hook(double)) == []


def test_another_compile_of_the_frame(tmp_path: Path) -> None:
    net = Net()

    def change() -> None:
        net.layers[1].register_forward_hook(double)
        torch._dynamo.reset()

    assert found(tmp_path, net, change, calls=4) == []


def test_a_look_that_fails_ends_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no names")

    monkeypatch.setattr(changed_hooks, "all_modules", fail)
    net = Net()
    assert found(tmp_path, net, lambda: net.layers[1].register_forward_hook(double)) == []


def test_one_look_namesall_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    net, looks = Net(), []
    watch, written = watching([*net.layers], monkeypatch)
    for layer in net.layers:
        layer.register_forward_hook(double)
    find = changed_hooks.all_modules

    def look() -> list[Any]:
        looks.append(1)
        return find()

    monkeypatch.setattr(changed_hooks, "all_modules", look)
    for _ in range(2):
        watch.look("0", "forward")
    assert [one.module for one in written] == ["Net.layers.0", "Net.layers.1"]
    assert len(looks) == 1


def test_nothing_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [nn.Linear(4, 4)]
    layer = weakref.ref(layers[0])
    watch, written = watching([layers.pop()], monkeypatch)
    gc.collect()
    for _ in range(4):
        watch.look("0", "forward")
    assert layer() is None
    assert written == []
