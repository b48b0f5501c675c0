"""Where NaN and infinities came from, as far as a log that holds only a part can tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepscope.tracer.schema.launches import TensorMeta, Tensors
from stepscope.tracer.schema.values import OF_THE_CALL
from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import ALL_NAN, FINE, MASK, NAN, PLUS, Program, Stat, ValueLog, attention
from tests.viewer.values.test_nonfinite import only

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]


class TestWhatIsNotKnown:
    def test_an_input_that_was_not_read(self, opened: Open) -> None:
        program = attention()
        log = ValueLog(program)
        log.call(program, buf0=Stat(skipped="a filter left it out"), buf1=NAN)
        finding = only(opened, log)
        proof = finding.evidence
        assert finding.title == "NaN is first seen in the output of softmax (model.py:11) in step 0"
        assert (finding.severity, proof["origin"], proof["chain"][-1]["what"]) == ("critical", "not known", "NaN")
        assert proof["in"] == ["buf0 not read (a filter left it out)"]
        assert (proof["certain"], proof["finite"]) == (False, "finite as far as was read")

    def test_a_sample(self, opened: Open) -> None:
        program = attention()
        log = ValueLog(program)
        log.call(program, buf0=Stat(numel=10_000, looked_at=500), buf1=Stat(numel=10_000, looked_at=500, nan=2))
        proof = only(opened, log).evidence
        assert proof["out"][0].startswith("buf1 NaN in 2 of 500 sampled elements (of 10,000)")
        assert proof["in"][0].startswith("buf0 finite in 500 sampled elements (of 10,000)")
        assert (proof["certain"], proof["origin"]) == (False, "not known")

    def test_integers_need_not_be_read(self, opened: Open) -> None:
        program = Program().launch("cpp_fused_log_0", ["primals_1", "index"], ["buf0"], "cpp")
        log = ValueLog(program)
        meta = TensorMeta(1, "int64", [8], [1], "cpu", 0, 64)
        log.call(program, index=Stat(skipped="a filter left it out"), buf0=NAN)
        log.log.record(Tensors(0, 0, 0, [meta]))
        assert only(opened, log).evidence["origin"] == "made"

    @pytest.mark.parametrize(("written", "origin"), [("arg1_1", "not known"), ("buf0", "made")])
    def test_what_a_caller_passed_may_be_left_where_a_launch_writes_only_a_part(
        self, opened: Open, written: str, origin: str
    ) -> None:
        program = Program().launch("cpp_fused_copy_sum_0", ["arg0_1"], [written], "cpp", aten=["aten.copy", "aten.sum"])
        log = ValueLog(program)
        stats: Any = {"arg0_1": FINE, written: NAN}
        log.call(program, **stats)
        finding = only(opened, log)
        assert finding.evidence["origin"] == origin
        kept = [line for line in finding.proof if "content of arg1_1 before the launch was not read" in line]
        assert len(kept) == (origin == "not known")
        assert ("finite inputs of at most 1" in " ".join(finding.proof)) == (origin == "made")

    def test_a_nan_that_was_read_where_what_wrote_it_was_not(self, opened: Open) -> None:
        program = attention()
        program.layout = [(2, 0, "before", "buf1"), (2, 2, "after", "buf2")]
        log = ValueLog(program)
        log.call(program, buf1=NAN, buf2=ALL_NAN)
        finding = only(opened, log)
        assert finding.title == "NaN is first seen in input buf1 of matmul (model.py:12) in step 0"
        assert (finding.evidence["origin"], finding.evidence["certain"]) == ("not known", False)

    def test_what_shows_after_a_nan_may_be_its_effect(self, opened: Open) -> None:
        program = Program().launch("first", ["primals_1"], ["buf0"]).launch("second", ["primals_2"], ["buf1"])
        log = ValueLog(program)
        log.call(program, buf0=NAN, primals_2=Stat(skipped="a filter left it out"), buf1=PLUS)
        log.call(program, buf0=FINE, primals_2=Stat(skipped="a filter left it out"), buf1=NAN)
        finding = only(opened, log)
        assert (finding.kernel, finding.evidence["origin"]) == ("first", "made")
        assert finding.evidence["explains_launches"] == [3, 1]

    @pytest.mark.parametrize(("written", "sign", "severity"), [(PLUS, "+inf", "critical"), (MASK, "-inf", "warning")])
    def test_an_infinity_whose_inputs_were_not_read_was_not_made_for_certain(
        self, opened: Open, written: Stat, sign: str, severity: str
    ) -> None:
        program = Program().launch("extern_kernels.mm", ["primals_1"], ["buf0"], aten=["aten.mm"])
        log = ValueLog(program)
        log.call(program, primals_1=Stat(skipped="a filter left it out"), buf0=written)
        finding = only(opened, log)
        assert finding.title.startswith(f"{sign} is first seen in the output of matmul (model.py:10) in step 0")
        assert finding.severity == severity

    @pytest.mark.parametrize(
        ("given", "title"),
        [
            (
                NAN,
                "NaN enters with the input or parameter arg0 of graph 0/0 forward in step 0: no recorded launch"
                " uses it",
            ),
            (FINE, "NaN is first seen in the output of matmul (aoti_torch_cpu_mm_out) in step 0"),
        ],
    )
    def test_operands_that_the_record_leaves_out(self, opened: Open, given: Stat, title: str) -> None:
        program = Program().launch("aoti_torch_cpu_mm_out", [], ["buf0"])
        program.layout.insert(0, (OF_THE_CALL, 0, "before", "arg0"))
        graph = replace(program.graph(), inputs=["arg0"], operands_left_out="weights and views")
        log = ValueLog()
        log.log.record(graph)
        log.call(program, arg0=given, buf0=NAN)
        finding = only(opened, log)
        assert finding.title == title
        assert finding.evidence["certain"] is (given is NAN)
        assert finding.evidence.get("not_read") == (None if given is NAN else ["weights and views"])

    def test_uninitialised_memory_says_so(self, opened: Open) -> None:
        program = Program().allocate("buf0").launch("cpp_fused_add_0", ["buf0", "primals_1"], ["buf1"], "cpp")
        log = ValueLog(program)
        log.call(program, buf1=NAN)
        findings = all_findings(opened(log.end()))
        assert [finding.kind for finding in findings] == ["uninitialised_read"]

    @pytest.mark.parametrize(("part", "origin"), [(32, "made"), (16, "not known")])
    def test_memory_that_the_launch_writes_itself_is_no_uninitialised_memory(
        self, opened: Open, part: int, origin: str
    ) -> None:
        """A kernel that concatenates writes the parts of a buffer as views, and may read the buffer as a whole."""
        program = Program().allocate("buf0").launch(
            "cpp_fused_exp_cat_layer_norm_0", ["primals_1", "buf0"], ["buf0@1", "buf0@2", "buf1"], "cpp",
            ["aten.exp", "aten.cat", "aten.native_layer_norm"],
        )  # fmt: skip
        log = ValueLog(program)
        stats: Any = {"buf0@2": NAN, "buf1": NAN}
        log.call(program, **stats)
        views = [(1, 64, 0), (2, part, 0), (3, 32, 32)]
        log.log.record(
            Tensors(0, 0, 0, [TensorMeta(at, "float32", [size], [1], "cpu", offset, 256) for at, size, offset in views])
        )
        finding = only(opened, log)
        assert (finding.severity, finding.evidence["origin"]) == ("critical", origin)
        assert finding.evidence["in"] == ["primals_1 finite, largest magnitude 1 (float32)"]
