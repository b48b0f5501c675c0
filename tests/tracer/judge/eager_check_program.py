"""Compiles functions that compiled code computes wrongly, and healthy ones: python -m ... FOLDER NAME.

Prints whether results, gradients and random numbers are the same with and without the check.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import lowering
from torch.nn import functional
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import stepscope
from stepscope.tracer.inductor import numeric_settings
from tests.tracer.judge.false_schemas import returned_alias, undeclared
from tests.tracer.judge.planted_passes import PLANTED, Program

aten = torch.ops.aten


def overlapping() -> Any:
    """One kernel reads what it overwrites."""

    def run(x: Tensor) -> Tensor:
        x.index_put_((torch.arange(x.size(0)),), x * 2.0)
        x.add_(x.flip(0))
        return x

    return torch.compile(run)(torch.rand(4, 8))


def lost_mutation() -> Any:
    """Dropout that drops nothing returns its input, which is then changed."""

    def run(x: Tensor) -> Tensor:
        y = functional.dropout(x, 0.5, training=False)
        y += y
        return y

    return torch.compile(run)(torch.ones(2, 2))


def wrong_alias() -> Any:
    """The output becomes the changed input itself."""

    def run(x: Tensor, source: Tensor) -> Tensor:
        result = torch.slice_scatter(x, source, 0, 0, 1)
        x.copy_(result)
        return result

    return torch.compile(run)(torch.tensor([1.0, 2.0]), torch.tensor([10.0]))


def lost_in_dropout() -> Any:
    """Dropout with a probability of 0 returns its input, which is then changed."""

    def run(x: Tensor) -> Tensor:
        y = functional.dropout(x, 0.0, training=True)
        y.mul_(3)
        return y + 1

    return torch.compile(run)(torch.ones(2, 2))


def lost_between_windows() -> Any:
    """The windows leave out the last element, which a change of all of them sets to zero."""

    def run(x: Tensor) -> Tensor:
        x.unfold(0, 3, 3).mul_(2)
        return x + 0.5

    return torch.compile(run)(torch.rand(10) + 1)


def other_dtype() -> Any:
    """A cumulative sum of equal numbers is replaced by one in another dtype, in which they do not become zero."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.full((5,), 0.7).cumsum(0, dtype=torch.int64), x + 1

    return torch.compile(run)(torch.rand(4))


@contextmanager
def faulty_pass(change: Callable[[torch.fx.Graph], None]) -> Iterator[None]:
    """Let a pass change each graph after autograd."""
    with torch._inductor.config.patch(post_grad_custom_pre_pass=change, force_disable_caches=True):
        yield


def wrong_gradient() -> Any:
    """The forward is right, and a pass makes the backward wrong."""

    def change(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is torch.ops.aten.cos.default:
                node.target = torch.ops.aten.sin.default

    with faulty_pass(change):
        weight = torch.rand(4, 4, requires_grad=True)
        result = torch.compile(lambda x, w: (x @ w).sin())(torch.rand(4, 4), weight)
        result.sum().backward()
    return result, weight.grad


def far_above() -> Any:
    """A pass swaps the operands of a subtraction, several lines above the result."""

    def change(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is torch.ops.aten.sub.Tensor:
                node.args = node.args[::-1]

    def run(x: Tensor, y: Tensor) -> Tensor:
        product = x * y
        distance = product - y
        scaled = distance * 0.25
        return scaled.tanh()

    with faulty_pass(change):
        return torch.compile(run)(torch.rand(4, 4), torch.rand(4, 4))


def shifted() -> Any:
    """A pass removes the clone, and what is written overlaps with what is read, which eager mode refuses."""

    def run(x: Tensor) -> Tensor:
        x[1:] = x[:-1].clone()
        return x

    return torch.compile(run)(torch.rand(20))


def transformed() -> Any:
    """Dynamo's graph applies transforms; a pass makes the graph of AOTAutograd wrong, in the gradient of `sin`."""

    def change(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is torch.ops.aten.cos.default:
                node.target = torch.ops.aten.sin.default

    def loss(row: Tensor) -> Tensor:
        return row.sin().sum()

    with faulty_pass(change):
        return torch.compile(lambda rows: torch.func.vmap(torch.func.grad(loss))(rows))(torch.rand(3, 4))


def healthy_transforms() -> Any:
    with torch._inductor.config.patch(force_disable_caches=True):  # another program has compiled it, too
        return transforms()


def hidden_overflow() -> Any:
    """A pattern replaces what overflows in float16 by an operator that does not."""

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5)
        return torch.softmax(scores, -1) @ v

    return torch.compile(run)(*(torch.randn(1, 2, 16, 64, dtype=torch.float16) * 100 for _ in range(3)))


def returned_input() -> Any:
    """Adding zeros is removed, and the output is the input itself."""
    return torch.compile(lambda x: torch.empty(3).zero_().add(x))(torch.rand(3))


def better_than_eager() -> Any:
    """Eager mode rounds to float16 in between, where the number overflows."""

    def run(x: Tensor) -> Tensor:
        return x * 1000 / 1000

    return torch.compile(run)(torch.full((3, 5), 100, dtype=torch.float16))


def healthy() -> Any:
    """Views, shared inputs, mutated buffers, gradients, a graph break and other shapes."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 4))
    compiled = torch.compile(model)
    compiled(torch.randn(6, 8)).softmax(-1).square().mean().backward()

    @torch.compile(dynamic=True)
    def shared(x: Tensor, y: Tensor) -> Any:
        x.add_(1)
        torch._dynamo.graph_break()
        return x.t(), y * 2, x[1:]

    base = torch.randn(4, 4)
    found = [shared(base, base.view(16)), shared(base[1:], base[2:])]
    weight = torch.randn(4, 4, requires_grad=True)
    changed = weight * 2
    torch.compile(lambda z: z.mul_(3).sin())(changed).sum().backward()
    return found, changed, weight.grad, [one.grad for one in model.parameters()], list(model.buffers())


def optimizer() -> Any:
    """Its graph holds the parameters itself, and changes them."""
    weight = nn.Parameter(torch.ones(4, 4))
    adam = torch.optim.Adam([weight], lr=0.1, foreach=True)
    step = torch.compile(lambda: adam.step())
    for _ in range(2):
        weight.grad = torch.rand(4, 4)
        step()
    return weight.detach()


def random_backward() -> Any:
    """The forward draws as eager mode does, and the backward draws again, where a part is recomputed."""
    value = torch.rand(4, 4, requires_grad=True)
    with torch._inductor.config.patch(fallback_random=True):
        run = torch.compile(lambda x: checkpoint(lambda y: functional.dropout(y, 0.5).tanh(), x, use_reentrant=False))
        result = run(value)
        result.sum().backward()
    return result, value.grad


def random() -> Any:
    return torch.compile(lambda x: functional.dropout(x.sin(), 0.5))(torch.rand(4, 4))


class Other(Tensor):
    """A subclass of tensors."""


def subclass() -> Any:
    return torch.compile(lambda x: x.sin())(torch.rand(4).as_subclass(Other)).as_subclass(Tensor)


def transforms() -> Any:
    """Transforms of torch.func cannot be entered again beside the program."""
    weight, rows = torch.rand(4), torch.rand(3, 4)
    gradients = torch.compile(lambda rows: torch.func.vmap(torch.func.grad(lambda row: (row @ weight).tanh()))(rows))

    def tangents(rows: Tensor) -> Any:
        return torch.func.jvp(torch.sin, (rows,), (rows,))

    return gradients(rows), *torch.compile(tangents)(rows)


def out_of_memory() -> Any:
    """A stand-in for an operator that finds too little memory in the second run only."""
    return torch.compile(lambda x: greedy(x).sin())(torch.rand(4))


taken: list[int] = []


@torch.library.custom_op("stepscope_tests::greedy", mutates_args=())
def greedy(x: Tensor) -> Tensor:
    taken.append(1)
    if len(taken) % 2 == 0:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 TB")
    return x + 1


@greedy.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def changed_behind_autograd() -> Any:
    """The program changes what the forward pass saved through `.data`, which autograd does not notice."""
    weight = torch.rand(4, 4, requires_grad=True)
    result = torch.compile(lambda w: torch.tanh(w * 3))(weight)
    result.data.clamp_(-0.5, 0.5)
    return result, *torch.autograd.grad(result.sum(), weight)


@torch.library.custom_op("stepscope_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@lowering.register_lowering(torch.ops.stepscope_tests.twice.default)
def _(x: Any) -> Any:
    """Stands for an error of Inductor: the kernel computes something else, unless one setting has another value."""
    factor = 2 if torch._inductor.config.max_fusion_size == 1 else 3
    return lowering.lowerings[aten.mul.Tensor](x, factor)


@torch.library.custom_op("stepscope_tests::reverse_into", mutates_args=("target",))
def reverse_into(source: Tensor, target: Tensor) -> None:
    for position in range(len(source)):
        target[len(source) - 1 - position] = source[position]


def same_argument() -> Any:
    """A pass removes the clone, and the operator gets one tensor twice, for what it reads and for what it writes."""

    def run(x: Tensor) -> Tensor:
        y = x.clone()
        reverse_into(y, x)
        return x * 2

    return torch.compile(run)(torch.arange(8.0))


def wrong_kernel() -> Any:
    def run(x: Tensor) -> Tensor:
        doubled: Tensor = twice(x)
        return doubled.sin()

    return torch.compile(run)(torch.rand(4, 8))


PROGRAMS: tuple[Program, ...] = (
    wrong_gradient, healthy, optimizer, random, random_backward, subclass, transforms, out_of_memory,
    undeclared, returned_alias, changed_behind_autograd,
)  # fmt: skip
JUDGED: dict[str, Program] = {
    "judged_lost_windows": lost_between_windows,
    "judged_kernel": wrong_kernel,
    "judged_backward": wrong_gradient,
    "judged_same_argument": same_argument,
}
"""Programs whose kernels are judged too; only that of `judged_kernel` is wrong."""
LAYERED: tuple[Program, ...] = (
    overlapping, wrong_kernel, lost_mutation, lost_in_dropout, lost_between_windows, other_dtype, wrong_alias,
    hidden_overflow, returned_input, better_than_eager, far_above, shifted,
    transformed, healthy_transforms,
)  # fmt: skip


def results(program: Program) -> list[Any]:
    torch._dynamo.reset()
    torch.manual_seed(3)
    return [*tree_leaves(program()), torch.get_rng_state()]


def equal(one: Any, other: Any) -> bool:
    if one is None:
        return other is None
    return bool(torch.equal(one, other) or ((one == other) | (one.isnan() & other.isnan())).all())


def options(name: str, program: Program) -> dict[str, Any]:
    if name in JUDGED:
        return {"judge": "every:1"}
    return {"judge_layers": program not in PROGRAMS}


TRIED: dict[Program, tuple[str, ...]] = {better_than_eager: ("emulate_precision_casts", "numerics")}
"""The settings that are tried, of which each takes as long as a compile; `TRIED_ELSE` for all other programs."""
TRIED_ELSE = ("max_fusion_size", "use_joint_graph_passes")


def main(folder: str) -> None:
    settings = numeric_settings.SETTINGS
    programs = {program.__name__: program for program in (*PROGRAMS, *LAYERED)} | PLANTED | JUDGED
    plains: dict[Program, list[Any]] = {}
    for name, program in programs.items():
        if name not in PLANTED and program not in plains:
            plains[program] = results(program)
        numeric_settings.SETTINGS = tuple(one for one in settings if one[0] in TRIED.get(program, TRIED_ELSE))
        taken.clear()
        with stepscope.trace(Path(folder, name), check_eager=1, **options(name, program)):
            checked = results(program)
        taken.clear()
        plain = plains.get(program)
        same = plain is None or (all(map(equal, plain, checked)) and len(plain) == len(checked))
        sys.stdout.write(f"{name} {'same' if same else 'other'}\n")


if __name__ == "__main__":
    main(sys.argv[1])
