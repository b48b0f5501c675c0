"""A compiled program whose fourth step raises a C++ exception: ``python -m tests.capture.raising_program HOW FOLDER``.

HOW: the operator that raises is called by a ``python`` or by a ``cpp`` wrapper. FOLDER keeps its library.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch._inductor.config
from torch.utils import cpp_extension

HOW, FOLDER = sys.argv[1], Path(sys.argv[2])
LAST_STEP = 3
SOURCE = r"""
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

namespace planted {
at::Tensor check_positive(const at::Tensor& x) {
  TORCH_CHECK(x.min().item<float>() >= 0, "planted: an element is negative");
  return x.mul(2);
}
}  // namespace planted

TORCH_LIBRARY(planted, library) { library.def("positive(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(planted, CPU, library) { library.impl("positive", planted::check_positive); }
"""

torch.set_num_threads(1)
torch._inductor.config.cpp_wrapper = HOW == "cpp"
torch._inductor.config.aot_inductor.compile_wrapper_opt_level = "O0"


def load() -> None:
    library = FOLDER / "planted.so"
    if not library.exists():
        source = FOLDER / "planted.cpp"
        source.write_text(SOURCE)
        includes = [f"-I{path}" for path in cpp_extension.include_paths()]
        libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
        flags = ["-O0", "-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
        standard = "-std=c++20" if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12) else "-std=c++17"
        subprocess.run(
            [
                os.environ.get("CXX", "g++"),
                standard,
                *flags,
                str(source),
                *includes,
                *libraries,
                "-lc10",
                "-ltorch_cpu",
                "-o",
                str(library),
            ],
            check=True,
        )
    torch.ops.load_library(library)  # type: ignore[no-untyped-call]
    torch.library.register_fake("planted::positive", torch.empty_like)


@torch.compile
def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = torch.ops.planted.positive((x @ w).relu() + w)
    return y.sin().sum()


def main() -> None:
    load()
    with torch.no_grad():
        for step in range(LAST_STEP + 1):
            model(torch.ones(8, 8), torch.full((8, 8), -1.0 if step == LAST_STEP else 1.0))


if __name__ == "__main__":
    main()
