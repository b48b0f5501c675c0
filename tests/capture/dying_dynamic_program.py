"""A compiled program with dynamic sizes whose processes die in one of its operators each, which print what they are
given: ``python -m tests.capture.dying_dynamic_program``."""

from __future__ import annotations

import ctypes
import json
import os

import torch

torch.set_num_threads(1)
SIZES = 16, 17, 18
FORKED = {"made": 16, "in_place": 17, "several": 18}
"""Operators that children of the first process die in, with the size of the call in which they do."""
deadly = ""


def pass_by(name: str, tensor: torch.Tensor) -> None:
    storage = tensor.untyped_storage()
    print(json.dumps([os.getpid(), name, list(tensor.shape), storage.nbytes(), hex(storage.data_ptr())]), flush=True)  # noqa: T201
    if name == deadly:
        ctypes.string_at(0)


@torch.library.custom_op("sized::made", mutates_args=())
def made(x: torch.Tensor) -> torch.Tensor:
    pass_by("made", x)
    return x + 1


@torch.library.custom_op("sized::in_place", mutates_args=("x",))
def in_place(x: torch.Tensor) -> None:
    pass_by("in_place", x)
    x.add_(1)


@torch.library.custom_op("sized::several", mutates_args=())
def several(x: torch.Tensor) -> list[torch.Tensor]:
    pass_by("several", x)
    return [x + 1, x + 2]


made.register_fake(torch.empty_like)
several.register_fake(lambda x: [torch.empty_like(x), torch.empty_like(x)])


@torch.compile(dynamic=True)
def model(x: torch.Tensor) -> torch.Tensor:
    y = made((x @ x).relu())
    in_place(y)
    one, other = several(y.sin())
    result: torch.Tensor = (one @ other).cos()
    return result


def main() -> None:
    global deadly
    for size in SIZES:
        model(torch.ones(size, size))
    for name, size in FORKED.items():
        if not (child := os.fork()):
            deadly = name
            model(torch.ones(size, size))
        os.waitpid(child, 0)
    model(torch.ones(SIZES[0], SIZES[0]))
    deadly = "made"
    model(torch.ones(SIZES[1], SIZES[1]))


if __name__ == "__main__":
    main()
