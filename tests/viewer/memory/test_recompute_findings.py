"""Findings about the memory figures of reordering passes."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from stepscope.tracer.schema.record import to_payload
from stepscope.viewer.findings import all_findings
from stepscope.viewer.memory.queries.recompute import LastUseRow, recompute_detail, recompute_mismatches
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import training
from tests.logs.memory_records import recompute
from tests.logs.synthetic import LogBuilder, compile_records, run

Open = Callable[[LogBuilder | bytes], Trace]


def test_a_mismatch_of_the_reordering(opened: Open) -> None:
    log = training(1).record(recompute()).record(recompute(swap=9))
    trace = opened(log)
    (finding,) = all_findings(trace)
    assert (finding.kind, finding.severity) == ("recompute_mismatch", "warning")
    assert finding.title.endswith("(2 times): the peak is 1.1 kB (+100 B) at op1, node 1 of 3")
    assert finding.proof == [
        "After moving op1 (aten.mm) past op2 (aten.relu), the figures for peak and candidate differ from a full"
        " recomputation."
    ]
    proof = finding.evidence
    assert (proof["peak_snode"], proof["peak_index"], proof["snodes"]) == ("op1", 1, 3)
    assert proof["swapped"] == [
        "op1 computes aten.mm.default, calls extern_kernels.mm, reads buf0 and arg1_1 and writes buf1.",
        "op2 computes aten.relu.default, reads buf1 and writes buf2.",
    ]
    assert finding.page == "/recompute/0"
    assert finding.evidence["mismatches"] == 2
    assert [row.swap for row in recompute_mismatches(trace)] == [4, 9]
    detail = recompute_detail(trace, 0)
    assert detail is not None
    assert detail.differs == [1]
    assert [b.name for b in detail.buffers] == ["buf1", "buf0", "buf2"]
    assert [b.name for b in detail.at_peak] == ["buf1", "buf0"]
    assert [(i, detail.carried_alloc_bytes[i], detail.recomputed_alloc_bytes[i]) for i in detail.swapped_snodes] == [
        (1, 500, 600),
        (2, 100, 100),
    ]
    assert detail.last_uses == [LastUseRow("buf0", before="op2", after="op2", recomputed="op1", program=None)]
    assert recompute_detail(trace, 7) is None


def test_mismatches_of_two_compiles_are_two_findings(opened: Open) -> None:
    log = training(1)
    for graph, compile_id in ((0, "0/0"), (0, "0/0"), (1, "0/1")):
        log.record(recompute(graph=graph, compile_id=compile_id))
    first, second = all_findings(opened(log))
    assert [(one.graph, one.evidence["compile_id"], one.evidence["mismatches"]) for one in (first, second)] == [
        (0, "0/0", 2),
        (1, "0/1", 1),
    ]
    assert " of graph 0/0 forward are wrong (2 times): the peak is " in first.title
    assert " of graph 0/0 backward are wrong: the peak is " in second.title
    assert first.proof[0].startswith("After moving op1 ")


def test_graphs_and_subgraphs_of_one_compile_have_mismatches_of_their_own(opened: Open) -> None:
    log = training(1)
    for graph, subgraph in ((0, None), (0, "true_graph_0"), (1, None), (None, None)):
        log.record(recompute(graph=graph, subgraph=subgraph, compile_id="0/0"))
    found = all_findings(opened(log))
    assert [one.graph for one in found] == [0, 0, 1, None]
    assert [one.evidence["subgraph"] for one in found] == [None, "true_graph_0", None, None]
    assert " of graph 0/0 forward (true_graph_0) are wrong" in found[1].title
    assert " of 0/0 are wrong" in found[3].title


def test_the_compile_of_a_mismatch_is_that_of_the_log(opened: Open) -> None:
    """PyTorch counts anew after `torch._dynamo.reset()`; the record's own id is as PyTorch counts."""
    log = compile_records(compile_records(LogBuilder().record(run())).record(recompute(compile_id="0/0")))
    trace = opened(log.record(recompute(compile_id="0/0")))
    assert [row.compile_id for row in recompute_mismatches(trace)] == ["0/0", "r1:0/0"]
    assert len([one for one in all_findings(trace) if one.kind == "recompute_mismatch"]) == 2


def test_a_mismatch_of_an_older_log_names_the_peak_all_the_same(opened: Open) -> None:
    payload = to_payload(recompute())
    for name in ("swapped", "last_use_buffer", "last_use_before", "last_use_after"):
        del payload[name]
    for name in ("carried_alloc_bytes", "carried_free_bytes", "recomputed_alloc_bytes", "recomputed_free_bytes"):
        del payload[name]
    trace = opened(training(1).artifact("stepscope_recompute_mismatch", orjson.dumps(payload)))
    (finding,) = all_findings(trace)
    assert finding.title.endswith(": the peak is 1.1 kB (+100 B) at op1, node 1 of 3")
    assert finding.proof == [
        "After moving op1 past op2, the figures for peak and candidate differ from a full recomputation."
    ]
    detail = recompute_detail(trace, 0)
    assert detail is not None
    assert (detail.differs, detail.last_uses, detail.carried_alloc_bytes) == ([1], [], [])


def test_a_peak_that_the_budget_explains_is_no_error(opened: Open) -> None:
    record = recompute(is_explained=True, reasons=["peak"], reason_snode=["op1"], allowed_peak_bytes=1200)
    (finding,) = all_findings(opened(training(1).record(record)))
    assert finding.severity == "info"
    assert finding.title.endswith("within the allowed peak budget and no error")
