"""Every log that PyTorch wrote for us opens, and each of its records can be read."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from stepscope.viewer.compiles.queries.compiles import compile_detail, list_compiles
from stepscope.viewer.findings import all_findings
from stepscope.viewer.graphs.queries.graphs import graph_detail, list_graphs
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.records.queries.artifacts import list_records, record_detail
from stepscope.viewer.store.open import open_trace
from tests.viewer.conftest import sample_logs

FOLDER = sample_logs()
LOGS = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".log", ".txt")) if FOLDER else []
pytestmark = pytest.mark.skipif(
    not LOGS, reason="no sample logs: set STEPSCOPE_SAMPLES to a folder of TORCH_TRACE logs"
)

DAMAGE = {
    "simple_corrupted_json.log": {"wrong_md5": 1},
    "export.log": {"truncated": 1},
    "dedicated_log_torch_trace_rank_1.log": {"crlf": 1},
    "dedicated_log_torch_trace_rank_1_n8zycf07.log": {"wrong_md5": 1},
}


def header_lines(path: Path) -> int:
    return sum(line[:1] == b"V" for line in path.read_bytes().split(b"\n"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_sample_opens(path: Path, tmp_path: Path) -> None:
    with open_trace(path, index_dir=tmp_path) as trace:
        assert problem_counts(trace) == DAMAGE.get(path.name, {})
        records = list_records(trace, limit=10**6)
        assert records.total == header_lines(path)
        for row in records.rows[:: 1 + records.total // 60]:
            detail = record_detail(trace, row.record)
            assert detail is not None
            assert "unreadable" not in detail.metadata
        for compile in list_compiles(trace):
            assert compile_detail(trace, compile.log, compile.compile_id) is not None
        for graph in list_graphs(trace):
            shown = graph_detail(trace, graph.graph)
            assert shown is not None
            assert shown.code
        orjson.dumps(summary(trace))
        assert summary_text(trace)
        assert overview(trace).counts.compiles == len(list_compiles(trace))


@pytest.mark.skipif(FOLDER is None, reason="no sample logs")
def test_all_samples_together(tmp_path: Path) -> None:
    assert FOLDER is not None
    with open_trace(FOLDER, index_dir=tmp_path) as trace:
        assert len(trace.logs) == len(LOGS)
        kinds = {finding.kind for finding in all_findings(trace)}
        assert {"recompile", "compile_failure", "cache_bypass", "graph_break"} <= kinds
        assert "crash" not in kinds
