"""Triton kernels that clear rows of an arena and copy them to the host."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
from triton import language as tl

from stepscope.tracer.runtime.stats import cuda_rows as layout

FLAG_WORDS = tl.constexpr(layout.FLAG_WORDS)


@triton.jit(do_not_specialize=list(range(2)))
def clear(slots: tl.int64, words: tl.int64, COPY_WORDS: tl.constexpr):
    place = tl.program_id(0) * COPY_WORDS + tl.arange(0, COPY_WORDS)
    tl.store(slots.to(tl.pointer_type(tl.int64)) + place, tl.zeros((COPY_WORDS,), tl.int64), mask=place < words)


@triton.jit(do_not_specialize=list(range(4)))
def copy(
    slots: tl.int64, host: tl.int64, words: tl.int64, mark: tl.int64, CLEAR: tl.constexpr, COPY_WORDS: tl.constexpr
):
    """Copy rows to pinned memory, after `FLAG_WORDS` flags; each program sets its flag when its words are copied."""
    program = tl.program_id(0)
    place = program * COPY_WORDS + tl.arange(0, COPY_WORDS)
    source = slots.to(tl.pointer_type(tl.int64)) + place
    target = host.to(tl.pointer_type(tl.int64))
    found = tl.load(source, mask=place < words)
    tl.store(target + FLAG_WORDS + place, found, mask=place < words)
    if CLEAR:
        tl.store(source, tl.zeros((COPY_WORDS,), tl.int64), mask=place < words)
    tl.inline_asm_elementwise("fence.sc.sys; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.debug_barrier()
    tl.store(target + program, mark)
