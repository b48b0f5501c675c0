"""The configuration of Triton kernels, with stand-ins for Inductor's `CachingAutotuner`."""

from __future__ import annotations

import gc
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from stepscope.tracer.inductor.triton_configs import TritonConfigs, config_of
from stepscope.tracer.schema.graphs import LaunchSite
from stepscope.tracer.schema.launches import TunedKernels


def launcher(**block_sizes: Any) -> Any:
    return SimpleNamespace(config=SimpleNamespace(kwargs=block_sizes, num_warps=4, num_stages=1))


def kernel(*launchers: Any) -> Any:
    return SimpleNamespace(launchers=list(launchers))


def wrapper(**kernels: Any) -> tuple[Any, ModuleType]:
    module = ModuleType("wrapper")
    vars(module).update(kernels)
    sites = [LaunchSite(n, "call", 1, name, "triton", [], []) for n, name in enumerate([*kernels, *kernels])]
    return SimpleNamespace(graph=3, sites=sites), module


def test_what_is_chosen_is_told_once() -> None:
    tuned, candidates = kernel(launcher(XBLOCK=8)), kernel(launcher(XBLOCK=16), launcher(XBLOCK=32))
    graph, module = wrapper(tuned=tuned, later=candidates, never=kernel(), multi=object())
    configs = TritonConfigs()
    configs.add(graph, module)
    assert list(configs.take()) == [TunedKernels(3, ["tuned"], [{"XBLOCK": 8, "num_warps": 4, "num_stages": 1}])]
    assert list(configs.take()) == []
    del candidates.launchers[0]
    assert [record.kernel for record in configs.take()] == [["later"]]
    assert list(configs.take()) == []


def test_a_wrapper_that_is_gone_is_forgotten() -> None:
    graph, module = wrapper(later=kernel())
    configs = TritonConfigs()
    configs.add(graph, module)
    del module
    gc.collect()
    assert list(configs.take()) == []
    assert configs._waiting == []


@pytest.mark.parametrize("value", [True, "fp16", 0.5, None])
def test_what_is_not_all_numbers_is_not_told(value: Any) -> None:
    """Without it another variant would look the same."""
    assert config_of(kernel(launcher(XBLOCK=8, EVEN=value))) == {}


def test_a_kernel_of_another_kind_has_none() -> None:
    odd = SimpleNamespace(launchers=[SimpleNamespace(config=None)])
    assert [config_of(one) for one in (None, print, SimpleNamespace(launchers=None), odd)] == [{}] * 4


@pytest.mark.parametrize(
    ("asked", "mark"),
    [
        ("coordinate_descent_tuning", "found_by_coordesc"),
        ("combo_tuning_groups", "found_by_combo_autotune"),
    ],
)
def test_where_tuning_goes_on_from_the_only_candidate_its_end_is_told(asked: str, mark: str) -> None:
    one = launcher(XBLOCK=8)
    tuned = kernel(one)
    tuned.inductor_meta = {asked: True}
    assert config_of(tuned) == {}
    setattr(one.config, mark, True)
    assert config_of(tuned) == {"XBLOCK": 8, "num_warps": 4, "num_stages": 1}


def test_what_is_added_meanwhile_is_not_lost() -> None:
    graph, module = wrapper(tuned=kernel(launcher(XBLOCK=8)))
    configs = TritonConfigs()
    configs.add(graph, module)
    told = configs.take()
    assert next(told).kernel == ["tuned"]
    configs.add(graph, module)
    assert list(told) == []
    assert [record.kernel for record in configs.take()] == [["tuned"]]
