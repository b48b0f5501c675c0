"""Writes records of most kinds to a folder, and dies of an exception: `python -m tests.capture.written_kinds FOLDER`"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

import stepscope
from stepscope.tracer.schema.graphs import LaunchSite

kept: list[torch.Tensor] = []


@torch.library.custom_op("written_kinds::stash", mutates_args=())
def stash(x: torch.Tensor) -> torch.Tensor:
    """Keeps what it is given: a lifetime mismatch, and growth."""
    kept.append(x)
    return x + 1


@stash.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def stashing(a: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = (stash(a.sin()) @ a).cos() @ a
    return result


def train(w: torch.Tensor) -> None:
    optimizer = torch.optim.SGD([w], lr=0.1)
    loss = torch.compile(lambda x: (x @ w).relu().sum())
    for _ in range(2):
        loss(torch.ones(8, 8)).backward()
        optimizer.step()
        optimizer.zero_grad()


def sized() -> None:
    """Sizes that the generated code takes as numbers, and that come back."""
    double = torch.compile(lambda x: (x @ x.T) * x.shape[0], dynamic=True)
    for size in (8, 11, 8):
        double(torch.ones(size, 4))


def plain(x: torch.Tensor) -> torch.Tensor:
    """Its code is not in torch's log."""
    return x.sin() @ x


def checked(x: torch.Tensor) -> torch.Tensor:
    """It was to make a buffer, and did not."""
    stepscope.check_memory_step(allocated=["buf99"], freed=[])
    return x


def triton_kernel(recorder: Any) -> None:
    """A stand-in, as Triton runs on no CPU: a wrapper with a kernel whose configuration autotuning has chosen."""
    config = SimpleNamespace(kwargs={"XBLOCK": 8}, num_warps=4, num_stages=1)
    module = ModuleType("wrapper")
    vars(module)["triton_kernel"] = SimpleNamespace(launchers=[SimpleNamespace(config=config)])
    site = LaunchSite(0, "call", 1, "triton_kernel", "triton", [], [])
    recorder._hook._configs.add(SimpleNamespace(graph=0, sites=[site]), module)
    recorder.flush()


def main(folder: str) -> None:
    recorder: Any = stepscope.trace(Path(folder), level="save", check_eager=1).start()
    with torch._inductor.config.patch(force_disable_caches=True, inplace_buffers=False, allow_buffer_reuse=False):
        torch.compile(stashing)(torch.ones(8, 8))
        train(torch.randn(8, 8, requires_grad=True))
        sized()
    torch.compile(plain, backend="eager")(torch.ones(4, 4))
    checked(torch.ones(1))
    triton_kernel(recorder)
    recorder.failed("a hook of this program", RuntimeError("it fails on purpose"))
    raise ValueError("the end of the program")


if __name__ == "__main__":
    main(sys.argv[1])
