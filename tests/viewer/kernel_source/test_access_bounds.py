"""How far a kernel reaches by its generated source, against the storages of its arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepscope.viewer.graphs.rows import ArgumentRow
from stepscope.viewer.kernel_source.access_bounds import extent_bytes, reaches


def row(number: int, parameter: str, elements: int, offset: int = 0, dtype: str = "float32") -> ArgumentRow:
    width = 8 if dtype == "int64" else 4
    tensor = {
        "item": None, "dtype": dtype, "size": [elements], "stride": [1], "device": "cpu", "offset": offset,
        "storage_bytes": (elements + offset) * width, "storage": 1,
    }  # fmt: skip
    return ArgumentRow(number, f"buf{number}", "in", f"buf{number}", parameter, [tensor])


CPP = """cpp_fused_x = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C"  void  kernel(const float* in_ptr0, const int64_t* in_ptr1, float* out_ptr0, const int64_t ks0)
{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(8L); x0+=static_cast<int64_t>(1L))
    {
        for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(100L); x1+=static_cast<int64_t>(16L))
        {
            auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 100L*x0));
            auto tmp1 = in_ptr1[static_cast<int64_t>(x0)];
            auto tmp2 = in_ptr0[static_cast<int64_t>(tmp1 + 100L*x0)];
            tmp0.store(out_ptr0 + static_cast<int64_t>(x1 + %s));
        }
    }
}
''')"""


@pytest.mark.parametrize(
    ("index", "elements", "offset", "leaves", "ends"),
    [
        ("100L*x0", 800, 0, False, (0, 799)),
        ("100L*x0", 799, 0, True, (0, 799)),
        ("101L*x0", 800, 0, True, (0, 806)),
        ("(-1L) + 100L*x0", 800, 0, True, (-1, 798)),
        ("(-1L) + 100L*x0", 800, 1, False, (-1, 798)),
        ("100L*(x0 % 3L)", 300, 0, False, (0, 299)),
        ("100L*(x0 % 3L)", 250, 0, True, (0, 299)),
        ("100L*(x0 % 3L) + 50L*(x0 % 2L)", 340, 0, None, (0, 349)),
        ("ks0*x0", 800, 0, None, (None, None)),
    ],
)
def test_how_far_loops_reach(
    index: str, elements: int, offset: int, leaves: bool | None, ends: tuple[int | None, int | None]
) -> None:
    """The expected ends are those of the loops: x0 up to 7, x1 up to 99."""
    arguments = [row(0, "in_ptr0", 800), row(1, "in_ptr1", 8, dtype="int64"), row(2, "out_ptr0", elements, offset)]
    found = {(one.parameter, one.does): one for one in reaches(CPP % index, arguments)}
    written = found["out_ptr0", "writes"]
    assert (written.leaves, written.first, written.last) == (leaves, *ends)
    assert found["in_ptr1", "reads"].leaves is False
    gathered = found["in_ptr0", "reads"]
    assert gathered.leaves is None
    assert gathered.why_unknown is not None
    assert gathered.why_unknown.startswith("its index is read from memory")


@pytest.mark.parametrize(("number", "last", "leaves"), [(100, 799, False), (101, 806, True), (-1, 99, True)])
def test_numbers_that_a_launch_gives_bound_the_index(number: int, last: int, leaves: bool) -> None:
    arguments = [row(2, "out_ptr0", 800)]
    (written,) = reaches(CPP % "ks0*x0", arguments, None, {"ks0": number})
    assert (written.last, written.leaves) == (last, leaves)


@pytest.mark.parametrize("end", ["static_cast<int64_t>(ks0*ks0)", "c10::div_floor_integer(ks0*8L, 2L)", "ks0 + 12L"])
def test_numbers_that_a_launch_gives_bound_the_loops(end: str) -> None:
    code = CPP.replace("static_cast<int64_t>(8L)", end) % "100L*x0"
    (written,) = reaches(code, [row(2, "out_ptr0", 1600)], None, {"ks0": 4})
    assert (written.first, written.last, written.leaves) == (0, 1599, False)


def test_sizes_that_a_launch_gives_a_triton_kernel() -> None:
    code = DYNAMIC_TRITON
    (written,) = reaches(code, [row(1, "out_ptr0", 20)])
    assert written.leaves is None
    (written,) = reaches(code, [row(1, "out_ptr0", 20)], None, {"xnumel": 16, "ks0": 4})
    assert (written.first, written.last, written.leaves) == (0, 3 + 8 * 3, True)


DYNAMIC_TRITON = """triton_x = async_compile.triton('triton_x', '''
@triton.jit
def triton_x(out_ptr0, ks0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = (xindex % ks0)
    x1 = xindex // ks0
    tl.store(out_ptr0 + (x0 + 2*ks0*x1), 1.0, xmask)
''', device_str='cuda')"""
MASKED_CPP = """cpp_fused_x = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)
{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(21L); x0+=static_cast<int64_t>(1L))
    {
        auto tmp6 = (x0 >= 3) & (x0 < 19);
        auto tmp7 = [&]
        {
            auto tmp8 = in_ptr0[static_cast<int64_t>((-3L) + x0)];
            return tmp8;
        }
        ;
        out_ptr0[static_cast<int64_t>(x0)] = tmp6 ? tmp7() : 0.0;
    }
}
''')"""
MASKED_TRITON = """triton_x = async_compile.triton('triton_x', '''
@triton.jit
def triton_x(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 21
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp6 = (x0 >= 3) & (x0 < 19)
    tmp7 = tl.load(in_ptr0 + ((-3) + x0), tmp6 & xmask, other=0.0)
    tl.store(out_ptr0 + (x0), tmp7, xmask)
''', device_str='cuda')"""


@pytest.mark.parametrize(
    ("code", "ends"), [(MASKED_CPP, (-3, 17, None)), (MASKED_TRITON, (0, 15, False))], ids=["cpp", "triton"]
)
@pytest.mark.parametrize("room", [16, 18])
def test_what_a_mask_keeps_in_is_not_said_to_leave(code: str, ends: tuple[int, int, bool | None], room: int) -> None:
    """As a padded tensor is read: the index alone would leave the storage."""
    found = reaches(code, [row(0, "in_ptr0", room), row(1, "out_ptr0", 20)])
    assert {(one.does, one.first, one.last, one.leaves) for one in found} == {
        ("reads", *ends), ("writes", 0, 20, True)
    }  # fmt: skip


@pytest.mark.parametrize("bound", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "00"])
def test_a_bound_that_is_no_number_is_not_known(bound: str) -> None:
    code = CPP.replace("static_cast<int64_t>(8L)", bound) % "x0"
    assert {one.leaves for one in reaches(code, [row(2, "out_ptr0", 8)])} == {None}
    triton = MASKED_TRITON.replace("x0 = xindex", f"x0 = (xindex // {bound})")
    assert {one.leaves for one in reaches(triton, [row(1, "out_ptr0", 20)])} == {None}


def test_a_kernel_that_is_not_inductors_says_nothing() -> None:
    assert reaches("def kernel(a): pass", [row(0, "a", 8)]) == []
    unseen = replace(row(2, "out_ptr0", 8), tensors=[])
    (written,) = [one for one in reaches(CPP % "x0", [unseen]) if one.does == "writes"]
    assert (written.leaves, written.room) == (None, None)


@pytest.mark.parametrize(
    ("size", "stride", "offset", "extent"),
    [
        ([4, 8], [8, 1], 0, 128),
        ([4, 8], [0, 1], 2, 40),
        ([0, 8], [8, 1], 5, 0),
        ([], [], 3, 16),
        ([4], [8, 1], 0, None),
    ],
)
def test_where_a_tensor_ends_in_its_storage(
    size: list[int], stride: list[int], offset: int, extent: int | None
) -> None:
    assert extent_bytes({"size": size, "stride": stride, "offset": offset, "dtype": "float32"}) == extent
