"""Indices that a kernel reads from memory, bounded by what their tensors held."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from stepscope.viewer.findings.crash.suspects import Suspect, reach_sentence
from stepscope.viewer.kernel_source.access_bounds import reaches, user_reaches
from tests.viewer.kernel_source.test_access_bounds import row
from tests.viewer.kernel_source.test_triton_ranges import definition

CPP = """
k = async_compile.cpp_pybinding(['const int64_t*', 'const float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const int64_t* in_ptr0,
                       const float* in_ptr1,
                       float* out_ptr0)
{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(4L); x0+=static_cast<int64_t>(1L))
    {
        for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(16L); x1+=static_cast<int64_t>(16L))
        {
            auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
            auto tmp6 = static_cast<int64_t>(2);
            auto tmp7 = int64_t(tmp0 + tmp6);
            auto tmp8 = 8L;
            auto tmp9 = c10::convert<int64_t>(tmp8);
            auto tmp10 = int64_t(tmp7 + tmp9);
            auto tmp11 = tmp7 < 0;
            auto tmp12 = tmp11 ? tmp10 : tmp7;
            auto tmp13 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x1 + 16L*tmp12), 16);
            tmp13.store(out_ptr0 + static_cast<int64_t>(x1 + 16L*x0));
        }
    }
}
''')
"""
UNSIGNED = re.sub(r"int64_t\((tmp\d) \+ (tmp\d)\)", r"int64_t(\1_u + \2_u)", CPP)
UNSIGNED = re.sub(r"(tmp\d)_u", r"static_cast<std::make_unsigned_t<int64_t>>(\1)", UNSIGNED)
"""The same as torch 2.15 writes it, where sums of integers do not overflow."""
TRITON = """
k = async_compile.triton('k', '''
@triton.jit
def k(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 64
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x1 = xindex // 16
    x0 = (xindex % 16)
    x2 = xindex
    tmp0 = tl.load(in_ptr0 + (x1), MASK, eviction_policy='evict_last')
    tmp1 = tl.full([XBLOCK], 8, tl.int32)
    tmp2 = tmp0 + tmp1
    tmp3 = tmp0 < 0
    tmp4 = tl.where(tmp3, tmp2, tmp0)
    tl.device_assert(((0 <= tmp4) & (tmp4 < 8)) | ~(xmask), "index out of bounds: 0 <= tmp4 < 8")
    tmp6 = tl.load(in_ptr1 + (x0 + 16*tmp4), xmask)
    tl.store(out_ptr0 + (x2), tmp6, xmask)
''', device_str='cuda')
"""
USER = """
def k(source, target, shifts, which, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + place + tl.load(shifts + which), tl.load(source + place))
"""
ROOM = 8 * 16
ARGUMENTS = [row(0, "in_ptr0", 4, dtype="int64"), row(1, "in_ptr1", ROOM), row(2, "out_ptr0", ROOM)]


def ends(code: str, held: tuple[int, int]) -> Any:
    (found,) = [one for one in reaches(code, ARGUMENTS, {"in_ptr0": held}) if one.parameter == "in_ptr1"]
    assert (found.is_exact, found.leaves) == (False, None)
    return found.first, found.last


@pytest.mark.parametrize(
    ("held", "ends_at"),
    [
        ((-2, 5), None),  # with the 2 that are added none is negative
        ((0, 5), None),
        ((0, 6), (32, 143)),
        ((-3, 5), None),  # one is, and is counted from the end
        ((-10, -3), None),
        ((-11, -3), (-16, 127)),
        ((1 << 40, 1 << 40), ((2 + (1 << 40)) * 16, (2 + (1 << 40)) * 16 + 15)),
    ],
)
def test_a_cpp_kernel(held: tuple[int, int], ends_at: tuple[int, int] | None) -> None:
    """Where the elements would leave it within its storage, nothing is claimed: others may have been read."""
    assert ends(CPP, held) == (ends_at or (None, None))
    assert ends(UNSIGNED, held) == (ends_at or (None, None))


@pytest.mark.parametrize(
    ("mask", "held", "ends_at"),
    [
        ("None", (3, 7), None),
        ("None", (-8, -1), None),
        ("None", (-9, 7), (-16, 127)),
        ("xmask", (3, 9), (0, 159)),  # where the mask is false something else may stand, which is not used
        ("xmask, other=0.0", (3, 9), (0, 159)),
        ("xmask, other=70", (3, 9), (48, 70 * 16 + 15)),
        ("mask=xmask", (3, 9), (0, 159)),
    ],
)
def test_a_triton_kernel(mask: str, held: tuple[int, int], ends_at: tuple[int, int] | None) -> None:
    assert ends(TRITON.replace("MASK", mask), held) == (ends_at or (None, None))


def index_ends(code: str, held: tuple[int, int] = (-1, 300)) -> Any:
    """Ends of the only index behind `in_ptr1`, None if they are not known."""
    rows = [row(0, "in_ptr0", 8, dtype="int64"), row(1, "in_ptr1", 8)]
    (found,) = [one for one in reaches(code, rows, {"in_ptr0": held}) if one.parameter == "in_ptr1"]
    return None if found.first is None else (found.first, found.last)


def cpp_kernel(*lines: str) -> str:
    head = "void kernel(const int64_t* in_ptr0, const float* in_ptr1) {\nauto tmp0 = in_ptr0[x0];\n"
    return head + "\n".join(lines) + "\n}"


def triton_kernel(*lines: str) -> str:
    body = "\n    ".join(["tmp0 = tl.load(in_ptr0 + (x0), None)", *lines])
    return (
        f"k = async_compile.triton('k', '''\n@triton.jit\ndef k(in_ptr0, in_ptr1):\n    {body}\n''', device_str='cuda')"
    )


@pytest.mark.parametrize(
    "code",
    [
        cpp_kernel(
            "auto tmp1 = c10::convert<uint8_t>(tmp0);", "auto tmp2 = c10::convert<int64_t>(tmp1);", "in_ptr1[tmp2];"
        ),
        triton_kernel("tmp1 = tmp0.to(tl.uint8)", "tmp2 = tmp1.to(tl.int64)", "tl.load(in_ptr1 + (tmp2), None)"),
        triton_kernel("tmp2 = tmp0.to(tl.float32)", "tl.load(in_ptr1 + (tmp2), None)"),
        cpp_kernel("auto tmp2 = [&] { return tmp0; };", "in_ptr1[tmp2];"),
        cpp_kernel("auto tmp2 = tmp0;", "if (tmp0 < x1) { tmp2 = x1; }", "in_ptr1[tmp2];"),
        cpp_kernel("auto tmp2 = " + "x + " * 60 + "tmp0;", "in_ptr1[tmp2];"),
    ],
)
def test_what_may_be_another_number_is_not_known(code: str) -> None:
    assert index_ends(code) is None
    assert "tmp2" in code


@pytest.mark.parametrize("kernel", [cpp_kernel("in_ptr1[tmp0];"), triton_kernel("tl.load(in_ptr1 + (tmp0), None)")])
def test_what_is_read_is_known(kernel: str) -> None:
    assert index_ends(kernel) == (-1, 300)


def test_an_index_that_was_gathered_lane_by_lane_is_read_from_memory() -> None:
    code = CPP.replace("x1 + 16L*tmp12", "x1 + 16L*tmp12[x1_inner]")
    (found,) = [one for one in reaches(code, ARGUMENTS) if one.parameter == "in_ptr1"]
    assert found.why_unknown is not None
    assert "tmp12[x1_inner]" in found.why_unknown


def test_without_values_it_is_not_known() -> None:
    for code in (CPP, TRITON):
        (found,) = [one for one in reaches(code, ARGUMENTS) if one.parameter == "in_ptr1"]
        assert (found.first, found.may_leave, found.held) == (None, None, ())
        assert found.why_unknown is not None
        assert "read from memory" in found.why_unknown


@pytest.mark.parametrize("shifts", [(0, 0), (0, 1 << 40), (-1, 3)])
def test_a_kernel_of_the_user(shifts: tuple[int, int]) -> None:
    rows = [row(n, name, 64) for n, name in enumerate(("source", "target"))]
    rows.append(row(2, "shifts", 30, dtype="int64"))
    launch = "k_0.run(arg0, buf0, arg1, 17, 4, 1, 1, stream=stream0)"
    code = definition(USER, {"BLOCK": 16})
    found = user_reaches(code, launch, rows, lambda node: getattr(node, "value", None), {"shifts": shifts})
    (written,) = [one for one in found if one.does == "writes"]
    assert (written.leaves, written.is_exact) == (None, False)
    if shifts == (0, 0):
        assert (written.first, written.why_unknown) == (None, "its index is read from buf2")
    else:
        assert (written.first, written.last, written.held) == (shifts[0], 63 + shifts[1], ("buf2",))


@pytest.mark.parametrize("held", [(0, 9), (0, 0), (1, 1)])
def test_elements_choose_no_branch_and_end_no_loop_for_sure(held: tuple[int, int]) -> None:
    code = """
def k(source, target, shifts, BLOCK: tl.constexpr):
    if tl.load(shifts):
        tl.store(target + 1000000, 1)
    for turn in range(tl.load(shifts + 1)):
        tl.store(source + turn, 1)
"""
    rows = [row(0, "source", 64), row(1, "target", 64), row(2, "shifts", 2, dtype="int64")]
    found = user_reaches(
        definition(code, {}), "k_0.run(a, b, c, 1, 1, 1, stream=s)", rows, lambda node: None, {"shifts": held}
    )
    known = {one.parameter: one.leaves for one in found if one.does == "writes"}
    assert known["target"] is not False
    assert known["source"] is None


def test_a_mask_bounds_what_was_read() -> None:
    code = """
def k(source, target, shifts, BLOCK: tl.constexpr):
    place = tl.load(shifts)
    tl.store(target + place, 1, mask=(place >= 0) & (place < 64))
"""
    rows = [row(0, "source", 64), row(1, "target", 64), row(2, "shifts", 2, dtype="int64")]
    for held in ({}, {"shifts": (0, 1 << 40)}):
        found = user_reaches(definition(code, {}), "k_0.run(a, b, c, 1, 1, 1, stream=s)", rows, lambda node: None, held)
        assert [one.leaves for one in found if one.does == "writes"] == [False]


def test_a_number_that_is_too_large_is_no_traceback() -> None:
    code = f"def k(target, BLOCK: tl.constexpr):\n    tl.store(target + tl.program_id(0) * {10**400}, 1)\n"
    found = user_reaches(definition(code, {}), "k_0.run(a, 2, 1, 1, stream=s)", [row(0, "target", 4)], lambda node: 2)
    assert [one.leaves for one in found] == [None]


def test_what_is_said() -> None:
    found: Any = reaches(CPP, ARGUMENTS, {"in_ptr0": (0, 6)})
    suspect = Suspect(None, [], found)  # type: ignore[arg-type]
    said = reach_sentence(suspect)
    assert said == (
        "according to its source, with the values of buf0, the kernel reads elements 32 to at most 143 of buf1"
        " (in_ptr1), whose storage has elements 0 to 127"
    )
    fine = Suspect(None, [], reaches(CPP, ARGUMENTS, {"in_ptr0": (0, 5)}))  # type: ignore[arg-type]
    assert reach_sentence(fine) == (
        "it is unknown how far it reads buf1 (in_ptr1) (its index is read from buf0); "
        "every other index stays within its storage"
    )
    more = replace(found[0], parameter="p", name="buf9", first=None, last=None, held=(), why_unknown="why")
    both = reach_sentence(replace(suspect, reaches=[*found, more]))
    assert said is not None
    assert both == f"{said}; it is unknown how far it reads buf9 (p) (why)"
    unbounded = replace(suspect, reaches=reaches(CPP, ARGUMENTS))
    assert "read from memory" in (reach_sentence(unbounded) or "")


@pytest.mark.parametrize(("first", "ends"), [("in_ptr0[x0]", (-1, 300)), ("x2", None)])
def test_a_name_means_what_it_was_assigned_last(first: str, ends: tuple[int, int] | None) -> None:
    """Loops beside one another number their variables anew."""
    loops = (
        f"for (int64_t x0=0; x0<4; x0+=1) {{ auto tmp1 = {first}; in_ptr1[tmp1]; }}",
        "for (int64_t x0=0; x0<4; x0+=1) { auto tmp1 = x0; out_ptr0[tmp1] = 1; }",
    )
    code = cpp_kernel(*loops).replace("in_ptr1)", "in_ptr1, float* out_ptr0)")
    assert index_ends(code) == ends
    (written,) = reaches(code, [row(2, "out_ptr0", 8)], {"in_ptr0": (-1, 300)})
    assert (written.first, written.last) == (0, 3)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("(" * 5000, None),
        ("-" * 5000 + "1", None),
        ("tl.load(in_ptr0 + in_ptr1)", None),
        ("tmp0 + tmp0", (-2, 600)),
        ("whatever(;", None),
        ("9" * 30, None),
        ("x < tmp0", None),
        ("[0]", None),
        ("tl.where(1)", (1, 1)),
        ("tl.where(x, 1, 2)", (1, 2)),
        ("tl.where(tmp0 < 5, tmp0, 2)", (-1, 4)),
        ("tl.where(tmp0 >= 5, tmp0, 7)", (5, 300)),
    ],
)
def test_what_is_not_followed_is_not_known(text: str, ends: tuple[int, int] | None) -> None:
    assert index_ends(triton_kernel(f"tmp1 = {text}", "tl.load(in_ptr1 + (tmp1), None)")) == ends


@pytest.mark.slow
def test_nested_choices_end_soon() -> None:
    lines = [f"tmp{n + 1} = tl.where(tmp{n} < {n}, tmp{n} + 1, tmp{n})" for n in range(200)]
    assert index_ends(triton_kernel(*lines, "tl.load(in_ptr1 + (tmp200), None)")) is None
