"""Where NaN and infinities come from: made, made from an infinity, handed in, carried on; and what is no alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from stepscope.tracer.schema.constants import OUTPUT_CODE
from stepscope.tracer.schema.graphs import Argument, LaunchSite, MemoryStatement, Version
from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.values import ValueLayout
from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.values import describe as values_describe
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import ALL_NAN, FINE, MASK, NAN, PLUS, Program, Stat, ValueLog, attention, values_of

Open = Callable[[LogBuilder | bytes], Trace]
HALF = Stat(dtype="float16", max=300.0)
OVERFLOWN = Stat(dtype="float16", pinf=3, first_bad=5, max=65504.0)


def found(opened: Open, log: ValueLog) -> list[Finding]:
    findings = all_findings(opened(log.end()))
    assert all(finding.kind == "nonfinite" and finding.evidence and finding.rule for finding in findings)
    orjson.dumps(findings)
    return findings


def only(opened: Open, log: ValueLog) -> Finding:
    (finding,) = found(opened, log)
    return finding


def test_healthy_values_are_no_finding(opened: Open) -> None:
    program = attention()
    log = ValueLog(program)
    for step in range(3):
        log.call(program, step)
    assert found(opened, log) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "told"), [(1, ": masked_fill (model.py:10) leaves only -inf in 1 of 4 rows"), (2, "")]
)
def test_a_mask_that_leaves_nothing_of_a_row(opened: Open, rows: int, told: str) -> None:
    """The rows whose maximum is -inf are told where they are the rows of the NaN, and not if there are more of them."""
    operators = ["aten.masked_fill", "aten._softmax"]
    program = Program().allocate("buf0", "buf1")
    program.launch("cpp_fused__softmax_masked_fill_0", ["primals_1"], ["buf0", "buf1"], "cpp", operators)
    log = ValueLog(program)
    log.call(program, buf0=Stat(numel=4, ninf=rows, first_bad=2), buf1=Stat(nan=16, first_bad=32))
    (finding,) = (one for one in found(opened, log) if one.title.startswith("NaN"))
    assert finding.title == f"NaN is produced by softmax (model.py:10) in step 0{told}"


def test_an_overflow_that_becomes_nan(opened: Open) -> None:
    program = attention()
    log = ValueLog(program)
    log.call(program, 0)
    log.call(program, 1, {(1, 1): [2, 32]}, primals_1=HALF, buf0=OVERFLOWN, buf1=NAN, buf2=NAN)
    log.call(program, 2, primals_1=HALF, buf0=OVERFLOWN, buf1=NAN, buf2=NAN)
    finding = only(opened, log)
    assert finding.title == (
        "fp16 overflow in matmul (model.py:10) becomes NaN in softmax (model.py:11) in steps 1 and 2"
    )
    assert [line.partition(": ")[0] for line in finding.proof] == [
        "matmul wrote buf0", "softmax (in a kernel of 2 operators) wrote buf1",
    ]  # fmt: skip
    assert [(link.text, link.page) for link in finding.links] == [
        ("open launch 4", "/steps/1?log=0&launch=4"),
        ("who wrote buf0", "/steps/1?log=0&launch=3"),
        ("open buf1", "/graphs/0/buffers/buf1"),
    ]
    assert (finding.severity, finding.step, finding.launch, finding.kernel, finding.buffer) == (
        "critical", 1, 4, "cpp_fused__softmax_0", "buf1",
    )  # fmt: skip
    assert finding.page == "/steps/1?log=0&launch=4"
    assert finding.source is not None
    assert finding.source.line == 11
    proof = finding.evidence
    assert (proof["launch"], proof["launch_in_step"], proof["of"]) == (finding.launch, 2, 3)
    assert proof["out"] == ["buf1 NaN in 5 of 64 elements, first at [0, 17]; largest finite magnitude 1 (float32)"]
    assert proof["in"] == [
        "buf0 +inf in 3 of 64 elements, first at 5; largest finite magnitude 65,504 (float16 limit 65,504)"
    ]
    assert (proof["launches"], proof["steps"]) == (2, 2)
    assert "2 operators (aten.mul, aten._softmax)" in proof["inside"]
    assert [(link["ordinal"], link["what"], link["buffer"]) for link in proof["chain"]] == [
        (1, "+inf", "buf0"), (2, "NaN", "buf1"),
    ]  # fmt: skip
    origin = proof["chain"][0]
    assert (origin["largest"], origin["limit"], origin["inputs_finite"]) == (300.0, 65504.0, True)
    assert origin["in"][0] == "primals_1 finite, largest magnitude 300 (float16 limit 65,504)"


def test_nan_that_vanishes_inside_is_a_warning(opened: Open) -> None:
    program = attention().free("buf1")
    log = ValueLog(program)
    log.call(program, buf1=NAN)
    finding = only(opened, log)
    assert (finding.severity, finding.evidence["leaves_the_graph"]) == ("warning", False)
    assert finding.title == "NaN is produced by softmax (model.py:11) in step 0"


@pytest.mark.slow
def test_nan_in_memory_that_is_reused_leaves_with_its_last_version(opened: Open) -> None:
    program = Program().allocate("buf0").launch("cpp_fused_log_0", ["primals_1"], ["buf0"], "cpp", ["aten.log"])
    program.memory.append(MemoryStatement("reuse", "buf1", "call", 11, "buf0"))
    program.free("buf0").launch("cpp_fused_mul_1", ["primals_2"], ["buf0"], "cpp", ["aten.mul"])
    for last, severity in ((NAN, "critical"), (FINE, "warning")):
        log = ValueLog(program)
        log.call(program, buf0_0=NAN, buf0_1=last)
        assert found(opened, log)[0].severity == severity


def test_two_launches_that_made_nan_of_one_infinity(opened: Open) -> None:
    program = Program().launch("extern_kernels.mm", ["primals_1"], ["buf0"], aten=["aten.mm"])
    program.launch("first", ["buf0"], ["buf1"]).launch("second", ["buf0"], ["buf2"])
    log = ValueLog(program)
    log.call(program, buf0=PLUS, buf1=NAN, buf2=NAN)
    finding = only(opened, log)
    assert (finding.kernel, finding.evidence["explains_launches"]) == ("first", [2])
    assert finding.evidence["launches"] == 2


@pytest.mark.slow
class TestMasks:
    def masked(self, maker: str = "aten.where") -> Program:
        return (
            Program()
            .allocate("buf0", "buf1")
            .launch("cpp_fused_0", ["primals_1"], ["buf0"], "cpp", [maker])
            .launch("cpp_fused__softmax_1", ["buf0"], ["buf1"], "cpp", ["aten._softmax"])
            .free("buf0")
        )

    @pytest.mark.parametrize(
        "maker",
        [
            "aten.where", "aten.masked_fill", "aten.masked_fill_", "aten.full", "aten.full_like", "aten.triu",
            "aten.scalar_tensor", "aten.tril", "aten.fill_", "aten.constant_pad_nd", "aten.masked_scatter",
        ],
    )  # fmt: skip
    def test_masks_are_no_alarm(self, opened: Open, maker: str) -> None:
        program = self.masked(maker)
        log = ValueLog(program)
        log.call(program, buf0=MASK)
        assert found(opened, log) == []

    @pytest.mark.parametrize("kernel", ["triton_poi_fused_add_where_1", "cpp_fused_masked_fill_3"])
    def test_a_mask_maker_by_the_name_of_its_kernel(self, opened: Open, kernel: str) -> None:
        program = Program().launch(kernel, ["primals_1"], ["buf0"], "cpp")
        log = ValueLog(program)
        log.call(program, buf0=MASK)
        assert found(opened, log) == []

    @pytest.mark.parametrize("maker", ["aten.where", "aten.full"])
    def test_a_positive_infinity_is_no_mask(self, opened: Open, maker: str) -> None:
        """Not even in a later call than the mask that the same kernel makes."""
        program = self.masked(maker)
        log = ValueLog(program)
        log.call(program, buf0=MASK)
        log.call(program, buf0=PLUS)
        finding = only(opened, log)
        assert finding.title.startswith(("+inf is produced by where (", "+inf is produced by full ("))

    def test_operators_that_only_sound_like_it_are_not_excused(self, opened: Open) -> None:
        program = self.masked("aten.somewhere_else")
        log = ValueLog(program)
        log.call(program, buf0=PLUS)
        assert only(opened, log).title.startswith("+inf is produced by somewhere_else (")

    def test_masks_that_are_handed_in_are_no_alarm(self, opened: Open) -> None:
        program = attention()
        log = ValueLog(program)
        log.call(program, primals_2=MASK, buf0=replace(MASK, mean=0.5))
        assert found(opened, log) == []

    def test_a_mask_that_becomes_nan_is_named(self, opened: Open) -> None:
        program = self.masked()
        log = ValueLog(program)
        log.call(program, buf0=replace(MASK, ninf=64, min=None, max=None, mean=None, std=None), buf1=NAN)
        finding = only(opened, log)
        assert finding.title == "-inf from where (model.py:10) becomes NaN in softmax (model.py:11) in step 0"
        assert finding.severity == "critical"


class TestInfinities:
    def product(self, aten: str = "aten.mm") -> Program:
        return Program().allocate("buf0").launch(aten, ["primals_1"], ["buf0"], aten=[aten])

    def test_an_overflow_that_stays_is_critical(self, opened: Open) -> None:
        program = self.product()
        log = ValueLog(program)
        log.call(program, primals_1=HALF, buf0=OVERFLOWN)
        finding = only(opened, log)
        assert (finding.severity, finding.title) == (
            "critical", "fp16 overflow in matmul (model.py:10) in step 0",
        )  # fmt: skip
        assert finding.evidence["inside"] is None

    def test_one_that_vanishes_is_a_warning(self, opened: Open) -> None:
        program = self.product().free("buf0")
        log = ValueLog(program)
        log.call(program, buf0=OVERFLOWN)
        assert only(opened, log).severity == "warning"

    @pytest.mark.slow
    def test_log_of_zero_may_be_meant(self, opened: Open) -> None:
        program = self.product("aten.log")
        log = ValueLog(program)
        log.call(program, buf0=MASK)
        assert (found(opened, log)[0].severity, found(opened, log)[0].title[:4]) == ("warning", "-inf")


@pytest.mark.slow
class TestCameIn:
    def test_from_outside(self, opened: Open) -> None:
        program = attention()
        log = ValueLog(program)
        for step in range(3):
            log.call(program, step, primals_3=NAN, buf2=ALL_NAN)
        finding = only(opened, log)
        assert finding.title == (
            "NaN enters with the input or parameter primals_3 of graph 0/0 forward in steps 0 to 2: "
            "it is first used in matmul (model.py:12)"
        )
        assert (finding.severity, finding.argument, finding.evidence["origin"]) == ("critical", "primals_3", "came in")
        assert finding.evidence["in"] == [
            "primals_3 NaN in 5 of 64 elements, first at 17; largest finite magnitude 1 (float32)"
        ]
        assert finding.evidence["in"][0].startswith("primals_3 NaN in 5 of 64 elements, first at 17")

    @pytest.mark.parametrize(("written", "severity"), [(FINE, "info"), (NAN, "critical")])
    def test_missing_data_that_the_kernel_replaces(self, opened: Open, written: Stat, severity: str) -> None:
        """The backward pass reads the data again, which does not mean that the NaN left the graph."""
        forward = Program().launch("cpp_fused_0", ["primals_1"], ["buf0"], "cpp", ["aten.isnan", "aten.nan_to_num"])
        backward = Program(1, "backward").launch("cpp_fused_0", ["primals_1"], ["buf1"], "cpp", ["aten.isnan"])
        log = ValueLog(forward, backward)
        log.call(forward, primals_1=NAN, buf0=written)
        log.call(backward, primals_1=NAN)
        finding = only(opened, log)
        assert finding.severity == severity
        assert finding.title.endswith(", whose kernel tests for NaN and propagates none") == (severity == "info")

    def test_a_gradient(self, opened: Open) -> None:
        program = Program(phase="backward").launch("extern_kernels.mm", ["tangents_1"], ["buf0"])
        log = ValueLog(program)
        log.call(program, tangents_1=NAN)
        finding = only(opened, log)
        assert finding.title.startswith("NaN enters with the gradient tangents_1 of graph 0/0 backward")

    @pytest.mark.parametrize(("kernel", "titles"), [("extern_kernels.div", 1), ("extern_kernels.mul", 2)])
    def test_the_backward_of_what_made_nan_is_told_with_it(self, opened: Open, kernel: str, titles: int) -> None:
        forward = Program().launch("extern_kernels.div", ["primals_1"], ["buf0"], aten=["aten.div"])
        backward = Program(1, "backward").launch(kernel, ["tangents_1"], ["buf1"])
        log = ValueLog(forward, backward)
        log.call(forward, buf0=NAN)
        log.call(backward, tangents_1=FINE, buf1=NAN)
        first, *others = found(opened, log)
        assert first.title == "NaN is produced by div (model.py:10) in step 0"
        assert len(others) == titles - 1
        assert first.evidence["explains_launches"] == [1] * (titles == 1)

    def test_backward_leads_to_the_forward_launch_that_saved_it(self, opened: Open) -> None:
        forward = attention()
        backward = Program(1, "backward").launch("extern_kernels.mm", ["buf1_saved", "tangents_1"], ["grad"])
        log = ValueLog(forward, backward)
        log.call(forward, buf1=NAN)
        log.call(backward, buf1_saved=NAN, grad=ALL_NAN)
        finding = only(opened, log)
        assert finding.title.startswith("NaN is produced by softmax (model.py:11) in step 0")
        assert finding.evidence["explains_launches"] == [3]
        assert finding.severity == "critical"

    def test_a_gradient_with_a_name_is_called_so_once(self, opened: Open) -> None:
        backward = "GradAOTOutput(grad_of=PlainAOTInput(idx=0))"
        graph = f"""class GraphModule(torch.nn.Module):
    def forward(
        self,
        tangents_1: "f32[8][1]cpu",  # TangentAOTInput(output=PlainAOTOutput(idx=0))
    ):
        return (
            mm,  # {backward}
        )
"""
        program = Program(phase="backward").launch("extern_kernels.mm", ["tangents_1"], ["buf0"])
        log = ValueLog(program)
        ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
        log.log.torch("aot_backward_graph", {}, graph.encode(), **ids)
        code = b"def call(self, args):\n    tangents_1, = args\n    return (buf0, )\n"
        log.log.artifact(f"{OUTPUT_CODE}0", code, "string", **ids)
        log.call(program, tangents_1=NAN)
        title = "NaN enters with the gradient of output 0 (tangents_1) of graph 0/0 backward in step 0"
        assert only(opened, log).title.startswith(title)

    def test_parameters_of_a_later_step_lead_to_what_made_them(self, opened: Open) -> None:
        forward = Program().launch("extern_kernels.mm", ["primals_1"], ["buf0"], aten=["aten.mm"])
        update = Program(1, "inference", "1/0").launch("cpp_fused_adam_0", ["arg0", "arg1"], ["arg0"], "cpp")
        log = ValueLog(forward, update)
        log.call(forward, 0)
        log.call(update, 0, arg0_after=NAN)
        log.call(forward, 1, primals_1=NAN, buf0=ALL_NAN)
        finding = only(opened, log)
        assert finding.title.startswith("NaN is produced by a fused kernel (model.py:10) in step 0")
        assert finding.evidence["explains_launches"] == [2]

    def test_what_comes_in_after_a_nan_left_is_no_case_of_its_own(self, opened: Open) -> None:
        program = attention()
        log = ValueLog(program)
        log.call(program, 0, buf1=NAN, buf2=ALL_NAN)
        log.call(program, 1, primals_1=replace(NAN, nan=9), buf0=ALL_NAN, buf1=ALL_NAN, buf2=ALL_NAN)
        finding = only(opened, log)
        assert finding.step == 0
        assert finding.evidence["explains_launches"] == [3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "title"),
    [
        ("cpp_fused_exp_1", "NaN is produced by exp (model.py:10) in step 0"),
        ("triton_poi_fused__unsafe_view_add_relu_3", "NaN is produced by add and relu (model.py:10) in step 0"),
        ("cpp_fused_add_exp_log_mul_relu_3", "NaN is produced by add, exp, log and 2 more (model.py:10) in step 0"),
        ("triton_poi_fused_adam_0", "NaN is produced by a fused kernel (model.py:10) in step 0"),
    ],
)
def test_a_kernel_without_provenance_has_the_operators_of_its_name(opened: Open, kernel: str, title: str) -> None:
    program = Program().launch(kernel, ["primals_1"], ["buf0"], "triton")
    log = ValueLog(program)
    log.call(program, buf0=NAN)
    assert only(opened, log).title.startswith(title)


def test_recorded_operators_precede_those_of_the_name(opened: Open) -> None:
    program = Program().launch("cpp_fused_exp_1", ["primals_1"], ["buf0"], "cpp", aten=["aten.log"])
    log = ValueLog(program)
    log.call(program, buf0=NAN)
    assert only(opened, log).title.startswith("NaN is produced by log ")


@pytest.mark.slow
def test_a_handful_of_each_log(opened: Open) -> None:
    program = Program()
    for number in range(9):
        program.launch(f"kernel_{number}", [f"primals_{number}"], [f"buf{number}"])
    log = ValueLog(program)
    stats: Any = {f"buf{number}": NAN for number in range(9)}
    log.call(program, **stats)
    findings = found(opened, log)
    assert [finding.kernel for finding in findings] == [f"kernel_{number}" for number in range(5)]
    assert findings[0].evidence["other_origins"] == 4


@pytest.mark.slow
def test_masks_of_many_launches_hide_no_infinity(opened: Open) -> None:
    program = Program()
    for number in range(120):
        program.launch("cpp_fused_where_0", ["primals_1"], [f"buf{number}"], "cpp", ["aten.where"])
    program.launch("extern_kernels.log", ["primals_1"], ["loss"], aten=["aten.log"])
    log = ValueLog(program)
    stats: Any = {**{f"buf{number}": MASK for number in range(120)}, "loss": MASK}
    log.call(program, **stats)
    assert only(opened, log).kernel == "extern_kernels.log"


def test_a_nan_that_shows_in_what_a_launch_wrote_finite(opened: Open) -> None:
    """What made it is no launch of the log, or one that is not known to write the buffer."""
    program = Program(again=True).launch("first", ["primals_1"], ["buf0"]).launch("second", ["buf0"], ["buf1"])
    log = ValueLog(program)
    log.call(program, buf0_0=FINE, buf0_1=NAN, buf1=NAN)
    (finding,) = (one for one in all_findings(opened(log.end())) if one.kind == "nonfinite")
    assert finding.title == "NaN is first seen in input buf0 of second (model.py:11) in step 0"
    assert finding.severity == "critical"


def test_carried_on_is_not_made(opened: Open) -> None:
    program = Program().launch("first", ["primals_1"], ["buf0"])
    for number in range(4):
        program.launch(f"then_{number}", [f"buf{number}"], [f"buf{number + 1}"])
    log = ValueLog(program)
    stats: Any = {f"buf{number}": replace(NAN, nan=number + 1) for number in range(5)}
    log.call(program, **stats)
    assert only(opened, log).kernel == "first"


def test_in_place_the_version_before_counts(opened: Open) -> None:
    program = Program().launch("first", ["primals_1"], ["buf0"]).launch("second", ["buf0"], ["buf0"])
    log = ValueLog(program)
    log.call(program, buf0_0=FINE, buf0_1=NAN)
    assert only(opened, log).kernel == "second"


def test_a_subgraph_hands_on_what_a_launch_in_it_made(opened: Open) -> None:
    log = ValueLog()
    inner = [Argument("arg", "in", "arg", None, "arg", "input", Version(1, 0, "before")),
             Argument("buf", "out", "buf", None, "buf", "uninitialised")]  # fmt: skip
    outer = [Argument("x", "in", "x", None, "x", "input", Version(0, 0, "before")),
             Argument("y", "out", "y", None, "y", None)]  # fmt: skip
    sites = [
        LaunchSite(0, "call", 1, "true_graph_0", "subgraph", outer, ["y"]),
        LaunchSite(1, "true_graph_0", 2, "cpp_fused_log_0", "cpp", inner, []),
    ]
    graph = replace(Program().graph(), functions=["call", "true_graph_0"], sites=sites)
    log.log.record(graph)
    calls = Calls(
        [1, 0],
        [0, 0],
        [1, 0],
        [0, 0],
        [1, 1],
        [0, None],
        [6_000_000_200, 6_000_000_000],
        [100, 900],
        [1, 1],
        ["ok"] * 2,
    )
    log.log.record(Launches(calls, [1, 0], [6_000_000_250, 6_000_000_100], [6_000_000_280, 6_000_000_500]))
    for number, site in ((0, 0), (1, 1)):
        log.log.record(
            ValueLayout(
                number, 0, [site, site], [0, 1], ["before", "after"], [None] * 2, [None] * 2, ["float32"] * 2,
                [64, 64], [64, 64], [None] * 2,
            )
        )  # fmt: skip
        log.log.record(values_of([number], [number], [FINE, NAN]))
    finding = only(opened, log)
    assert (finding.kernel, finding.severity) == ("cpp_fused_log_0", "critical")


def test_a_fused_kernel_names_all_of_its_lines(opened: Open) -> None:
    program = attention()
    log = ValueLog(program)
    log.call(program, 0, buf1=NAN, buf2=NAN)
    trace = opened(log.end())
    (finding,) = all_findings(trace)
    assert finding.evidence["lines"] == ["/src/model.py:11"]
    (site,) = site_rows(trace, [1])
    one, other = SourceLine("model.py", 11, "forward", "a"), SourceLine("model.py", 12, "forward", "b")
    assert values_describe.lines(replace(site, stacks=[[one], [other], [], [one]])) == ["model.py:11", "model.py:12"]
