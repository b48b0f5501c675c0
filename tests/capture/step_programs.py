"""Small programs of many kinds, each with a known number of iterations. `run` records them with no change.

    python -m tests.capture.step_programs FOLDER NAME...

Most of what they compile are matrix products alone: Inductor has no kernel to compile for those.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import stepscope

WEIGHT = torch.full((8, 8), 0.1)
PROGRAMS: dict[str, tuple[Callable[[], None], dict[str, int]]] = {}


def program(**steps: int) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """`steps`: how many there are of each kind."""

    def add(function: Callable[[], None]) -> Callable[[], None]:
        PROGRAMS[function.__name__] = function, steps
        return function

    return add


def compiled(function: Any, backend: str = "inductor") -> Any:
    return torch.compile(function, backend=backend)


def batches(count: int) -> Iterator[torch.Tensor]:
    for _ in range(count):
        yield torch.randn(4, 8)


def model(outputs: int = 1) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, outputs, bias=False))


def product(x: torch.Tensor) -> torch.Tensor:
    return x @ WEIGHT


def update(loss: torch.Tensor, *optimizers: torch.optim.Optimizer) -> None:
    torch.autograd.backward(loss)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


@program(train=5)
def graph_break() -> None:
    linear = nn.Linear(8, 8, bias=False)

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = product(x)  # needs no gradient
        torch._dynamo.graph_break()
        return linear(y)  # type: ignore[no-any-return]

    function, optimizer = compiled(forward), torch.optim.SGD(linear.parameters(), 0.1)
    for x in batches(5):
        update(function(x).sum(), optimizer)


@program(train=5)
def eager_backend() -> None:
    net = model()
    function, optimizer = compiled(net, "eager"), torch.optim.AdamW(net.parameters())
    metric = compiled(lambda y: y.detach().abs().mean(), "eager")
    for x in batches(5):
        y = function(x)
        update(y.sum(), optimizer)
        metric(y)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = model(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y


@program(train=6)
def blocks_and_a_function_after_the_optimizer() -> None:
    blocks = nn.Sequential(*(Block() for _ in range(4)))
    for block in blocks:
        block.compile()
    head, metric = compiled(nn.Linear(8, 1, bias=False)), compiled(product)
    optimizer = torch.optim.AdamW(blocks.parameters())
    for x in batches(6):
        y = blocks(x)
        update(head(y).sum(), optimizer)
        metric(y.detach())


@program(train=6)
def adversarial_networks() -> None:
    maker, critic = model(8), model()
    make, judge = compiled(maker), compiled(lambda x: critic(x))
    of_maker, of_critic = torch.optim.Adam(maker.parameters()), torch.optim.Adam(critic.parameters())
    for x in batches(6):
        update(judge(make(torch.randn(4, 8)).detach()).mean() - judge(x).mean(), of_critic)
        update(-judge(make(torch.randn(4, 8))).mean(), of_maker)


@program(train=4)
def three_steps_of_the_critic() -> None:
    maker, critic = model(8), model()
    make, judge = compiled(lambda z: maker(z)), compiled(lambda x: critic(x))
    of_maker, of_critic = torch.optim.RMSprop(maker.parameters()), torch.optim.RMSprop(critic.parameters())
    for _ in range(4):
        for x in batches(3):
            with torch.no_grad():
                made = make(torch.randn(4, 8))
            update(judge(made).mean() - judge(x).mean(), of_critic)
        update(-judge(make(torch.randn(4, 8))).mean(), of_maker)


@program(train=5)
def actor_and_critic() -> None:
    actor, critic = model(), model()
    act, judge = compiled(lambda x: actor(x)), compiled(lambda x: critic(x))
    of_actor, of_critic = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
    for _ in range(5):
        with torch.no_grad():
            for x in batches(9):
                act(x)
        loss = sum((act(x) * judge(x)).mean() for x in batches(1))
        update(torch.as_tensor(loss), of_actor, of_critic)


@program(train=3)
def rollout_and_several_updates() -> None:
    net = model()
    act, optimizer = compiled(net), torch.optim.Adam(net.parameters())
    judge = compiled(lambda x: net(x))
    for _ in range(3):
        with torch.no_grad():
            seen = [x for x in batches(12) if act(x) is not None]
        for x in seen[:4]:
            update(judge(x).sum(), optimizer)


@program(train=5)
def gradient_accumulation() -> None:
    net = model()
    function, optimizer = compiled(net), torch.optim.SGD(net.parameters(), 0.1)
    for at, x in enumerate(batches(20)):
        function(x).sum().backward()
        if at % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


@program(train=8)
def scaler_that_skips() -> None:
    net = model()
    function, optimizer = compiled(net), torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=True)
    for at, x in enumerate(batches(8)):
        loss = function(x).sum() * (float("inf") if at in (0, 3) else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@program(train=8, inference=6)
def evaluation_between_epochs() -> None:
    net = model()
    function, optimizer = compiled(net), torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        net.train()
        for x in batches(4):
            update(function(x).sum(), optimizer)
        net.eval()
        with torch.no_grad():
            for x in batches(3):
                function(x)


@program(train=7)
def one_training_after_the_other() -> None:
    for count in (4, 3):
        net = model()
        function, optimizer = compiled(lambda x, net=net: net(x)), torch.optim.SGD(net.parameters(), 0.1)
        for x in batches(count):
            update(function(x).sum(), optimizer)


@program(train=5)
def update_by_hand() -> None:
    net = model()
    function = compiled(net)
    for x in batches(5):
        function(x).sum().backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.sub_(0.1 * torch.as_tensor(parameter.grad))
                parameter.grad = None


@program(train=5)
def compiled_optimizer() -> None:
    net = model()
    function, optimizer = compiled(net), torch.optim.SGD(net.parameters(), 0.1)
    step = compiled(optimizer.step, "eager")
    for x in batches(5):
        function(x).sum().backward()
        step()
        optimizer.zero_grad()


@program(train=4)
def optimizers_in_the_backward_pass() -> None:
    net = model()
    function = compiled(net)
    of = {parameter: torch.optim.SGD([parameter], 0.1) for parameter in net.parameters()}

    def step(parameter: torch.Tensor) -> None:
        of[parameter].step()  # type: ignore[index]
        of[parameter].zero_grad()  # type: ignore[index]

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]
    for x in batches(4):
        function(x).sum().backward()


@program(inference=12)
def serving_with_warm_up() -> None:
    function = compiled(model().eval())
    with torch.no_grad():
        for size in (1, 2, 4, 8, 1, 2, 4, 4, 8, 2, 1, 4):
            function(torch.randn(size, 8))


@program(inference=4)
def prompt_and_tokens() -> None:
    prompt, token = compiled(lambda x: x @ x.T @ x), compiled(product)
    for tokens in (3, 5, 2, 4):
        x = prompt(torch.randn(4, 8))
        for _ in range(tokens):
            x = token(x)


@program(inference=8)
def threads_that_serve() -> None:
    function, after = compiled(model(8).eval()), compiled(product)
    with torch.no_grad():
        after(function(torch.randn(4, 8)))

    def serve() -> None:
        with torch.no_grad():
            for x in batches(3 if threading.current_thread().name == "a" else 4):
                after(function(x))

    threads = [threading.Thread(target=serve, name=name) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@program(train=5)
def marked_by_the_program() -> None:
    net = model()
    function, optimizer = compiled(net), torch.optim.SGD(net.parameters(), 0.1)
    for x in batches(5):
        update(function(x).sum(), optimizer)
        function(x)
        stepscope.step()


@program(train=6)
def recompiles_in_the_middle() -> None:
    net = model()
    function, optimizer = compiled(lambda x, n: net(x) @ torch.ones(1, n)), torch.optim.SGD(net.parameters(), 0.1)
    for at, x in enumerate(batches(6)):
        update(function(x[: 2 + at // 2], 2 + at // 3).sum(), optimizer)


class Noisy(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.function = compiled(torch.sin, "eager")

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        changed: torch.Tensor = self.function(torch.full((8,), float(index)))
        return changed


@program(train=4, data=2)
def loader_with_workers() -> None:
    data, net = Noisy(), model()
    loader = torch.utils.data.DataLoader(data, batch_size=3, num_workers=2, multiprocessing_context="fork")
    function, optimizer = compiled(net, "eager"), torch.optim.SGD(net.parameters(), 0.1)
    for x in loader:
        update(function(x).sum(), optimizer)


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    for name in names:
        torch._dynamo.reset()
        torch.manual_seed(0)
        with stepscope.trace(folder / name):
            PROGRAMS[name][0]()


if __name__ == "__main__":
    main()
