"""Programs that make Inductor write its wrapper in another way."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention as attention

from tests.programs import Step, program


def _product(value: Tensor) -> Tensor:
    return (value @ value).relu()


def _chain(value: Tensor) -> Tensor:
    return ((value @ value).sin() @ value).sum(0) @ value


@program()
def inference() -> Step:
    model = torch.compile(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval())
    value = torch.randn(4, 8)

    def step() -> Any:
        with torch.no_grad():
            return model(value)

    return step


@program(graph_partition=True)
def partition_on() -> Step:
    run, value = torch.compile(_chain), torch.randn(8, 8)
    return lambda: run(value)


@program(graph_partition=False)
def partition_off() -> Step:
    run, value = torch.compile(_chain), torch.randn(8, 8)
    return lambda: run(value)


@program(memory_planning=True)
def memory_planning() -> Step:
    run, value = torch.compile(_chain), torch.randn(8, 8)
    return lambda: run(value)


# The C++ template takes constant weights only, and with ATEN among the backends timing would choose.
@program(max_autotune=True, max_autotune_gemm_backends="CPP", freezing=True)
def max_autotune() -> Step:
    model = torch.compile(nn.Sequential(nn.Linear(64, 64), nn.ReLU()).eval())
    value = torch.randn(64, 64)

    def step() -> Any:
        with torch.no_grad():
            return model(value)

    return step


@program()
def flex_attention() -> Step:
    @torch.compile
    def run(query: Tensor, key: Tensor, value: Tensor) -> Any:
        return attention(query, key, value, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1)

    inputs = [torch.randn(1, 2, 32, 16) for _ in range(3)]

    def step() -> Any:
        with torch.no_grad():
            return run(*inputs)

    return step


@program(cpp_wrapper=True)
def cpp_wrapper() -> Step:
    run, value = torch.compile(_product), torch.randn(8, 8)
    return lambda: run(value)


@program()
def threads() -> Step:
    run = torch.compile(_chain)
    values = [torch.randn(8, 8) for _ in range(4)]

    def step() -> Any:
        results: dict[int, Tensor] = {}

        def work(index: int) -> None:
            results[index] = run(values[index])

        workers = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return [results[index] for index in range(4)]

    return step
