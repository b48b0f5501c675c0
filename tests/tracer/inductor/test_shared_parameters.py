"""Parameters with the memory of those that an optimizer trains, as the hooks of the recorder see them."""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from stepscope.tracer.inductor import uncopied_tensors
from stepscope.tracer.inductor.shared_parameters import MOST_OPTIMIZERS, TELL, SharedWatch
from stepscope.tracer.schema.steps import SharedParameters


@pytest.fixture(autouse=True)
def searches_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heap of a process that runs tests is large."""
    monkeypatch.setattr(uncopied_tensors, "SECONDS", 60)


class Student(nn.Linear):
    pass


class Teacher(nn.Linear):
    pass


def failed(where: str, error: BaseException) -> None:
    raise AssertionError(where) from error


def captured(*inputs: torch.Tensor) -> Any:
    """A captured graph with these inputs."""
    graph = torch.fx.Graph()
    for number, one in enumerate(inputs):
        given = SimpleNamespace(example=one, source=SimpleNamespace(name=f"L['{number}']"))
        graph.placeholder(f"input_{number}").meta["grapharg"] = given
    return SimpleNamespace(graph=graph)


def sharing(**other: Any) -> tuple[nn.Module, nn.Module]:
    student, teacher = Student(3, 2), Teacher(3, 2, **other)
    teacher.load_state_dict(student.state_dict(), assign=True)
    return student, teacher


def looked_at(
    *optimizers: torch.optim.Optimizer,
    graphs: tuple[Any, ...] = (),
    between: Callable[[], object] = lambda: None,
    steps: int = TELL,
) -> list[SharedParameters]:
    found: list[SharedParameters] = []
    watch = SharedWatch(found.append, failed)
    for graph in graphs:
        watch.captured(graph)
    for _ in range(steps):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for one in group["params"]:
                    one.grad = torch.ones_like(one) if one.requires_grad else None
            watch.begins(optimizer)
            optimizer.step()
            watch.stepped(optimizer)
        between()
    return found


def sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([one for module in modules for one in module.parameters()], lr=0.1)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_teacher_with_the_memory_of_its_student(is_frozen: bool) -> None:
    student, teacher = sharing()
    teacher.requires_grad_(not is_frozen)
    (found,) = looked_at(sgd(student))
    assert (found.name, found.parameters, found.is_in_graph, found.is_written) == ("SGD", 2, False, False)
    assert found.names == ["Student.weight", "Student.bias"]
    assert found.others == ["Teacher.weight", "Teacher.bias"]


def test_an_assignment_to_data_and_names_of_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    student, teacher = (nn.Sequential(nn.Linear(3, 2)) for _ in range(2))
    monkeypatch.setattr(sys.modules["__main__"], "online", student, raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "target", nn.ModuleDict({"_orig_mod": teacher}), raising=False)
    for mine, other in zip(student.parameters(), teacher.parameters(), strict=True):
        other.data = mine.data
    (found,) = looked_at(sgd(student), between=lambda: teacher.get_parameter("0.weight").detach().mul_(0.9))
    assert (found.names[0], found.is_written) == ("online.0.weight", True)
    assert found.others == ["target.0.weight", "target.0.bias"]


def test_a_moving_average_writes_and_a_graph_takes_both() -> None:
    student, teacher = sharing()
    (found,) = looked_at(sgd(student), between=lambda: [one.detach().mul_(0.9) for one in teacher.parameters()])
    assert (found.is_in_graph, found.is_written) == (False, True)
    (found,) = looked_at(sgd(student), graphs=(captured(*student.parameters(), *teacher.parameters()),))
    assert (found.is_in_graph, found.is_written) == (True, False)
    detached = captured(*(one.detach() for one in (*student.parameters(), *teacher.parameters())))
    (found,) = looked_at(sgd(student), graphs=(detached,))
    assert found.is_in_graph
    (found,) = looked_at(sgd(student), graphs=(captured(*student.parameters()), captured(*teacher.parameters())))
    assert not found.is_in_graph


def test_copies_and_tied_weights_are_not_told() -> None:
    student = Student(3, 2)
    loaded = Teacher(3, 2)
    loaded.load_state_dict(student.state_dict())
    twins = copy.deepcopy(student), copy.copy(student), loaded
    tied = nn.Linear(3, 2)
    tied.weight = student.weight
    averaged = torch.optim.swa_utils.AveragedModel(student)
    views = [one.detach() for one in student.parameters()]
    assert looked_at(sgd(student)) == []
    assert len([*twins, tied, averaged, *views]) == 7


@pytest.mark.slow
def test_parameters_that_all_are_trained_or_none_is_are_not_told() -> None:
    student, teacher = sharing()
    other = sgd(teacher)  # which never steps
    assert looked_at(sgd(student)) == []
    del other
    gc.collect()
    assert looked_at(sgd(student, teacher)) == []
    third = Student(3, 2)
    student.requires_grad_(False)
    teacher.requires_grad_(False)
    assert looked_at(sgd(student, third)) == []


def test_other_parts_of_one_memory_are_not_told() -> None:
    """As the flat weights of recurrent layers, or of optimizers that shard."""
    flat = nn.Parameter(torch.zeros(18))
    first, second, whole = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False), nn.ParameterList([flat])
    first.weight = nn.Parameter(flat.detach()[:9].view(3, 3))
    second.weight = nn.Parameter(flat.detach()[9:].view(3, 3), requires_grad=False)
    assert looked_at(sgd(first)) == []
    assert len([*whole.parameters(), *second.parameters()]) == 2


def test_parameters_without_elements_and_on_meta_are_not_told() -> None:
    for shape, device in (((0, 3), "cpu"), ((2, 3), "meta")):
        one = nn.Parameter(torch.empty(shape, device=device))
        student, teacher = nn.ParameterList([one]), nn.ParameterList([nn.Parameter(one.detach(), requires_grad=False)])
        found: list[SharedParameters] = []
        watch, optimizer = SharedWatch(found.append, failed), sgd(student)
        one.grad = torch.empty_like(one)
        for _ in range(TELL):
            watch.begins(optimizer)
            watch.stepped(optimizer)
        assert found == []
        assert len([*teacher.parameters()]) == 1


@pytest.mark.slow
def test_inference_tensors_captured_graphs_and_few_steps_are_not_told() -> None:
    student, teacher = sharing()
    with torch.inference_mode():
        served = nn.ParameterList([nn.Parameter(torch.ones(2, 3))])
    assert looked_at(sgd(student), steps=TELL - 1) == []
    assert len(looked_at(sgd(student), graphs=(captured(*served.parameters()),))) == 1
    traced = torch.fx.symbolic_trace(student)
    traced.weight = nn.Parameter(student.get_parameter("weight").detach())
    del teacher
    gc.collect()
    assert looked_at(sgd(student)) == []


def test_modes_of_the_program_see_nothing() -> None:
    class Calls(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(function)

    student, teacher = sharing()
    found: list[SharedParameters] = []
    watch, optimizer = SharedWatch(found.append, failed), sgd(student)
    for one in student.parameters():
        one.grad = torch.ones_like(one)
    graph = captured(*student.parameters(), *teacher.parameters())
    with Calls():
        watch.captured(graph)
        for _ in range(TELL):
            watch.begins(optimizer)
            watch.stepped(optimizer)
    assert [one.is_in_graph for one in found] == [True]


def test_many_optimizers_end_the_search() -> None:
    student, teacher = sharing()
    others = [sgd(Student(3, 2)) for _ in range(MOST_OPTIMIZERS)]
    assert looked_at(*others, sgd(student)) == []
    assert len([*teacher.parameters()]) == 2


@pytest.mark.slow
def test_nothing_is_kept_alive() -> None:
    student, teacher = sharing()
    found: list[SharedParameters] = []
    watch, optimizer = SharedWatch(found.append, failed), sgd(student)
    watch.captured(captured(*student.parameters(), *teacher.parameters()))
    for one in student.parameters():
        one.grad = torch.ones_like(one)
    for _ in range(TELL - 1):
        watch.begins(optimizer)
        watch.stepped(optimizer)
    alive: list[weakref.ref[Any]] = [weakref.ref(teacher), weakref.ref(teacher.get_parameter("weight"))]
    del teacher
    gc.collect()
    assert [one() for one in alive] == [None, None]
    watch.begins(optimizer)
    assert len(found) == 1
    memory = [weakref.ref(one.untyped_storage()) for one in student.parameters()]
    del student, optimizer, one
    gc.collect()
    assert [one() for one in memory] == [None, None]


class Average:
    """A moving average of parameters."""

    def __init__(self, module: nn.Module, copies: Callable[[torch.Tensor], torch.Tensor] = lambda one: one) -> None:
        self.weights = {name: copies(one) for name, one in module.state_dict().items()}

    def update(self, module: nn.Module) -> None:
        for name, one in module.state_dict().items():
            self.weights[name].mul_(0.9).add_(one, alpha=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("is_written", [True, False])
def test_an_average_that_begins_with_a_state_dict(is_written: bool) -> None:
    student = Student(3, 2)
    average = Average(student)
    told = looked_at(sgd(student), between=lambda: average.update(student) if is_written else None)
    assert len(told) == is_written
    for found in told:
        assert (found.parameters, found.is_in_graph, found.are_tensors, found.is_written) == (2, False, True, True)
        assert found.names == ["Student.weight", "Student.bias"]
        assert found.others == [f"weights[{name!r}] of Average" for name in ("weight", "bias")]


def test_tensors_that_are_copies_or_variables_are_not_told() -> None:
    student = Student(3, 2)
    average, last = Average(student, torch.clone), [*student.state_dict().values()][-1]
    assert looked_at(sgd(student), between=lambda: average.update(student)) == []
    assert last.data_ptr() == student.bias.data_ptr()


def test_tensors_that_die_are_not_told() -> None:
    student = Student(3, 2)
    average = Average(student)
    kept = weakref.WeakSet(average.weights.values())
    assert looked_at(sgd(student), between=average.weights.clear) == []
    assert len(kept) == 0
