"""A compiled program that dies in its fourth step: ``python -m tests.capture.dying_program HOW[-WHERE]``.

The operators that it may die in print what they are given: an account of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import torch
import torch._inductor.config

LAST_STEP = 3
FAR = 1 << 40
FORKED = "kernel", "null-backward", "raise"
"""What children die of that one process forks."""
HOW, _, WHERE = sys.argv[1].partition("-")

torch.set_num_threads(1)
torch._inductor.config.assert_indirect_indexing = False
torch._inductor.config.cpp_wrapper = WHERE == "wrapper"
torch._inductor.config.aot_inductor.compile_wrapper_opt_level = "O0"


def fail() -> None:
    raise ValueError("planted")


DEATHS: dict[str, Callable[[], object]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
    "exit": lambda: os._exit(3),
    "raise": fail,
    "null": lambda: ctypes.string_at(0),
}
deadly: dict[str, str] = {}


def pass_by(name: str, tensor: torch.Tensor) -> None:
    storage, largest = tensor.untyped_storage(), float(tensor.abs().max())
    account = [name, list(tensor.shape), list(tensor.stride()), storage.nbytes(), hex(storage.data_ptr()), largest]
    print(json.dumps(account), flush=True)  # noqa: T201
    if name in deadly:
        DEATHS[deadly[name]]()


@torch.library.custom_op("planted::forward", mutates_args=())
def forward(x: torch.Tensor) -> torch.Tensor:
    pass_by("forward", x)
    return x * 2


@torch.library.custom_op("planted::backward", mutates_args=())
def backward(gradient: torch.Tensor) -> torch.Tensor:
    pass_by("backward", gradient)
    return gradient * 2


for operator in (forward, backward):
    operator.register_fake(torch.empty_like)
forward.register_autograd(lambda context, gradient: backward(gradient))


@torch.compile
def model(x: torch.Tensor, w: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    y = (x @ w).relu()
    if WHERE != "wrapper":
        y = forward(y)
    return y[index].sin().sum()


w = torch.ones(16, 16, requires_grad=WHERE != "wrapper")
optimizer = torch.optim.SGD([torch.ones(1)] if WHERE == "wrapper" else [w], lr=1e-3)


def step(index: torch.Tensor) -> None:
    loss = model(torch.ones(8, 16), w, index)
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()


def steps(rank: int = 0, how: str = HOW, where: str = WHERE) -> None:
    for number in range(LAST_STEP + 1):
        index = torch.arange(4)
        if number == LAST_STEP and how == "kernel":
            index[1] += FAR
        elif number == LAST_STEP and how == "idle":
            subprocess.Popen(["kill", "-9", str(os.getpid())])
            signal.pause()
        elif number == LAST_STEP:
            deadly["backward" if where == "backward" else "forward"] = how
        step(index)


def main() -> None:
    if WHERE == "thread":
        thread = threading.Thread(target=steps)
        thread.start()
        thread.join()
    elif WHERE == "spawn":
        torch.multiprocessing.spawn(steps)  # type: ignore[attr-defined,no-untyped-call]
    elif HOW == "fork":
        model(torch.ones(8, 16), w, torch.arange(4))  # no backward, whose threads a child may not have
        for how in FORKED:
            if not (pid := os.fork()):
                steps(0, *how.partition("-")[::2])
                return
            os.waitpid(pid, 0)
    else:
        steps()


if __name__ == "__main__":
    main()
