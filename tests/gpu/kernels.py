"""A Triton kernel as a user would write it."""

from __future__ import annotations

import torch

try:
    import triton
    from triton import language as tl
except ImportError:  # a CPU build of torch brings no Triton
    triton = tl = None

if triton is not None:
    # Inductor copies the text of the kernel: what its annotations name must be there too.
    @triton.jit  # type: ignore[untyped-decorator]
    def double_kernel(source, target, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(target + offsets, tl.load(source + offsets, mask=mask) * 2, mask=mask)


def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
