"""What the peak of a run consists of: the parts add up to it, and each is what the log proves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stepscope.tracer.schema.graphs import Provenance, SiteProvenance
from stepscope.tracer.schema.losses import SummedLosses
from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.findings import all_findings
from stepscope.viewer.graphs.rows import ProgramName
from stepscope.viewer.memory import page as page_module
from stepscope.viewer.memory.queries import peak_parts as parts_module
from stepscope.viewer.memory.queries.peak_parts import peak_parts
from stepscope.viewer.memory.queries.peak_rows import RecomputedRegion
from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.memory.queries.summed_losses import saved_calls
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import RUN_PEAK, WEIGHT, X, start_of, training
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder
from tests.viewer.client import Client

Open = Callable[[LogBuilder], Trace]
NAMES = {
    "primals_1": ProgramName("self.weight", "parameter"), "primals_2": ProgramName("x", "input"),
    "buf3": ProgramName("gradient of self.weight", "gradient"),
}  # fmt: skip
STATE = "self.self___state_list_dict_keys_L__self___state___1___exp_avg"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> dict[str, ProgramName]:
    names = dict(NAMES)
    monkeypatch.setattr(parts_module, "program_names", lambda _trace, _graph: names)
    return names


def sizes(trace: Trace) -> dict[str, int]:
    (found,) = peak_parts(trace, 0)
    assert sum(part.storage_bytes for part in found.parts) == found.peak.live_bytes
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    assert [part.storage_bytes for part in found.parts] == sorted(
        (part.storage_bytes for part in found.parts), reverse=True
    )
    return {part.kind: part.storage_bytes for part in found.parts}


def test_the_parts_of_the_peak_of_a_training_step(opened: Open, named: dict[str, ProgramName]) -> None:
    """The peak is in the second launch of the first forward pass: buf0 dies in it, a backward call reads buf1."""
    trace = opened(training(3))
    assert sizes(trace) == {
        "parameters": WEIGHT, "inputs": X, "temporaries": 512, "saved for the backward pass": 1024,
    }  # fmt: skip
    assert WEIGHT + X + 512 + 1024 == RUN_PEAK


def test_state_of_an_optimizer_is_told_by_the_name_that_dynamo_gives(
    opened: Open, named: dict[str, ProgramName]
) -> None:
    named["primals_1"] = ProgramName(STATE, "buffer")
    assert sizes(opened(training(3)))["optimizer state"] == WEIGHT
    named["primals_1"] = ProgramName("self.state['hidden']", "buffer")
    assert sizes(opened(training(3)))["module buffers"] == WEIGHT


def test_what_has_no_name_stays_unknown(opened: Open) -> None:
    found = sizes(opened(training(3)))
    assert found == {"unknown inputs": WEIGHT + X, "temporaries": 512, "saved for the backward pass": 1024}


@pytest.mark.slow
def test_activations_that_are_computed_again(opened: Open, named: dict[str, ProgramName]) -> None:
    again = SiteProvenance(0, [], [], recomputed={"buf0": 4, "buf9": 5})
    trace = opened(training(3).record(Provenance(0, [], [again])))
    found = sizes(trace)
    assert (found["recomputed activations"], "temporaries" in found) == (512, False)
    (part,) = peak_parts(trace, 0)
    assert ([one.storage_bytes for one in part.recomputed], part.checkpointed_regions) == ([512], 2)
    assert "checkpointed regions have been computed again" not in Client(trace).get("/memory").text


def test_regions_that_live_together_are_told(
    opened: Open, named: dict[str, ProgramName], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = opened(training(3))
    regions = [RecomputedRegion(512, []), RecomputedRegion(256, [])]
    found = [replace(one, recomputed=regions, checkpointed_regions=6) for one in peak_parts(trace, 0)]
    monkeypatch.setattr(page_module, "peak_parts", lambda _trace, _log: found)
    assert "activations of 2 of 6 checkpointed regions have been computed again" in Client(trace).get("/memory").text


def test_results_that_are_kept_are_no_temporaries(opened: Open, named: dict[str, ProgramName]) -> None:
    """Losses that are kept raise the peak of the last step by all earlier ones."""
    found = sizes(opened(training(6, keep=99)))
    assert found["other results"] % 64 == 0
    assert found["other results"] > 0
    assert found["parameters"] == WEIGHT


def test_the_page_and_the_summary_tell_the_parts(opened: Open, named: dict[str, ProgramName]) -> None:
    trace = opened(training(3))
    told = summary(trace)["memory"]["peak_parts"]
    assert {part["kind"]: part["storage_bytes"] for part in told} == sizes(trace)
    share = round(100 * WEIGHT / RUN_PEAK)
    assert f"parameters {share} %" in summary_text(trace)
    page = Client(trace).get("/memory")
    assert "The peak on cpu" in page.text
    assert "allocated by compiled code and used by a backward graph later" in page.text


def test_a_trace_without_lifetimes_has_no_parts(opened: Open) -> None:
    from tests.logs.overflow_log import recorded

    trace = opened(recorded())
    assert peak_parts(trace, 0) == []
    assert summary(trace)["memory"]["peak_parts"] is None


def test_the_calls_are_counted_that_saved_what_is_alive_at_the_peak(opened: Open) -> None:
    """One call has saved it, whatever a sum of losses of other graphs waits for."""
    log = training(end=False).record(SummedLosses(1, MONOTONIC_NS, 4, "/src/train.py", 9))
    trace = opened(log.record(End("exit", start_of(4))))
    (peak,) = run_peaks(trace)
    assert saved_calls(trace, peak) == 1
    assert [one for one in all_findings(trace) if one.kind == "summed_losses"] == []
