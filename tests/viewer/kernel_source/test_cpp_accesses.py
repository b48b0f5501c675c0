"""Generated C++ kernels are read as C++, or not at all."""

from __future__ import annotations

import ast

import pytest

from stepscope.viewer.kernel_source.cpp_accesses import cpp_accesses
from stepscope.viewer.kernel_source.cpp_parser import body_of
from stepscope.viewer.kernel_source.cpp_syntax import CppBlock, Declaration
from stepscope.viewer.kernel_source.cpp_tokens import NotUnderstoodError, tokens
from stepscope.viewer.kernel_source.element_access import Accesses, ElementAccess
from stepscope.viewer.kernel_source.intervals import one
from stepscope.viewer.kernel_source.kernel_access import accesses

HEAD = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       const int64_t* in_ptr1,
                       float* out_ptr0,
                       const int64_t ks0)
"""


def read(body: str) -> Accesses:
    return cpp_accesses(HEAD + "{" + body + "}", {})


def all_of(found: Accesses) -> list[ElementAccess]:
    return [access for nest in found.nests for access in nest]


def uses(body: str) -> list[tuple[str, str, str, bool]]:
    """Pointer, what is done, at which index, and whether it is sure."""
    found = read(body)
    assert found.unread == set()
    return [(use.pointer, "write" if use.is_write else "read", use.text, use.is_sure) for use in all_of(found)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];", ("in_ptr0", "read", "x0", True)),
        ("auto tmp0 = in_ptr0 [x0 + 8L*in_ptr1_x] ;", ("in_ptr0", "read", "8*in_ptr1_x+x0", True)),
        (
            "auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0), int64_t(4L));",
            ("in_ptr0", "read", "x0", True),
        ),
        (
            "auto tmp7 = tmp5.template cast<float,1>().template loadu<int64_t,2>(in_ptr1 + (x1 + 12L*x0));",
            ("in_ptr1", "read", "12*x0+x1", True),
        ),
        (
            "auto tmp0 = at::vec::VecMask<float,1>::from(in_ptr0 + static_cast<int64_t>(x0));",
            ("in_ptr0", "read", "x0", True),
        ),
        ("auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0, 16);", ("in_ptr0", "read", "0", True)),
        ("auto tmp0 = [&] { return in_ptr0[x0]; } ;", ("in_ptr0", "read", "x0", False)),
        ("auto tmp0 = [&] { return in_ptr0[x0]; } ();", ("in_ptr0", "read", "x0", True)),
        ("if (tmp1) { tmp2 = in_ptr0[x0]; }", ("in_ptr0", "read", "x0", False)),
        ("if(C10_LIKELY(x0 >= 0 && x0 < 4L)) { tmp2 = in_ptr0[x0]; }", ("in_ptr0", "read", "x0", True)),
        ("auto tmp4 = normalized_rand_cpu(in_ptr1[0L], x0);", ("in_ptr1", "read", "0", True)),
        ("out_ptr0[x0] = tmp0 < tmp1 ? tmp2 : -tmp3;", ("out_ptr0", "write", "x0", True)),
        ("tmp0.store(out_ptr0 + static_cast<int64_t>(x0));", ("out_ptr0", "write", "x0", True)),
        ("atomic_add(&out_ptr0[tmp5], static_cast<float>(tmp0));", ("out_ptr0", "write", "tmp5", True)),
        ("atomic_add_vec<float, 2, 1>(out_ptr0, tmp40, tmp37);", ("out_ptr0", "write", "", True)),
        ("IndexValue<float> tmp_acc0{0, in_ptr0[x0]};", ("in_ptr0", "read", "x0", True)),
        ("auto out_ptr9 = out_ptr0; out_ptr9[x0] = 1;", ("out_ptr0", "write", "x0", True)),
    ],
)
def test_one_use(statement: str, expected: tuple[str, str, str, bool]) -> None:
    assert uses(statement) == [expected]


def test_reading_and_writing_in_one_statement() -> None:
    assert [(pointer, does, index) for pointer, does, index, _ in uses("out_ptr0[x1] += in_ptr0[in_ptr1[x0]];")] == [
        ("in_ptr1", "read", "x0"), ("in_ptr0", "read", "in_ptr1[x0]"),
        ("out_ptr0", "read", "x1"), ("out_ptr0", "write", "x1"),
    ]  # fmt: skip
    tile = (
        "transpose_mxn<float,4,4,false>(in_ptr0 + x0, 8L, tmp0, 4L); transpose_mxn<float,4,4>(tmp0, 4L, out_ptr0, 8L);"
    )
    assert [use[:3] for use in uses(tile)] == [("in_ptr0", "read", "x0"), ("out_ptr0", "write", "0")]


def test_loops() -> None:
    body = """
    #pragma omp parallel num_threads(4)
    {
        int tid = omp_get_thread_num();
        #pragma omp for collapse(2)
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(4L); x0+=static_cast<int64_t>(1L))
        {
            for(int64_t x1=0; x1<static_cast<int64_t>(c10::div_floor_integer(ks0, 2L)); ++x1)
            {
                out_ptr0[x0] = 1;
                for (int64_t x1_tail = 2L; x1_tail < ks0; x1_tail++) { out_ptr0[x1_tail] = 2; }
            }
        }
        for(int64_t x0=0; x0<ks0; x0+=1) out_ptr0[x0] = 3;
    }
    """
    found = all_of(read(body))
    assert [[(axis.variable.partition("@")[0], axis.is_parallel) for axis in use.axes] for use in found] == [
        [("x0", True), ("x1", False)], [("x0", True), ("x1", False)], [("x0", False)],
    ]  # fmt: skip
    assert [ast.unparse(axis.end) for use in found[1:] for axis in use.axes] == [
        "4", "div_floor_integer(ks0, 2)", "ks0",
    ]  # fmt: skip
    assert found[0].axes == found[1].axes
    assert found[0].axes[0] != found[2].axes[0]
    known = [use.ends for use in all_of(cpp_accesses(HEAD + "{" + body + "}", {"ks0": one(7)}))]
    assert known == [((0, 3), True, frozenset()), ((0, 2), True, frozenset()), ((0, 6), True, frozenset())]


@pytest.mark.parametrize(
    "statement",
    [
        "auto tmp0 = std::min(*in_ptr0, 2.0f);",
        "auto p = in_ptr0 + 4L;",
        "gemm(in_ptr0, out_ptr1);",
        "auto tmp0 = loadu(tmp5 ? in_ptr0 : in_ptr1);",
        "auto tmp0 = (in_ptr0 + 4)[x0];",
        "auto tmp0 = in_ptr0[x0, x1];",
        "auto tmp0 = sizeof(in_ptr0);",
        "std::array<decltype(in_ptr0), 4> tmp0;",
    ],
)
def test_a_use_that_is_not_understood(statement: str) -> None:
    assert "in_ptr0" in read(statement + "out_ptr0[x0] = in_ptr0[x0];").unread


@pytest.mark.parametrize(
    "body",
    [
        "while (x0 < 4) { }",
        "for(int64_t x0=0; x1<4; x0+=1) { }",
        "for(int64_t x0=4; x0>=0; x0-=1) { }",
        "switch (x0) { case 1: break; }",
        "goto end;",
        "for(int64_t x0=0; x0<4; x0+=1) { if (x0 > 2) break; }",
        "if (tmp0) return;",
        "auto in_ptr0 = 5;",
        "\N{SUPERSCRIPT TWO}",
        "tmp0 = ;",
        "tmp0 = in_ptr0[",
        "{",
    ],
)
def test_what_is_no_subset_of_ours(body: str) -> None:
    with pytest.raises(NotUnderstoodError):
        read(body)
    assert accesses(HEAD + "{" + body + "}").unread >= {"in_ptr0", "in_ptr1", "out_ptr0"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "(" * 50_000,
        "a<" * 50_000,
        "x = " + "-" * 50_000 + "1;",
        "x = " + "1 + " * 50_000 + "1;",
        "x" + ".y" * 50_000 + ";",
        "{" * 50_000,
        "if (a) " * 50_000 + ";",
        "x = " + "[&] { return " * 5_000 + "1;",
        "x = " + "decltype([&] { decltype(" * 5_000 + "1;",
        "alignas(" * 50_000,
        "for(" * 50_000,
        "a ? " * 50_000,
        "a || b && c | d ^ e & f == g < h << i + j * (" * 500,
        "#pragma omp for\n" * 50_000,
        "\n" * 200_000,
        "/*" * 50_000,
        '"' * 50_000,
    ],
)
def test_hostile_text_ends_soon(text: str) -> None:
    assert accesses(HEAD + "{" + text).nests == []
    assert accesses(text).nests == []


def test_template_arguments_and_comparisons() -> None:
    (_, _, body) = body_of(
        "void kernel(float* p) { auto a = b<c; auto d = x0<static_cast<int64_t>(4L);"
        " auto e = f<g,2>(h); auto i = j<k>::l(m); }"
    )
    kinds = [getattr(one.value, "kind", None) for one in body.statements if isinstance(one, Declaration)]
    assert isinstance(body, CppBlock)
    assert kinds == ["<", "<", "call", "call"]


def test_tokens_lose_nothing() -> None:
    code = HEAD + '{ x += 0x1F; // comment\n y = "a b" >= 1e-05f; \N{SNOWMAN} }'
    kept = "".join(token.text for token in tokens(code))
    assert "".join(kept.split()) == "".join(code.replace("// comment", "").split())
