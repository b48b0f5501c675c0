"""Three hundred launches, one of which may write where it must not: ``python -m tests.gpu.ring_program FOLDER HOW``.

HOW: ``plain``; ``second``: on the second device, while the first one is current; ``graphs``: Inductor's CUDA graphs;
``manual``: a CUDA graph of the program's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

import stepscope

try:
    import triton
    from triton import language as tl
except ImportError:  # a CPU build of torch brings no Triton
    triton = tl = None

LAUNCHES = 300
PLANTED = 137
FAULTY_STEP = 6
ELEMENTS = 1 << 16

if triton is not None:
    # Inductor copies the text of the kernel: what its annotations name must be there too.
    @triton.jit  # type: ignore[untyped-decorator]
    def add_one(source, target, shifts, which, elements, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        shift = tl.load(shifts + which)
        value = tl.load(source + place, mask=place < elements)
        tl.store(target + place + shift, value + 1.0, mask=place < elements)


def chain(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    for which in range(LAUNCHES):
        out = torch.empty_like(x)
        add_one[(ELEMENTS // 1024,)](x, out, offsets, which, ELEMENTS, BLOCK=1024)
        x = out
    return x


def replayed(run: Callable[..., torch.Tensor], x: torch.Tensor, offsets: torch.Tensor) -> Callable[[], torch.Tensor]:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for _ in range(2):
            run(x, offsets)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(x, offsets)

    def replay() -> torch.Tensor:
        graph.replay()
        return out

    return replay


def main() -> int:
    folder, how = sys.argv[1:]
    device = "cuda:1" if how == "second" else "cuda:0"
    x = torch.zeros(ELEMENTS, device=device)
    offsets = torch.zeros(LAUNCHES, dtype=torch.int64, device=device)
    with_graphs = how == "graphs"
    compiled: Callable[..., torch.Tensor] = torch.compile(chain, mode="reduce-overhead" if with_graphs else None)
    stepscope.trace(folder).start()
    run = replayed(compiled, x, offsets) if how == "manual" else lambda: compiled(x, offsets)
    for step in range(FAULTY_STEP + 1):
        if step == FAULTY_STEP:
            torch.cuda.synchronize(device)
            offsets[PLANTED] = 1 << 40
        if with_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        run()
        stepscope.step()
    torch.cuda.synchronize(device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
