"""The verdicts of the judge: findings, the page, the panel of a launch, and the first page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.tracer.schema.judging import ClobberedInput, JudgedBuffer, JudgedCall
from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.findings import all_findings
from stepscope.viewer.judged.queries.verdicts import judged_launches, judged_steps, verdict_on
from stepscope.viewer.judged.rows import VERDICTS
from stepscope.viewer.overview.queries.overview import first_page
from stepscope.viewer.steps.queries.steps import timeline
from stepscope.viewer.store.trace import Trace
from tests.logs.judged_logs import NOT_JUDGED, judged
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, recorded
from tests.viewer.client import Client

Open = Callable[[LogBuilder | bytes], Trace]


def judged_run() -> LogBuilder:
    return judged(recorded(end=False)).record(End("exit", MONOTONIC_NS + 2_000_000))


def test_a_wrong_launch_and_a_changed_input_are_findings(opened: Open) -> None:
    found = {one.kind: one for one in all_findings(opened(judged_run())) if one.severity == "critical"}
    assert set(found) == {"wrong_kernel", "clobbered_input"}
    wrong = found["wrong_kernel"]
    assert wrong.title == (
        "cpp_fused_relu_0 computes wrong values of buf1: 3 of 32 elements are wrong, by up to 250 times the allowed"
        " error"
    )
    assert wrong.proof[0] == "buf1[2, 5]: compiled 1.5, eager 0.5, float64 0.5 (float32, allowed error 0.004)"
    assert wrong.source is not None
    assert (wrong.source.line, wrong.launch, wrong.evidence["bad"]) == (12, 1, 3)


@pytest.mark.slow
def test_the_first_launch_of_a_call_is_told_from_the_caller(opened: Open) -> None:
    def told(producer: int | None, writer: int | None) -> str:
        log = recorded(end=False).record(
            ClobberedInput(
                graph=0, call=0, step=0, launch=2, site=2, buffer="buf1", is_written=True, producer=producer,
                writer=writer,
            )
        )  # fmt: skip
        (found,) = (one for one in all_findings(opened(log)) if one.kind == "clobbered_input")
        return found.proof[0]

    assert told(0, 1).startswith("Launch 0 wrote it; in between, launch 1 (")
    assert told(0, None) == "Launch 0 wrote it; in between, no launch is declared to write to its memory."
    assert told(None, 0).startswith("The caller passed it; in between, launch 0 (")


def test_an_infinity_of_eager_code_is_shown_with_the_line_that_makes_the_buffer(opened: Open) -> None:
    log = recorded(end=False).record(
        JudgedBuffer(
            graph=0, call=0, step=0, launch=1, site=1, buffer="buf1", node="square", verdict="eager_off", rules=[],
            how="moved", dtype="float16", size=[4, 8], index=[2, 5], compiled=1.5, eager=None, float64=1.5,
            allowed=0.004, of_limit=0.1, bad=0, inputs=["mm in buf0"], source=None,
            fragment=["square = aten.mul.Tensor(mm, mm)", "rsqrt = aten.rsqrt.default(square)"],
        )
    )  # fmt: skip
    (found,) = (one for one in all_findings(opened(log)) if one.kind == "eager_rounding")
    assert found.proof == [
        "buf1[2, 5]: compiled 1.5, eager not finite, float64 1.5 (float16, allowed error 0.004)",
        "The judge recomputed square = aten.mul.Tensor(mm, mm)",
    ]


def test_a_result_that_was_never_written_accuses_no_kernel(opened: Open) -> None:
    log = recorded(end=False).record(
        ClobberedInput(
            graph=0, call=0, step=0, launch=2, site=2, buffer="buf1", is_written=False, producer=None, writer=None,
            is_result=True,
        )
    )  # fmt: skip
    (found,) = (one for one in all_findings(opened(log)) if one.kind == "clobbered_input")
    assert found.title == "graph 0/0 forward returns buf1, to which nothing was written, in 1 call"
    assert (found.kernel, found.source, found.severity) == (None, None, "critical")


def test_the_timeline_has_the_worst_verdict_on_each_launch(opened: Open) -> None:
    trace = opened(judged_run())
    whole, narrow, unjudged = timeline(trace, 0, 0), timeline(trace, 0, 0, width=1), timeline(trace, 0, 1)
    assert whole is not None
    assert narrow is not None
    assert unjudged is not None
    shown = zip(whole.launches.launch, whole.launches.verdict, strict=True)
    assert [VERDICTS[verdict] if verdict >= 0 else None for _, verdict in sorted(shown)] == [
        "ok",
        "wrong",
        "wrong",
        None,
    ]
    assert max(narrow.launches.count) > 1
    assert VERDICTS[min(verdict for verdict in narrow.launches.verdict if verdict >= 0)] == "wrong"
    assert unjudged.launches.verdict == []


@pytest.mark.slow
def test_the_page_lists_verdicts_and_what_was_not_judged(opened: Open) -> None:
    client = Client(opened(judged_run()))
    page = client.get("/judge.json").json()
    assert [one["buffers"][0]["verdict"] for one in page["launches"]] == ["wrong", "unjudged", "ok"]
    assert page["not_judged"] == []  # the third launch has a verdict, because its input was changed
    assert page["steps"] == [
        {"log": 0, "step": 0, "launches": 3, "judged": 2, "wrong": 2, "suspect": 0, "duration_ns": 2_000_000}
    ]
    text = client.get("/judge").text
    assert "judged 2 of 3 launches" in text
    assert "buf1 is not what its producer wrote" in text
    assert NOT_JUDGED.replace("'", "&#39;") in text
    assert client.get("/judge?step=1").status_code == 404
    assert "stepscope run --judge first" in Client(opened(recorded())).get("/judge").text


def test_the_panel_of_a_launch_has_its_verdict(opened: Open) -> None:
    client = Client(opened(judged_run()))
    verdict = client.get("/launches/1.json").json()["judged"]
    assert verdict["buffers"][0]["details"]["compiled"] == 1.5
    assert client.get("/launches/2.json").json()["judged"]["clobbered"][0]["writer"] == 1
    assert client.get("/launches/7.json").json()["judged"] is None


def test_a_launch_that_read_a_changed_input_is_listed_without_a_verdict_on_its_buffers(opened: Open) -> None:
    log = recorded(end=False).record(
        JudgedCall(
            graph=0, call=0, step=0, launches=1, judged=1, not_judged={}, launch=[0], site=[0], buffer=["buf0"],
            node=["mm"], verdict=["ok"], how=["equal"], of_limit=[0.0], reason=[None], reasons=[], duration_ns=1_000,
        )
    )  # fmt: skip
    log.record(
        ClobberedInput(
            graph=0, call=0, step=0, launch=2, site=2, buffer="buf1", is_written=True, producer=1, writer=1,
            is_result=False,
        )
    )  # fmt: skip
    client = Client(opened(log))
    listed = [(one["launch"], one["buffers"]) for one in client.get("/judge.json").json()["launches"]]
    assert listed[0] == (2, [])
    assert [launch for launch, _ in listed] == [2, 0]
    assert "buf1 is not what its producer wrote" in client.get("/judge").text
    assert client.get("/launches/2.json").json()["judged"]["clobbered"][0]["buffer"] == "buf1"


@pytest.mark.slow
def test_the_first_page_counts_what_was_judged(opened: Open) -> None:
    trace = opened(judged_run())
    overview = first_page(trace)
    assert overview.counts.judged_launches == 2
    assert overview.notes[0] == f"The judge recomputed 2 of 3 launches of 1 step. Not judged: {NOT_JUDGED} (1 launch)."
    assert first_page(opened(recorded())).counts.judged_launches is None


def test_verdicts_of_two_steps_stay_apart(opened: Open) -> None:
    trace = opened(judged(judged_run(), call=10, step=1))
    assert [(one.step, one.wrong) for one in judged_steps(trace)] == [(0, 2), (1, 2)]
    first, second = judged_launches(trace, 0, 0), judged_launches(trace, 0, 1)
    assert {one.launch for one in first}.isdisjoint({one.launch for one in second})
    assert all(
        verdict_on(trace, one.log, one.step, one.launch) == one for one in (*first, *second) if one.launch is not None
    )


def test_no_launch_is_said_to_agree_if_one_of_two_is_wrong_or_none_was_judged(opened: Open) -> None:
    log = recorded(end=False).record(
        JudgedCall(
            graph=0, call=0, step=0, launches=2, judged=1, not_judged={NOT_JUDGED: 1}, launch=[0, 1], site=[0, 1],
            buffer=["buf0", "buf1"], node=["mm", "relu"], verdict=["ok", "unjudged"], how=["equal", None],
            of_limit=[0.0, None], reason=[None, 0], reasons=[NOT_JUDGED], duration_ns=1_000,
        )
    )  # fmt: skip
    log.record(
        JudgedBuffer(
            graph=0, call=0, step=0, launch=1, site=1, buffer="buf1", node="relu", verdict="suspect", rules=["element"],
            how="float64", dtype="float32", size=[4, 8], index=[2, 5], compiled=1.5, eager=0.5, float64=0.5,
            allowed=0.004, of_limit=250.0, bad=3, fragment=["relu = aten.relu.default(mm)"], inputs=["mm in buf0"],
            source=None, suspects=[0],
        )
    )  # fmt: skip
    log.record(
        JudgedCall(
            graph=0, call=10, step=1, launches=1, judged=0, not_judged={NOT_JUDGED: 1}, launch=[0], site=[0],
            buffer=["buf0"], node=[None], verdict=["unjudged"], how=[None], of_limit=[None], reason=[0],
            reasons=[NOT_JUDGED], duration_ns=1_000,
        )
    )  # fmt: skip
    client = Client(opened(log.record(End("exit", MONOTONIC_NS + 2_000_000))))
    first, second = client.get("/judge").text, client.get("/judge?step=1").text
    assert "wrote a wrong value that may come from another launch" in first
    assert "No launch of" in second
    assert "agree with what PyTorch computes" not in first + second
