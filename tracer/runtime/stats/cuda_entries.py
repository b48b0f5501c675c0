"""Triton kernels that read up to 1, 4, 16 or 64 tensors; each program reads a part of one tensor.

Addresses, sizes and plans are arguments, so that a launch needs no copy to the device.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
from triton import language as tl

from stepscope.tracer.runtime.stats.cuda_kernel import read_part


@triton.jit
def _find(program, addresses, numels, plans, FIRST: tl.constexpr, COUNT: tl.constexpr):
    """Return address, numel, plan and number of the tensor that `program` reads, by bisection."""
    if COUNT == 1:
        address, numel, plan = addresses[FIRST], numels[FIRST], plans[FIRST]
        index = tl.full((), FIRST, tl.int64)
    else:
        HALF: tl.constexpr = COUNT // 2
        if program < ((plans[FIRST + HALF] >> 9) & 0x7FFFFF):
            address, numel, plan, index = _find(program, addresses, numels, plans, FIRST, HALF)
        else:
            address, numel, plan, index = _find(program, addresses, numels, plans, FIRST + HALF, HALF)
    return address, numel, plan, index


@triton.jit(do_not_specialize=list(range(5)))
def read1(
    slots: tl.int64, table: tl.int64,
    a0: tl.int64,
    n0: tl.int64,
    p0: tl.int64,
    VIEWS: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    index = tl.zeros_like(program)
    address, numel, plan = a0, n0, p0
    read_part(slots, table, address, numel, plan, index, program, VIEWS, PACKED)


@triton.jit(do_not_specialize=list(range(14)))
def read4(
    slots: tl.int64, table: tl.int64,
    a0: tl.int64, a1: tl.int64, a2: tl.int64, a3: tl.int64,
    n0: tl.int64, n1: tl.int64, n2: tl.int64, n3: tl.int64,
    p0: tl.int64, p1: tl.int64, p2: tl.int64, p3: tl.int64,
    VIEWS: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    address, numel, plan, index = _find(program, (a0, a1, a2, a3), (n0, n1, n2, n3), (p0, p1, p2, p3), 0, 4)
    read_part(slots, table, address, numel, plan, index, program, VIEWS, PACKED)


@triton.jit(do_not_specialize=list(range(50)))
def read16(
    slots: tl.int64, table: tl.int64,
    a0: tl.int64, a1: tl.int64, a2: tl.int64, a3: tl.int64, a4: tl.int64, a5: tl.int64, a6: tl.int64, a7: tl.int64,
    a8: tl.int64, a9: tl.int64, a10: tl.int64, a11: tl.int64, a12: tl.int64, a13: tl.int64, a14: tl.int64,
    a15: tl.int64,
    n0: tl.int64, n1: tl.int64, n2: tl.int64, n3: tl.int64, n4: tl.int64, n5: tl.int64, n6: tl.int64, n7: tl.int64,
    n8: tl.int64, n9: tl.int64, n10: tl.int64, n11: tl.int64, n12: tl.int64, n13: tl.int64, n14: tl.int64,
    n15: tl.int64,
    p0: tl.int64, p1: tl.int64, p2: tl.int64, p3: tl.int64, p4: tl.int64, p5: tl.int64, p6: tl.int64, p7: tl.int64,
    p8: tl.int64, p9: tl.int64, p10: tl.int64, p11: tl.int64, p12: tl.int64, p13: tl.int64, p14: tl.int64,
    p15: tl.int64,
    VIEWS: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    addresses = (a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15)
    numels = (n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13, n14, n15)
    plans = (p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15)
    program = tl.program_id(0).to(tl.int64)
    address, numel, plan, index = _find(program, addresses, numels, plans, 0, 16)
    read_part(slots, table, address, numel, plan, index, program, VIEWS, PACKED)


@triton.jit(do_not_specialize=list(range(194)))
def read64(
    slots: tl.int64, table: tl.int64,
    a0: tl.int64, a1: tl.int64, a2: tl.int64, a3: tl.int64, a4: tl.int64, a5: tl.int64, a6: tl.int64, a7: tl.int64,
    a8: tl.int64, a9: tl.int64, a10: tl.int64, a11: tl.int64, a12: tl.int64, a13: tl.int64, a14: tl.int64,
    a15: tl.int64, a16: tl.int64, a17: tl.int64, a18: tl.int64, a19: tl.int64, a20: tl.int64, a21: tl.int64,
    a22: tl.int64, a23: tl.int64, a24: tl.int64, a25: tl.int64, a26: tl.int64, a27: tl.int64, a28: tl.int64,
    a29: tl.int64, a30: tl.int64, a31: tl.int64, a32: tl.int64, a33: tl.int64, a34: tl.int64, a35: tl.int64,
    a36: tl.int64, a37: tl.int64, a38: tl.int64, a39: tl.int64, a40: tl.int64, a41: tl.int64, a42: tl.int64,
    a43: tl.int64, a44: tl.int64, a45: tl.int64, a46: tl.int64, a47: tl.int64, a48: tl.int64, a49: tl.int64,
    a50: tl.int64, a51: tl.int64, a52: tl.int64, a53: tl.int64, a54: tl.int64, a55: tl.int64, a56: tl.int64,
    a57: tl.int64, a58: tl.int64, a59: tl.int64, a60: tl.int64, a61: tl.int64, a62: tl.int64, a63: tl.int64,
    n0: tl.int64, n1: tl.int64, n2: tl.int64, n3: tl.int64, n4: tl.int64, n5: tl.int64, n6: tl.int64, n7: tl.int64,
    n8: tl.int64, n9: tl.int64, n10: tl.int64, n11: tl.int64, n12: tl.int64, n13: tl.int64, n14: tl.int64,
    n15: tl.int64, n16: tl.int64, n17: tl.int64, n18: tl.int64, n19: tl.int64, n20: tl.int64, n21: tl.int64,
    n22: tl.int64, n23: tl.int64, n24: tl.int64, n25: tl.int64, n26: tl.int64, n27: tl.int64, n28: tl.int64,
    n29: tl.int64, n30: tl.int64, n31: tl.int64, n32: tl.int64, n33: tl.int64, n34: tl.int64, n35: tl.int64,
    n36: tl.int64, n37: tl.int64, n38: tl.int64, n39: tl.int64, n40: tl.int64, n41: tl.int64, n42: tl.int64,
    n43: tl.int64, n44: tl.int64, n45: tl.int64, n46: tl.int64, n47: tl.int64, n48: tl.int64, n49: tl.int64,
    n50: tl.int64, n51: tl.int64, n52: tl.int64, n53: tl.int64, n54: tl.int64, n55: tl.int64, n56: tl.int64,
    n57: tl.int64, n58: tl.int64, n59: tl.int64, n60: tl.int64, n61: tl.int64, n62: tl.int64, n63: tl.int64,
    p0: tl.int64, p1: tl.int64, p2: tl.int64, p3: tl.int64, p4: tl.int64, p5: tl.int64, p6: tl.int64, p7: tl.int64,
    p8: tl.int64, p9: tl.int64, p10: tl.int64, p11: tl.int64, p12: tl.int64, p13: tl.int64, p14: tl.int64,
    p15: tl.int64, p16: tl.int64, p17: tl.int64, p18: tl.int64, p19: tl.int64, p20: tl.int64, p21: tl.int64,
    p22: tl.int64, p23: tl.int64, p24: tl.int64, p25: tl.int64, p26: tl.int64, p27: tl.int64, p28: tl.int64,
    p29: tl.int64, p30: tl.int64, p31: tl.int64, p32: tl.int64, p33: tl.int64, p34: tl.int64, p35: tl.int64,
    p36: tl.int64, p37: tl.int64, p38: tl.int64, p39: tl.int64, p40: tl.int64, p41: tl.int64, p42: tl.int64,
    p43: tl.int64, p44: tl.int64, p45: tl.int64, p46: tl.int64, p47: tl.int64, p48: tl.int64, p49: tl.int64,
    p50: tl.int64, p51: tl.int64, p52: tl.int64, p53: tl.int64, p54: tl.int64, p55: tl.int64, p56: tl.int64,
    p57: tl.int64, p58: tl.int64, p59: tl.int64, p60: tl.int64, p61: tl.int64, p62: tl.int64, p63: tl.int64,
    VIEWS: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    addresses = (
        a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23,
        a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, a40, a41, a42, a43, a44, a45,
        a46, a47, a48, a49, a50, a51, a52, a53, a54, a55, a56, a57, a58, a59, a60, a61, a62, a63,
    )  # fmt: skip
    numels = (
        n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13, n14, n15, n16, n17, n18, n19, n20, n21, n22, n23,
        n24, n25, n26, n27, n28, n29, n30, n31, n32, n33, n34, n35, n36, n37, n38, n39, n40, n41, n42, n43, n44, n45,
        n46, n47, n48, n49, n50, n51, n52, n53, n54, n55, n56, n57, n58, n59, n60, n61, n62, n63,
    )  # fmt: skip
    plans = (
        p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16, p17, p18, p19, p20, p21, p22, p23,
        p24, p25, p26, p27, p28, p29, p30, p31, p32, p33, p34, p35, p36, p37, p38, p39, p40, p41, p42, p43, p44, p45,
        p46, p47, p48, p49, p50, p51, p52, p53, p54, p55, p56, p57, p58, p59, p60, p61, p62, p63,
    )  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    address, numel, plan, index = _find(program, addresses, numels, plans, 0, 64)
    read_part(slots, table, address, numel, plan, index, program, VIEWS, PACKED)
