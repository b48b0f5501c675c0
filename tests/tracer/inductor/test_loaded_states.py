"""Calls of `load_state_dict` that do not load tensors because of a prefix, as the wrapper of the recorder sees them."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from stepscope.tracer.inductor.loaded_states import StatesWatch
from stepscope.tracer.inductor.optimizer_steps import OptimizerSteps
from stepscope.tracer.inductor.state_calls import StateCalls, stop_waiting, waiting_calls, watch_and_wait
from stepscope.tracer.schema.states import UnmatchedKeys

pytestmark = pytest.mark.filterwarnings("ignore")

ORIGINAL = nn.Module.load_state_dict


class Body(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))


class Net(nn.Module):
    """A model with a head."""

    def __init__(self, classes: int = 2, head: str = "head") -> None:
        super().__init__()
        self.body = Body()
        self.add_module(head, nn.Linear(4, classes))


class Holder(nn.Module):
    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, one in modules.items():
            self.add_module(name, one)


class Watched:
    """The records of what the program loads."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.calls = StateCalls()
        self.calls.watch.begin(self.told.append, self._failed)
        self.calls.attach()

    def after(self, load: Callable[[], object]) -> list[Any]:
        load()
        self.calls.watch.tell()
        told, self.told[:] = [*self.told], []
        return told

    @staticmethod
    def _failed(where: str, error: BaseException) -> None:
        raise AssertionError(where) from error


@pytest.fixture
def watched() -> Iterator[Watched]:
    one = Watched()
    yield one
    one.calls.detach()
    assert nn.Module.load_state_dict is ORIGINAL


def compiled(module: nn.Module) -> Any:
    return torch.compile(module)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], str, str]] = {
    "compiled": (Net, lambda: compiled(Net()), "_orig_mod.", ""),
    "not compiled": (lambda: compiled(Net()), Net, "", "_orig_mod."),
    "inner": (lambda: Holder(net=Net()), lambda: Holder(net=compiled(Net())), "_orig_mod.", ""),
    "parallel": (Net, lambda: nn.DataParallel(Net()), "module.", ""),
    "not parallel": (lambda: nn.DataParallel(Net()), Net, "", "module."),
    "both": (Net, lambda: Holder(module=compiled(Net())), "module._orig_mod.", ""),
    "one each": (lambda: Holder(module=Net()), lambda: compiled(Net()), "_orig_mod.", "module."),
    "of the program": (Net, lambda: Holder(model=Net()), "model.", ""),
    "new head": (lambda: Net(5), lambda: Holder(net=Net(7, "classifier")), "net.", ""),
    "one of two": (Net, lambda: Holder(online=Net(), target=Net()), "online.", ""),
    "a part": (lambda: Holder(first=Body(), second=nn.Sequential(*[nn.Linear(4, 4) for _ in range(40)])),
               lambda: Holder(first=compiled(Body())), "_orig_mod.", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_keys_that_differ_by_a_prefix(watched: Watched, case: str) -> None:
    own, saved, given_prefix, own_prefix = CASES[case]
    module = own()
    (found,) = watched.after(lambda: module.load_state_dict(saved().state_dict(), strict=False))
    assert isinstance(found, UnmatchedKeys)
    assert (found.given_prefix, found.own_prefix) == (given_prefix, own_prefix)
    assert found.module == type(getattr(module, "_orig_mod", module)).__name__
    assert found.tensors == len(module.state_dict())
    assert 2 * found.explained >= min(found.missing, 9)
    assert found.file == __file__


def loaded(own: nn.Module, given: dict[str, Any], **options: Any) -> Callable[[], object]:
    return lambda: own.load_state_dict(given, strict=False, **options)


def test_keys_that_match_or_that_no_prefix_explains(watched: Watched) -> None:
    head = loaded(Net(7, "classifier"), Net(5).state_dict())
    same_head = loaded(Net(5, "classifier"), Net(5).state_dict())
    inner_head = loaded(Net(4), {**Body().state_dict(prefix="body."), **Net(4).state_dict(prefix="decoder.")})
    shapes = loaded(Net(), {f"module.{key}": torch.ones(7) for key in Net().state_dict()})
    other = loaded(Body(), Net().body.state_dict())
    part = loaded(Holder(online=Net(), target=Net()), Holder(online=Net()).state_dict())
    nothing = loaded(Net(), {})
    unrelated = loaded(Net(), {"a.b": torch.ones(4), "c": 3})
    for load in (head, same_head, inner_head, shapes, other, part, nothing, unrelated):
        assert watched.after(load) == []


def test_a_strict_call_and_one_that_fails(watched: Watched) -> None:
    given = {f"module.{key}": one for key, one in Net().state_dict().items()}
    with pytest.raises(RuntimeError, match="Unexpected key"):
        Net().load_state_dict(given)
    with pytest.raises(RuntimeError, match="size mismatch"):
        Net().load_state_dict(Net(5).state_dict() | given, strict=False)
    with pytest.raises(TypeError, match="dict-like"):
        Net().load_state_dict(3, False)  # type: ignore[arg-type]
    assert watched.after(lambda: None) == []
    net = Net()
    assert len(watched.after(lambda: net.load_state_dict(given, False))) == 1
    assert len(watched.after(lambda: net.load_state_dict(state_dict=given, strict=False))) == 1


@pytest.mark.parametrize("assign", [False, True])
def test_tensors_that_another_call_loads_before_compiled_code_runs(watched: Watched, assign: bool) -> None:
    net, given = Net(), nn.DataParallel(Net()).state_dict()

    def load(rest: bool) -> None:
        left = net.load_state_dict(given, strict=False)
        if rest and left.missing_keys:
            compiled(net).load_state_dict({f"_orig_mod.{k.removeprefix('module.')}": one for k, one in given.items()},
                                          assign=assign)  # fmt: skip

    assert watched.after(lambda: load(True)) == []
    assert len(watched.after(lambda: load(False))) == 1


def test_a_module_that_only_tries_keys_and_is_gone(watched: Watched) -> None:
    net, other, given = Net(), Net(), nn.DataParallel(Net()).state_dict()

    def load() -> None:
        if Net().load_state_dict(given, strict=False).missing_keys:
            net.load_state_dict({key.removeprefix("module."): one for key, one in given.items()})

    assert watched.after(load) == []
    assert watched.after(lambda: [Net().load_state_dict(given, strict=False) for _ in range(20)]) == []
    assert len(watched.after(loaded(other, given))) == 1
    assert len(watched.after(lambda: Holder(other=net).load_state_dict(Net().state_dict(), strict=False))) == 1


COPIES: dict[str, Callable[[dict[str, Any], nn.Module, str, torch.Tensor], object]] = {
    "own state": lambda own, net, key, value: own[key].copy_(value),
    "data": lambda own, net, key, value: net.get_parameter(key).data.copy_(value),
    "new data": lambda own, net, key, value: setattr(net.get_parameter(key), "data", value),
    "new parameter": lambda own, net, key, value: setattr(
        net.get_submodule(key.rpartition(".")[0]), key.rpartition(".")[2], nn.Parameter(value)
    ),
}


@pytest.mark.parametrize("how", COPIES)
def test_a_loop_that_copies_the_rest(watched: Watched, how: str) -> None:
    net, parameters = Net(), {f"module.{key}": one.detach() for key, one in Net().named_parameters()}

    def load() -> None:
        own, given = net.state_dict(), nn.DataParallel(Net()).state_dict()
        net.load_state_dict(given, strict=False)
        with torch.no_grad():
            for key, value in parameters.items():
                COPIES[how](own, net, key.removeprefix("module."), value)

    assert watched.after(load) == []


def test_writes_that_load_nothing(watched: Watched) -> None:
    net, given = Net(), nn.DataParallel(Net()).state_dict()

    def load() -> None:
        net.load_state_dict(given, strict=False)
        with torch.no_grad():
            for one in net.parameters():  # as DistributedDataParallel does
                one.copy_(one.clone())
        net.bfloat16()

    assert len(watched.after(load)) == 1


@pytest.mark.parametrize("runs", [False, True])
def test_a_program_whose_compiled_code_does_not_run(runs: bool) -> None:
    told: list[Any] = []
    steps = OptimizerSteps(told.append, lambda _: None, lambda where, error: pytest.fail(f"{where}: {error}"), int)
    net = Net()
    steps.attach()
    net.load_state_dict(nn.DataParallel(Net()).state_dict(), strict=False)
    if runs:
        steps.look(None, None)
    steps.detach()
    assert [type(one) for one in told] == [UnmatchedKeys] * runs


def test_a_hook_that_changes_keys(watched: Watched) -> None:
    net = Net()

    def strip(module: Any, given: dict[str, Any], prefix: str, *_: Any) -> None:
        for key in [*given]:
            given[key.removeprefix("module.")] = given.pop(key)

    net.register_load_state_dict_pre_hook(strip)  # type: ignore[no-untyped-call]
    assert watched.after(loaded(net, nn.DataParallel(Net()).state_dict())) == []


def test_calls_within_a_call_and_of_another_class(watched: Watched) -> None:
    class Loader(Net):
        def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
            return super().load_state_dict(state_dict, False, assign)

    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def _load_from_state_dict(self, given: Any, *arguments: Any) -> None:
            self.net.load_state_dict(nn.DataParallel(Net()).state_dict(), strict=False)

    (found,) = watched.after(loaded(Loader(), nn.DataParallel(Net()).state_dict()))
    assert found.module == "Loader"
    assert watched.after(lambda: Nested().load_state_dict({}, strict=False)) == []
    assert len(watched.after(loaded(Net(), nn.DataParallel(Net()).state_dict()))) == 1


def test_tensors_without_values_and_lazy_modules(watched: Watched) -> None:
    given = nn.DataParallel(Net()).state_dict()
    with torch.device("meta"):
        meta = Net()
    assert len(watched.after(loaded(meta, given, assign=True))) == 1
    with FakeTensorMode():
        fake = Net()
        assert len(watched.after(loaded(fake, nn.DataParallel(Net()).state_dict()))) == 1
    lazy = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 4))
    assert len(watched.after(loaded(lazy, nn.DataParallel(nn.Sequential(Body(), nn.Linear(4, 4))).state_dict()))) == 1


def test_modes_of_the_program_see_nothing(watched: Watched) -> None:
    class Shapes(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            frame: Any = sys._getframe()
            while frame is not None:
                assert frame.f_globals["__name__"] != StatesWatch.__module__, function
                frame = frame.f_back
            return function(*args, **(kwargs or {}))

    with Shapes():
        assert len(watched.after(loaded(Net(), nn.DataParallel(Net()).state_dict()))) == 1


def test_nothing_is_kept_alive_and_modules_stay_as_they_were(watched: Watched) -> None:
    net = Net()
    net.load_state_dict(nn.DataParallel(Net()).state_dict(), strict=False)
    assert {*vars(pickle.loads(pickle.dumps(net)))} == {*vars(copy.deepcopy(net))} == {*vars(Net())}
    alive: list[Any] = [weakref.ref(net), weakref.ref(net.body)]
    assert [weakref.getweakrefs(one) for one in net.parameters()] == [[]] * len([*net.parameters()])
    del net
    gc.collect()
    assert [one() for one in alive] == [None, None]
    watched.calls.watch.after_fork()
    assert watched.after(lambda: None) == []


def traced() -> tuple[torch.Tensor, dict[str, torch.Tensor], int, int]:
    """Return the result and the weights of compiled code that loads weights, its graphs and its operators."""
    torch.manual_seed(0)
    net, given = nn.Linear(2, 2), {"weight": torch.ones(2, 2), "a.bias": torch.ones(2)}
    counter = CompileCounter()

    @torch.compile(backend=counter)
    def load(x: torch.Tensor) -> Any:
        net.load_state_dict(given, strict=False)
        return net(x) + net.state_dict()["bias"]

    torch._dynamo.reset()
    result = load(torch.ones(1, 2))
    return result.detach(), net.state_dict(), counter.frame_count, counter.op_count


def test_code_that_dynamo_traces(watched: Watched) -> None:
    result, weights, *counts = traced()
    watched.calls.detach()
    other_result, other_weights, *other_counts = traced()
    assert counts == other_counts
    assert torch.equal(result, other_result)
    assert torch.equal(weights["weight"], torch.ones(2, 2))
    assert torch.equal(weights["bias"], other_weights["bias"])


IMPORTED = """
import sys
import torch
from stepscope.tracer.inductor.state_calls import watch_and_wait

watch_and_wait()
model = torch.nn.Linear(2, 2)
model.load_state_dict(model.state_dict())
print(*(name for name in sys.modules if name.startswith("stepscope.tracer")))
"""


@pytest.mark.slow
def test_first_calls_import_no_records() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=120, check=True)
    imported = {*done.stdout.split()}
    assert StatesWatch.__module__ in imported
    records = {one for one in imported if one.startswith("stepscope.tracer.schema.")}
    assert records == {"stepscope.tracer.schema.byte_sizes", "stepscope.tracer.schema.constants"}


def test_what_waits_for_a_recorder() -> None:
    watch_and_wait()
    watch_and_wait()
    net = Net()
    try:
        net.load_state_dict(nn.DataParallel(Net()).state_dict(), strict=False)
        calls = waiting_calls()
        assert calls is not None
        assert waiting_calls() is None
        told: list[Any] = []
        calls.watch.tell()
        calls.watch.begin(told.append, lambda *_: None)
        calls.watch.tell()
        assert len(told) == 1
        calls.detach()
        watch_and_wait()
        assert nn.Module.load_state_dict is not ORIGINAL
    finally:
        stop_waiting()
    assert nn.Module.load_state_dict is ORIGINAL


def test_a_wrapper_of_others_stays(watched: Watched) -> None:
    wrapper = nn.Module.load_state_dict

    def other(module: Any, *arguments: Any, **named: Any) -> Any:
        return wrapper(module, *arguments, **named)

    nn.Module.load_state_dict = other  # type: ignore[assignment]
    watched.calls.detach()
    assert nn.Module.load_state_dict is other
    assert watched.after(loaded(Net(), nn.DataParallel(Net()).state_dict())) == []
    nn.Module.load_state_dict = ORIGINAL  # type: ignore[method-assign]
