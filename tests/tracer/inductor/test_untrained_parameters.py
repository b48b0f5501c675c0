"""Parameters in plain lists that no optimizer has, as the hooks of the recorder see them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from stepscope.tracer.inductor.untrained_parameters import MOST_OPTIMIZERS, STEPS, UntrainedWatch
from stepscope.tracer.schema.steps import UntrainedParameters

HEAD, LISTED = "L['self']._modules['head']._parameters['weight']", "L['self'].blocks[0]._parameters['weight']"


def failed(where: str, error: BaseException) -> None:
    raise AssertionError(where) from error


def captured(inputs: Mapping[str, nn.Parameter]) -> Any:
    """A captured graph with these inputs, by Dynamo's expression."""
    graph = torch.fx.Graph()
    for number, (expression, parameter) in enumerate(inputs.items()):
        given = SimpleNamespace(example=parameter, source=SimpleNamespace(name=expression))
        graph.placeholder(f"input_{number}").meta["grapharg"] = given
    return SimpleNamespace(graph=graph)


def parameter(has_gradient: bool = True) -> nn.Parameter:
    one = nn.Parameter(torch.ones(2, 3))
    one.grad = torch.ones(2, 3) if has_gradient else None
    return one


def looked_at(
    inputs: Mapping[str, nn.Parameter], *optimizers: torch.optim.Optimizer, steps: int = STEPS
) -> list[UntrainedParameters]:
    found: list[UntrainedParameters] = []
    watch = UntrainedWatch(found.append, failed)
    watch.captured(captured(inputs))
    for _ in range(steps):
        for optimizer in optimizers:
            watch.begins(optimizer)
    return found


@pytest.mark.parametrize(
    ("expression", "container"),
    [
        (LISTED, "L['self'].blocks"),
        ("L['self'].scales['a']", "L['self'].scales"),
        ("L['self'].blocks[0]._modules['norm']._parameters['weight']", "L['self'].blocks"),
    ],
)
def test_parameters_in_a_list_have_no_optimizer(expression: str, container: str) -> None:
    head, listed = parameter(), parameter()
    (found,) = looked_at({HEAD: head, expression: listed}, torch.optim.SGD([head], lr=0.1))
    assert (found.name, found.trained, found.container, found.parameters) == ("SGD", 1, container, 1)
    assert found.names == [expression]


def test_parameters_that_another_optimizer_has_or_that_have_no_gradient_are_not_told() -> None:
    head, listed = parameter(), parameter()
    other = torch.optim.Adam([listed])  # which never steps
    assert looked_at({HEAD: head, LISTED: listed}, torch.optim.SGD([head], lr=0.1)) == []
    assert other.param_groups
    idle, frozen = parameter(has_gradient=False), parameter()
    frozen.requires_grad_(False)
    for one in (idle, frozen):
        assert looked_at({HEAD: head, LISTED: one}, torch.optim.SGD([head], lr=0.1)) == []


def test_lists_of_another_module_and_few_steps_are_not_told() -> None:
    """As the layers of a network that only a loss uses."""
    head, listed = parameter(), parameter()
    optimizer = torch.optim.SGD([head], lr=0.1)
    of_loss = "L['self']._modules['loss'].slices[0]._parameters['weight']"
    assert looked_at({HEAD: head, of_loss: listed}, optimizer) == []
    assert looked_at({HEAD: head, LISTED: listed}, optimizer, steps=STEPS - 1) == []


BODY = "L['self']._modules['body']._modules"
NAMES = [f"{BODY}['0']._modules['up']._parameters['weight']", f"{BODY}['1']._parameters['weight']"]


def module_of(*parameters: nn.Parameter) -> nn.Module:
    """A module that registers the parameters; Dynamo's expressions in these tests are others."""
    return nn.ParameterList(parameters)


def test_registered_parameters_are_told_with_the_module_that_has_them() -> None:
    head, first, second = parameter(), parameter(), parameter()
    optimizer, model = torch.optim.SGD([head], lr=0.1), module_of(head, first, second)
    (found,) = looked_at({HEAD: head, NAMES[0]: first, NAMES[1]: second}, optimizer)
    assert (found.is_registered, found.container, found.names) == (True, "L['self']._modules['body']", NAMES)
    (found,) = looked_at({HEAD: head, NAMES[0]: first}, optimizer)
    assert found.container == f"{BODY}['0']._modules['up']"
    (found,) = looked_at({HEAD: head, "L['self']._parameters['scale']": first}, optimizer)
    assert found.container == "L['self']"
    weight, bias = "L['decoder']._parameters['weight']", "L['decoder']._parameters['bias']"
    trained = parameter()
    optimizer, whole = torch.optim.SGD([head, trained], lr=0.1), module_of(head, first, second, trained)
    each = looked_at({HEAD: head, NAMES[0]: first, weight: second, bias: trained}, optimizer)
    assert [one.container for one in each] == [f"{BODY}['0']._modules['up']", "L['decoder']"]
    assert model is not whole


def test_registered_parameters_of_another_module_are_not_told() -> None:
    """As those of a network that only a loss uses, although its expression looks like one of the model."""
    head, other = parameter(), parameter()
    modules = module_of(head), module_of(other)
    assert looked_at({HEAD: head, NAMES[0]: other}, torch.optim.SGD([head], lr=0.1)) == []
    assert len(modules) == 2


@pytest.mark.parametrize("change", [lambda one: one.detach().sub_(0.1), lambda one: one.data.sub_(0.1)])
def test_registered_parameters_that_the_program_changes_are_not_told(change: Callable[[Any], object]) -> None:
    head, body = parameter(), parameter()
    optimizer, model, found = torch.optim.SGD([head], lr=0.1), module_of(head, body), list[UntrainedParameters]()
    watch = UntrainedWatch(found.append, failed)
    watch.captured(captured({HEAD: head, NAMES[0]: body}))
    for _ in range(STEPS):
        change(body)
        watch.begins(optimizer)
    assert found == []
    assert len([*model.parameters()]) == 2


def test_registered_parameters_that_another_optimizer_has_are_not_told() -> None:
    head, body = parameter(), parameter()
    model = module_of(head, body)
    optimizers = torch.optim.SGD([head], lr=0.1), torch.optim.Adam([body])
    assert looked_at({HEAD: head, NAMES[0]: body}, *optimizers) == []
    assert len([*model.parameters()]) == 2


def test_one_optimizer_for_each_parameter_ends_the_search() -> None:
    head, body = parameter(), parameter()
    model, others = module_of(head, body), [parameter() for _ in range(MOST_OPTIMIZERS)]
    optimizers = [torch.optim.SGD([one], lr=0.1) for one in [head, *others]]
    assert looked_at({HEAD: head, NAMES[0]: body}, *optimizers) == []
    assert len(looked_at({HEAD: head, NAMES[0]: body}, *optimizers[:MOST_OPTIMIZERS])) == 1
    assert len([*model.parameters()]) == 2


def test_inference_tensors_and_optimizers_without_groups_are_passed_over() -> None:
    class Both(torch.optim.Optimizer):
        def __init__(self, *parts: torch.optim.Optimizer) -> None:
            self.parts = parts

    with torch.inference_mode():
        served = nn.Parameter(torch.ones(2, 3))
    head, listed = parameter(), parameter()
    optimizer = torch.optim.SGD([head], lr=0.1)
    both = Both(optimizer)
    assert len(looked_at({HEAD: head, LISTED: listed, NAMES[0]: served}, optimizer)) == 1
    assert both.parts == (optimizer,)


def test_layers_that_a_list_has_beside_the_module_are_not_told() -> None:
    """They are registered, and left out of the optimizer for another reason."""
    model = nn.ModuleDict({"head": nn.Linear(2, 3), "first": nn.Linear(2, 3)})
    model.__dict__["blocks"] = [model["first"]]
    head, listed = model["head"].weight, model["first"].weight
    assert isinstance(head, nn.Parameter)
    assert isinstance(listed, nn.Parameter)
    listed.grad = torch.ones(3, 2)
    assert looked_at({HEAD: head, LISTED: listed}, torch.optim.SGD([head], lr=0.1)) == []


def test_no_parameter_is_kept_alive() -> None:
    head, listed = parameter(), parameter()
    watch = UntrainedWatch(lambda _: None, failed)
    watch.captured(captured({HEAD: head, LISTED: listed}))
    memory = weakref.ref(listed.untyped_storage())
    del listed
    gc.collect()
    assert memory() is None
