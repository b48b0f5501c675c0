"""A program that a signal ends while it is recorded: in the way that its first argument names."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing import Pipe

import torch

WAY = sys.argv[1]
NUMBER = signal.SIGHUP if WAY == "hup" else signal.SIGTERM


@torch.library.custom_op("asked::ask", mutates_args=())
def ask(x: torch.Tensor, now: int) -> torch.Tensor:
    if now:
        os.kill(os.getpid(), NUMBER)
    return x.clone()


@ask.register_fake
def _(x: torch.Tensor, now: int) -> torch.Tensor:
    return torch.empty_like(x)


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x @ x.T).softmax(-1).sum(0)


def asking(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.asked.ask(x.relu(), 1) + 1  # type: ignore[no-any-return]


def calls() -> None:
    compiled = torch.compile(model)
    with torch.inference_mode():
        for seed in range(3):
            compiled(torch.randn(8, 8, generator=torch.Generator().manual_seed(seed)))


def own_handler(*_: object) -> None:
    print("the program's own handler", flush=True)  # noqa: T201
    sys.exit(3)


def main() -> None:
    if WAY == "own":
        signal.signal(signal.SIGTERM, own_handler)
    if WAY == "forked":
        ours, theirs = Pipe()
        if pid := os.fork():
            ours.recv()
            os.kill(pid, signal.SIGTERM)
            print(os.waitpid(pid, 0)[1])  # noqa: T201
            return
        calls()
        theirs.send("ready")
        signal.pause()
    calls()
    if WAY == "given back":  # as a server does that ends itself by the signal that it has handled
        before = signal.signal(signal.SIGTERM, own_handler)
        signal.signal(signal.SIGTERM, before)
    print(signal.getsignal(NUMBER) is signal.SIG_DFL, flush=True)  # noqa: T201
    if WAY == "within":
        torch.compile(asking)(torch.randn(8, 8))
    os.kill(os.getpid(), NUMBER)


if __name__ == "__main__":
    main()
