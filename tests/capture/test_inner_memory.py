"""The measured peak of a call with subgraphs is the one that torch's profiler sees."""

from __future__ import annotations

import gc
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import stepscope
from stepscope.viewer.memory.queries.graph import graph_memory
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # torch warns of itself while it compiles


def branching(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = x @ w
    big: Any = torch.cond(h.sum() > 0, lambda h, w: ((h @ w).relu() @ w.t() @ w).sum(1), lambda h, w: h.sum(1), (h, w))
    result: torch.Tensor = h.sum(1) + big
    return result


def test_bytes_of_a_branch_are_at_the_peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled, x, w = torch.compile(branching), torch.ones(16, 32), torch.ones(32, 256)[:, ::8].contiguous()
    with torch.no_grad():
        compiled(x, w)
        gc.collect()  # what other tests left behind must not be freed while the profiler looks
        with (
            stepscope.trace(tmp_path) as recorder,
            profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen,
        ):
            compiled(x, w)
    changes = [event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert recorder.path is not None
    trace = open_trace(recorder.path)
    ((graph,),) = sql.rows(trace, "SELECT DISTINCT graph FROM calls")  # graphs of other tests may still be loaded
    memory = graph_memory(trace, graph)
    trace.close()
    assert memory is not None
    assert memory.measured_peak is not None
    assert memory.positions is not None
    running = list(accumulate(changes))
    assert memory.measured_peak.kernel == "true_graph_0"
    assert memory.measured_peak.peak_bytes == max(running)
    assert set(memory.positions.live_bytes) <= set(running)
