"""One small model as Python wrapper, as C++ wrapper and as package, called twice each; run by tests.

Arguments: a folder, then which of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch

FAST = {"aot_inductor.compile_wrapper_opt_level": "O0"}


class Model(torch.nn.Module):
    """Has a buffer, an input that it does not use, and several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)
        self.register_buffer("shift", torch.ones(16))

    def forward(self, value: torch.Tensor, unused: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.log(self.linear(value).relu() + self.shift)
        return (hidden @ hidden.t()).sin(), hidden.cumsum(0)


def package(folder: Path) -> Callable[..., object]:
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(Model(), inputs(8), dynamic_shapes={"value": {0: batch}, "unused": None})
    path = torch._inductor.aoti_compile_and_package(
        exported, package_path=str(folder / "model.pt2"), inductor_configs=FAST
    )
    loaded: Callable[..., object] = torch._inductor.aoti_load_package(path)
    return loaded


def inputs(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(size, 16), torch.zeros(3)


def main(folder: Path, names: list[str]) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        for name in names:
            torch._dynamo.reset()  # a compiled graph is not guarded against other settings
            torch._inductor.config.cpp_wrapper = name == "cpp"
            model = package(folder) if name == "package" else torch.compile(Model(), dynamic=False)
            for size in (8, 12) if name == "package" else (8, 8):
                model(*inputs(size))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
