"""Kernels that round to bfloat16 or float16 only what they store: which ones do, and what their results may be."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from stepscope.tracer.judge.once import compare
from stepscope.tracer.judge.rounding import roundings_of
from stepscope.tracer.judge.rule import Comparison

LOW = [torch.bfloat16, torch.float16]


def values(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64)


def verdict(compiled: Tensor, double: Tensor, others: Sequence[Tensor] = ()) -> Comparison | None:
    """Return the comparison if it breaks the rule, with eager code that computes what compiled code does."""
    found = compare(compiled, compiled, double, lambda count: others[:count])
    return found if found is not None and found.broken else None


@pytest.mark.parametrize("dtype", LOW)
def test_one_rounding_is_no_error(dtype: torch.dtype) -> None:
    exact = values(64, 48)
    assert verdict(exact.to(dtype), exact) is None
    assert verdict(exact.float().to(dtype), exact) is None
    same = torch.full((4096,), 1.0 + 0.49 * torch.finfo(dtype).eps, dtype=torch.float64)
    assert verdict(same.to(dtype), same) is None  # all numbers are rounded alike, which looks like a factor


@pytest.mark.parametrize("scale", [1e-4, 1e-5, 1e-6, 1e-7, 1e-8])
def test_numbers_near_the_smallest_of_the_dtype_are_rounded_by_more(scale: float) -> None:
    for exact in (values(64, 48) * scale, values(64, 48).exp() * scale, torch.full((64, 48), scale).double()):
        assert verdict(exact.to(torch.float16), exact) is None  # float16 has a spacing of 6e-8 there
        assert verdict((exact + 4e-7 + exact.abs() / 100).to(torch.float16), exact) is not None


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("size", [(4,), (64, 48)])
def test_a_factor_of_one_spacing_is_an_error(size: tuple[int, ...], dtype: torch.dtype) -> None:
    exact = values(*size)
    found = verdict((exact * (1.0 + torch.finfo(dtype).eps)).to(dtype), exact)
    assert found is not None
    assert found.broken
    assert found.bad > 0
    assert found.compiled != pytest.approx(found.double, rel=torch.finfo(dtype).eps / 4)


def test_a_smaller_factor_is_an_error_of_many_elements() -> None:
    exact = values(64, 64)
    found = verdict((exact * (1.0 + torch.finfo(torch.bfloat16).eps / 4)).to(torch.bfloat16), exact)
    assert found is not None
    assert found.broken == ("bias",)


def test_what_is_rounded_when_it_is_stored_explains_a_difference() -> None:
    exact = values(64, 48)
    with_rounded_store = exact.to(torch.bfloat16).double() * 1000.0 - exact * 1000.0
    compiled = with_rounded_store.to(torch.bfloat16)
    assert verdict(compiled, torch.zeros_like(exact)) is not None
    assert verdict(compiled, torch.zeros_like(exact), [with_rounded_store]) is None


def test_finer_dtypes_and_values_that_are_not_finite_are_left_to_the_other_rule() -> None:
    exact = values(64)
    assert verdict(exact.float() * 2, exact) is None
    assert verdict(torch.full((64,), torch.inf, dtype=torch.float16), exact) is None
    assert verdict(torch.zeros(0, dtype=torch.bfloat16), torch.zeros(0, dtype=torch.float64)) is None


@pytest.mark.parametrize("dtype", LOW)
def test_what_the_rule_allows_is_fine_by_it_alone_unless_eager_code_is_off(dtype: torch.dtype) -> None:
    exact = values(64, 48)
    compiled = exact.to(dtype)
    found = compare(compiled, (exact * 1.01).to(dtype), exact, lambda count: [])
    assert found is not None
    assert (found.how, found.broken) == ("float64", ())
    assert 0 < found.of_limit <= 1
    assert compare(compiled, exact.to(dtype) + 100, exact, lambda count: []) is None
    assert compare(compiled, torch.full_like(compiled, torch.inf), exact, lambda count: []) is None


def wrapper(name: str, body: str) -> ast.Module:
    about = "triton_meta={'signature': {'in_ptr0': '*bf16', 'out_ptr0': '*bf16'}}, meta={'atomic_add_found': False}"
    return ast.parse(
        f"{name} = async_compile.triton('{name}', '''\n@heuristic({about})\n{body}\n''', device_str='cuda')"
    )


LOAD = "tmp0 = tl.load(in_ptr0 + (x0), xmask).to(tl.float32)"
STORE = "tl.store(out_ptr0 + (x0), tmp0, xmask)"


@pytest.mark.parametrize(
    ("line", "rounding"),
    [
        (LOAD, "stored"),
        (LOAD.removesuffix(".to(tl.float32)"), "between"),
        (f"{LOAD}\ntmp1 = tmp0.to(tl.bfloat16)", "between"),
        (f"{LOAD}\ntl.atomic_add(out_ptr0 + (x0), tmp0, xmask)", "between"),
    ],
)
def test_the_source_of_a_triton_kernel_says_where_it_rounds(line: str, rounding: str) -> None:
    assert roundings_of(wrapper("triton_poi_fused_0", f"{line}\n{STORE}")) == {"triton_poi_fused_0": rounding}


def test_a_triton_kernel_that_replaces_what_it_has_read_again_rounds_in_between() -> None:
    once = [LOAD, STORE]
    again = [*once, *(line.replace("in_ptr0", "out_ptr0") for line in once)]
    for lines, rounding in ((once, "stored"), (again[:-1], "stored"), (again, "between")):
        assert roundings_of(wrapper("triton_red_fused_0", "\n".join(lines))) == {"triton_red_fused_0": rounding}


CPP_LOAD = """
auto tmp0 = at::vec::Vectorized<at::BFloat16>::loadu(in_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
auto tmp1 = at::vec::convert<float>(tmp0);
auto tmp2 = tmp1 + tmp1;
"""
CPP_STORE = """
auto tmp3 = at::vec::convert<at::BFloat16>(tmp2);
tmp3.store(out_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
"""
IN_PLACE = (CPP_LOAD + CPP_STORE).replace("in_ptr0", "out_ptr0")


@pytest.mark.parametrize(
    ("body", "rounding"),
    [
        (CPP_LOAD + CPP_STORE, "stored"),
        ("auto tmp2 = static_cast<float>(0.5);" + CPP_STORE.replace("tmp3.store(", "out_ptr0[0] = tmp3; //"), "stored"),
        (CPP_LOAD + CPP_STORE + "auto tmp4 = at::vec::convert<float>(tmp3);", "between"),
        (CPP_LOAD.replace("convert<float>(tmp0)", "(tmp0)") + CPP_STORE, "between"),
        ("auto tmp0 = in_ptr0[x0];\nauto tmp1 = tmp0 + tmp0;" + CPP_STORE, "between"),
        (CPP_LOAD + CPP_STORE + "atomic_add(&out_ptr0[0], tmp2);", "between"),
        (f"{IN_PLACE}{IN_PLACE}", "between"),  # what has been rounded first is no result
        (f"auto out_ptr1 = out_ptr0;{IN_PLACE}{IN_PLACE.replace('out_ptr0', 'out_ptr1')}", "between"),
        (f"if(C10_LIKELY(x0 < 16))\n{{{IN_PLACE}}}\nif(C10_UNLIKELY(x0 >= 16))\n{{{IN_PLACE}}}\n", "stored"),
        (f"{CPP_LOAD}{CPP_STORE}{CPP_LOAD.replace('in_ptr0', 'out_ptr0')}", "stored"),
    ],
)
def test_the_source_of_a_cpp_kernel_says_where_it_rounds(body: str, rounding: str) -> None:
    source = f'extern "C" void kernel(const at::BFloat16* in_ptr0,\n at::BFloat16* out_ptr0)\n{{\n{body}\n}}'
    tree = ast.parse(f"cpp_fused_add_0 = async_compile.cpp_pybinding(['at::BFloat16*'], {source!r})")
    assert roundings_of(tree) == {"cpp_fused_add_0": rounding}


def test_other_kernels() -> None:
    assert roundings_of(wrapper("triton_tem_fused_mm_0", LOAD)) == {}
