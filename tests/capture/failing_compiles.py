"""Compiles to which PyTorch gives no id: one by Inductor alone that fails, and one of AOTInductor that fails too; the
program catches both. ``python -m tests.capture.failing_compiles``"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import lowering
from torch._inductor.compile_fx import compile_fx
from torch.fx.experimental.proxy_tensor import make_fx


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu()


def broken(*arguments: Any, **named: Any) -> Any:
    raise NotImplementedError("planted: no lowering")


def main() -> None:
    x = torch.ones(8, 8)
    with torch.no_grad():
        compile_fx(make_fx(Model())(x), [x])
        lowering.lowerings[torch.ops.aten.relu.default] = broken
        compiles: list[Callable[[], Any]] = [
            lambda: compile_fx(make_fx(Model())(x + 1), [x]),
            lambda: torch._inductor.aoti_compile_and_package(torch.export.export(Model(), (x,))),
        ]
        for compile_it in compiles:
            try:
                compile_it()
            except Exception as error:
                if "planted" not in str(error):
                    raise
            else:
                raise AssertionError("it was to fail")


if __name__ == "__main__":
    main()
