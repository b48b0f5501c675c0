"""A line that has changed since a cached graph was compiled is marked wherever it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson
import pytest

from stepscope.tracer.schema.graphs import ChangedLine, Provenance, SiteProvenance
from stepscope.tracer.schema.process_ends import Frame
from stepscope.viewer.compiles.queries.stages import LINES_OF_THE_COMPILE
from stepscope.viewer.findings.values.describe import lines, place
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.torch_trace.model_lines import model_lines
from stepscope.viewer.redaction.redactor import Redactor
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.kernels import kernel_detail
from stepscope.viewer.web.render import environment
from tests.logs import compile_logs
from tests.logs.synthetic import UNIX_NS, LogBuilder, calls, compile_records, graph, run
from tests.viewer.client import Client

Open = Callable[[LogBuilder | bytes], Trace]

LINE = Frame("/src/model.py", 12, "forward", "y = relu(x)")
OLD = Frame("/src/old.py", 3, "forward", "y = x.relu()")
SITES = [SiteProvenance(0, [[0]], []), SiteProvenance(1, [[1]], [])]


def provenance(*changed: ChangedLine, unix_ns: int | None = UNIX_NS) -> Provenance:
    return Provenance(0, [LINE, OLD], SITES, list(changed), unix_ns)


def marks(value: Provenance) -> list[str | None]:
    return [stacks[0][-1].as_compiled for stacks in model_lines(value, [0, 1], None).values()]


def test_what_is_said_of_a_line_that_has_changed() -> None:
    day = "2026-03-14 09:26 UTC"
    assert marks(provenance()) == [None, None]
    assert marks(provenance(ChangedLine(1, None))) == [None, f"as compiled on {day}, since changed"]
    assert marks(provenance(ChangedLine(1, None), unix_ns=None))[1] == "as compiled earlier, since changed"
    was = f"as compiled on {day} it was /src/old.py:3 y = x.relu(), since changed"
    assert marks(provenance(ChangedLine(0, OLD))) == [was, None]


def test_a_damaged_record_marks_nothing_else() -> None:
    value = provenance(ChangedLine(7, None), ChangedLine(-1, OLD), ChangedLine(1, None), unix_ns=1 << 62)
    assert marks(value) == [None, "as compiled on 2116-02-20 23:53 UTC, since changed"]


def test_a_log_of_before_has_no_marks(opened: Open) -> None:
    payload = asdict(provenance())
    for name in ("changed", "compiled_unix_ns"):
        del payload[name]
    log = compile_records(LogBuilder().record(run())).record(graph())
    log.artifact("stepscope_provenance", json.dumps(payload).encode())
    rows = site_rows(opened(log.record(calls(0, 0, 1000))), [0, 1])
    assert [row.stacks[0][0].as_compiled for row in rows] == [None, None]


def changed_line(opened: Open) -> tuple[Trace, Any]:
    log = compile_records(LogBuilder().record(run())).record(graph()).record(provenance(ChangedLine(1, None)))
    trace = opened(log.record(calls(0, 0, 1000)))
    return trace, site_rows(trace, [1])[0]


def test_the_mark_stands_wherever_the_line_does(opened: Open) -> None:
    trace, site = changed_line(opened)
    line = site.stacks[0][-1]
    mark = "as compiled on 2026-03-14 09:26 UTC, since changed"
    assert line.as_compiled == mark
    assert place(line) == f"/src/old.py:3 ({mark})"
    assert lines(site) == [f"/src/old.py:3 ({mark})"]
    detail = kernel_detail(trace, "cpp_fused_relu_0")
    assert detail is not None
    assert detail.row.source == line
    html = environment().get_template("core/macros.html").module.source(line)  # type: ignore[attr-defined]
    assert html.count(mark) == 2  # beside the line, and where the mouse points


@pytest.mark.slow
def test_a_redacted_report_keeps_the_mark_and_not_the_line() -> None:
    was = "as compiled earlier it was /secret.py:3 y = z, since changed"
    shown = Redactor().redact(SourceLine("/src/a.py", 3, "f", "y = secret(x)", was))
    assert shown.as_compiled is not None
    assert "secret" not in shown.as_compiled
    marked = SourceLine("/src/a.py", 3, "f", "y", "as compiled earlier, since changed")
    assert Redactor().redact(marked).as_compiled == marked.as_compiled


class CachedLog(LogBuilder):
    """Records that PyTorch logs again from what its cache holds."""

    def _prefix(self, source: str) -> bytes:
        return super()._prefix("torch/_inductor/codecache.py")


def test_lines_out_of_a_cache_are_those_of_this_compile_or_marked(opened: Open) -> None:
    """In a log of PyTorch alone: one line has moved, another was edited."""
    now = compile_logs.PRE_GRAD.replace("model.py:12", "model.py:22").replace("y.relu() + 1", "torch.relu(y) + 1", 1)
    here = compile_logs.ids(0, 0)
    log = CachedLog()
    log.torch("inductor_post_grad_graph", {}, compile_logs.POST_GRAD.encode(), **here)
    log.torch("inductor_output_code", {"filename": "/tmp/x/cforward.py"}, compile_logs.CODE.encode(), **here)
    log.artifact("inductor_provenance_tracking_kernel_stack_traces", orjson.dumps(compile_logs.STACKS), **here)
    start = LogBuilder().torch("dynamo_start", compile_logs.stack(compile_logs.MAIN), **here)
    start.torch("dynamo_output_graph", {"sizes": {}}, now.encode(), **here)
    client = Client(opened(start.raw(log.data)))
    panes = client.get("/compile/0_0/provenance.json").json()["panes"]
    (moved,), (edited,) = [place["sources"] for place in panes["kernels"]]
    assert (moved["line"], moved["as_compiled"]) == (22, None)
    assert (edited["line"], edited["as_compiled"]) == (13, "as compiled earlier, since changed")
    notes = {pane["name"]: pane["note"] for pane in panes["panes"]}
    assert notes == {"pre": None, "post": LINES_OF_THE_COMPILE, "code": None}
    for record, is_told in ((1, False), (2, True), (3, False), (4, True)):
        assert (LINES_OF_THE_COMPILE[:40] in client.get(f"/records/{record}").text) == is_told
