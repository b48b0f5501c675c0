"""Indices that a kernel reads from memory, bounded by what their tensors held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.viewer.test_reach import row
from tests.viewer.test_triton_ranges import definition
from viewer.findings.suspects import Suspect, reach_sentence
from viewer.queries.loaded_ranges import loaded_ranges
from viewer.queries.reach import reaches, user_reaches

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
    assert not found.is_exact
    return found.first, found.last, found.may_leave


@pytest.mark.parametrize(
    ("held", "first", "last", "may_leave"),
    [
        ((-2, 5), 0, 127, False),  # with the 2 that are added none is negative
        ((0, 5), 32, 127, False),
        ((0, 6), 32, 143, True),
        ((-3, 5), 0, 127, False),  # one is, and is counted from the end
        ((-10, -3), 0, 127, False),
        ((-11, -3), -16, 127, True),
        ((1 << 40, 1 << 40), (2 + (1 << 40)) * 16, (2 + (1 << 40)) * 16 + 15, True),
    ],
)
def test_a_cpp_kernel(held: tuple[int, int], first: int, last: int, may_leave: bool) -> None:
    assert ends(CPP, held) == (first, last, may_leave)


@pytest.mark.parametrize(
    ("mask", "held", "first", "last"),
    [
        ("None", (3, 7), 48, 127),
        ("None", (-8, -1), 0, 127),
        ("None", (-9, 7), -16, 127),
        ("xmask", (3, 9), 0, 159),  # where the mask is false something else may stand, which is not used
    ],
)
def test_a_triton_kernel(mask: str, held: tuple[int, int], first: int, last: int) -> None:
    assert ends(TRITON.replace("MASK", mask), held) == (first, last, not (first >= 0 and last < 128))


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
    assert (written.first, written.last) == (shifts[0], 63 + shifts[1])
    assert written.may_leave is (shifts != (0, 0))
    assert written.leaves is (None if written.may_leave else False)
    assert written.held == ("buf2",)


def test_what_is_said() -> None:
    found: Any = reaches(CPP, ARGUMENTS, {"in_ptr0": (0, 6)})
    suspect = Suspect(None, [], found)  # type: ignore[arg-type]
    said = reach_sentence(suspect)
    assert said == (
        "by its source, with what buf0 held, it reads buf1 (in_ptr1) at elements 32 to 143 at most, "
        "and its storage has 0 to 127"
    )
    fine = Suspect(None, [], reaches(CPP, ARGUMENTS, {"in_ptr0": (0, 5)}))  # type: ignore[arg-type]
    assert reach_sentence(fine) == "by its source, with what buf0 held, every index stays within its storage"
    unbounded = replace(suspect, reaches=reaches(CPP, ARGUMENTS))
    assert "read from memory" in (reach_sentence(unbounded) or "")


def test_a_name_that_means_two_things_is_not_known() -> None:
    """Loops beside one another number their variables anew."""
    twice = "auto tmp0 = in_ptr0[x0];\nauto tmp1 = in_ptr0[x0];\nauto tmp0 = in_ptr1[x0];\n"
    found = loaded_ranges(twice, {"in_ptr0": (0, 3), "in_ptr1": (0, 9)})
    assert found.keys() == {"tmp1"}
    assert loaded_ranges("tmp0 = in_ptr0[x0];\ntmp0 = whatever(;\n", {"in_ptr0": (0, 3)}) == {}


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "tl.load(in_ptr0 + in_ptr1)",
        "tmp0 + tmp0",
        "tmp0 ? 1 : 2",
        "9" * 30,
        "x < tmp0",
        "[&]",
        "tl.where(1)",
    ],
)
def test_what_is_not_followed_is_not_known(text: str) -> None:
    code = f"tmp0 = tl.load(in_ptr0 + (x0), None)\ntmp1 = {text}\n"
    assert loaded_ranges(code, {"in_ptr0": (0, 3), "in_ptr1": (0, 3)}).keys() == {"tmp0"}
