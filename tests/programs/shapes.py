"""Programs whose sizes are known only when they run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.programs import Step, program


@program()
def dynamic_shapes() -> Step:
    @torch.compile(dynamic=True)
    def run(value: Tensor) -> Tensor:
        return (value @ value.t()).sum(0).relu()

    values = [torch.randn(size, 8) for size in (4, 6, 9)]
    return lambda: [run(value) for value in values]


@program()
def unbacked_nonzero() -> Step:
    @torch.compile(fullgraph=True)
    def run(value: Tensor, count: Tensor) -> Any:
        rows = value[value.sum(1) > 0]
        return rows @ rows.t(), torch.full((count.item(), 2), 3.0).cos()  # type: ignore[arg-type]

    values, count = torch.randn(8, 8), torch.tensor(5)

    def step() -> Any:
        with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
            return run(values, count), run(-values, count - 2)

    return step
