"""Compiles one small model into a package for each level of the debug printer; run as ``python -m`` by the tests.

Arguments: a folder, then names of packages. ``printed`` takes its level from the environment, and runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

PRINTER = "aot_inductor.debug_intermediate_value_printer"
FAST = {"aot_inductor.compile_wrapper_opt_level": "O0"}
SETTINGS: dict[str, dict[str, object]] = {
    "printed": {},
    "launches": {PRINTER: "3", "cpp.enable_kernel_profile": True},
    "save": {PRINTER: "1"},
}


class Model(torch.nn.Module):
    """Takes the logarithm of negative numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        hidden = torch.log(self.linear(value).relu() - 1)
        return (hidden @ hidden.t()).sin()


def main(folder: Path, names: list[str]) -> None:
    torch.manual_seed(0)
    value = torch.ones(8, 16)
    for name in names:
        exported = torch.export.export(Model(), (value,))
        package = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(folder / f"{name}.pt2"), inductor_configs={**FAST, **SETTINGS[name]}
        )
        if name == "printed":
            loaded = torch._inductor.aoti_load_package(package)
            for n in range(3):
                loaded(value)
                sys.stdout.write(f"own line {n}\n")
                sys.stdout.flush()
        if name == "launches":
            loaded = torch._inductor.aoti_load_package(package)
            with torch.profiler.profile() as profile:
                loaded(value)
                loaded(value)
            profile.export_chrome_trace(str(folder / "profile.json"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
