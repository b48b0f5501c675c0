"""Which launches are said to give other results from the same inputs, and which never are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import Program, Stat, ValueLog

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]
PLAIN, ATOMIC = "out_ptr0[0] = in_ptr0[0] * 1.5f", "atomic_add(&out_ptr0[0], in_ptr0[0])"
CODE = """# AOT ID: ['0_forward']
cpp_fused_sum_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) {{ {body}; }}
''')
"""


def two_launches(kernel: str = "cpp_fused_sum_0", kind: Any = "cpp", reads: tuple[str, ...] = ("x",)) -> Program:
    program = Program().allocate("buf0", "buf1").launch(kernel, reads, ["buf0"], kind)
    return program.launch("extern_kernels.mm", ["buf0", "y"], ["buf1"])


def found(
    opened: Open, program: Program, *calls: dict[str, Stat], body: str = PLAIN, dynamic: bool = False
) -> list[Finding]:
    """Return what is found in a log with these calls, each in a step of its own."""
    log = ValueLog()
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    log.log.torch("inductor_output_code", {"filename": "/tmp/x/cw0.py"}, CODE.format(body=body).encode(), **ids)
    log.log.record(replace(program.graph(), dynamic=dynamic)).record(program.provenance())
    for step, stats in enumerate(calls):
        log.call(program, step, None, **stats)
    return [one for one in all_findings(opened(log.end())) if one.kind == "nondeterministic"]


def bits(**digests: int) -> dict[str, Stat]:
    return {name: Stat(digest=digest) for name, digest in digests.items()}


SAME = bits(x=1, y=2, buf0=3, buf1=4)
OTHER = bits(x=1, y=2, buf0=5, buf1=6)
"""The second launch reads what the first one wrote, so it may write other bits."""


def test_the_first_launch_with_other_bits_from_the_same_inputs_is_named(opened: Open) -> None:
    (finding,) = found(opened, two_launches(), SAME, bits(x=9, y=2, buf0=8, buf1=8), SAME, OTHER, SAME, OTHER)
    assert (finding.severity, finding.kernel, finding.launch, finding.step) == ("warning", "cpp_fused_sum_0", 6, 3)
    assert finding.title == "cpp_fused_sum_0 (model.py:10) gave different results for the same inputs"
    assert finding.proof[0] == (
        "Launch 0 (step 0) and launch 6 (step 3) read the same bits in 1 tensor and wrote different bits to buf0."
    )
    assert "neither atomic additions nor random numbers" in finding.proof[-1]
    assert (finding.evidence["times"], finding.evidence["other_sites"]) == (2, [])


def test_atomic_additions_are_named_and_are_information(opened: Open) -> None:
    (finding,) = found(opened, two_launches(), SAME, OTHER, body=ATOMIC)
    assert (finding.severity, finding.evidence["causes"]) == ("info", ["atomic additions"])
    assert finding.proof[-1] == "Its code uses atomic additions."


@pytest.mark.parametrize(
    "body", ["inductor_meta={'atomic_add_found': False}", "std::atomic<int> inductor_cpu_integer_div_error{0}"]
)
def test_what_every_kernel_holds_is_no_atomic_addition(opened: Open, body: str) -> None:
    (finding,) = found(opened, two_launches(), SAME, OTHER, body=body)
    assert finding.evidence["causes"] == []


def test_launches_that_differ_by_themselves_are_listed_together(opened: Open) -> None:
    (finding,) = found(opened, two_launches(), SAME, OTHER, SAME | bits(buf1=7))
    assert finding.kernel == "cpp_fused_sum_0"
    assert finding.evidence["other_sites"] == ["extern_kernels.mm (launch 5)"]


def test_a_tensor_that_is_changed_in_place_is_read_before_it(opened: Open) -> None:
    program = Program(again=True).allocate("buf0").launch("cpp_fused_sum_0", ["x", "state"], ["state"], "cpp")
    counting = [bits(x=1, state_before=n, state_after=n + 1) for n in range(2, 5)]
    assert found(opened, program, *counting) == []
    (finding,) = found(opened, program, *counting, bits(x=1, state_before=2, state_after=9))
    assert (finding.launch, finding.buffer) == (3, "state")


@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize(
    "unknown",
    [
        Stat(digest=1, looked_at=32),
        Stat(digest=0),
        Stat(skipped="sparse", min=None, max=None, mean=None, std=None),
    ],
    ids=["sampled", "without digest", "unread"],
)
def test_inputs_that_are_not_wholly_known_accuse_no_launch(opened: Open, name: str, unknown: Stat) -> None:
    program = Program().allocate("buf0").launch("cpp_fused_sum_0", ["x", "y"], ["buf0"], "cpp")
    assert found(opened, program, SAME, OTHER) != []
    assert found(opened, program, SAME | {name: unknown}, OTHER | {name: unknown}) == []


@pytest.mark.parametrize(
    ("kernel", "kind", "reads", "body"),
    [
        ("cpp_fused_sum_0", "cpp", ("x",), "out_ptr0[0] = normalized_rand_cpu(in_ptr0[0], 1)"),
        ("cpp_fused_sum_0", "cpp", ("x",), "tl.load(load_seed_offset)"),
        ("cpp_fused_sum_0", "cpp", ("x", "philox_offset"), PLAIN),
        ("cpp_fused_not_in_the_log", "cpp", ("x",), PLAIN),
        ("torch.ops.aten._scaled_dot_product_flash_attention.default", "fallback", ("x",), PLAIN),
        ("torch.ops.aten.native_dropout.default", "fallback", ("x",), PLAIN),
        ("aten.empty_like", "fallback", ("x",), PLAIN),
        ("torch.ops.mine.cached.default", "fallback", ("x",), PLAIN),
        ("torch.ops._c10d_functional.all_reduce_.default", "collective", ("x",), PLAIN),
        ("cpp_fused_sum_0", "cpp", (), PLAIN),
    ],
)
def test_launches_that_may_differ_are_never_named(
    opened: Open, kernel: str, kind: str, reads: tuple[str, ...], body: str
) -> None:
    assert found(opened, two_launches(kernel, kind, reads), SAME, OTHER, body=body) == []


def test_healthy_launches_and_other_sizes_are_never_named(opened: Open) -> None:
    assert found(opened, two_launches(), SAME, SAME, bits(x=9, y=2, buf0=8, buf1=8)) == []
    assert found(opened, two_launches(), SAME, OTHER, dynamic=True) == []
    sizes = {name: replace(stat, numel=32) for name, stat in OTHER.items()}
    assert found(opened, two_launches(), SAME, sizes) == []
