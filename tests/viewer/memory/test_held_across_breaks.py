"""Tensors that a graph break keeps alive."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import NEW, calls_of, layout, lifetimes, start_of
from tests.logs.synthetic import LogBuilder, compile_records, run
from tests.logs.value_logs import Program
from tests.viewer.client import Client
from tests.viewer.memory.test_memory_findings import found

Open = Callable[[LogBuilder | bytes], Trace]


def broken(
    after: int = 2,
    dead: bool = True,
    came_in: Sequence[tuple[str, int]] = (),
    kept: Sequence[str] = (),
    again: bool = False,
    phase: Any = "inference",
    text: bytes = b"Graph break in user code at /src/model.py:12\nReason: gb is disabled",
) -> LogBuilder:
    """`fn` makes buf0 and buf1, breaks, and what is resumed uses buf1 once, with `after` launches behind that.

    `came_in` are (name, bytes) that the resumed one uses beside it, `kept` lists those of them that never die.
    `again`: a later call of the step meets all of these too. `phase` is that of the resumed graph.
    """
    made = Program(0, "inference", "0/0").allocate("buf0", "buf1").launch("make", ["x"], ["buf0", "buf1"])
    taken = ["arg0_1", "arg1_1", *(name for name, _ in came_in)]
    rest = Program(1, phase, "1/0").allocate("buf2").launch("add", taken, ["buf2"])
    for i in range(after):
        rest.launch(f"mul_{i}", ["buf2"], ["buf2"])
    log = LogBuilder().record(run())
    log.torch("str", ["/src/model.py", 7])
    reason = {"name": "dynamo_graph_break_reason", "encoding": "string"}
    log.torch("artifact", reason, text, frame_id=0, frame_compile_id=0, attempt=0)
    compile_records(log, 0, 0, co_name="fn")
    compile_records(log, 1, 0, co_name="torch_dynamo_resume_in_fn_at_12")
    for number, program in enumerate((made, rest)):
        log.record(program.graph()).record(program.provenance())
        log.record(calls_of(number, program, 0, start_of(0) + 500 + number * 4_000))
    if again:
        log.record(calls_of(2, rest, 0, start_of(0) + 9_000))
    storages: list[Any] = [("buf0", "allocated", 4096, 0, NEW), ("buf1", "allocated", 1024, 0, NEW)]
    log.record(layout(0, 0, storages, []))
    met: list[Any] = [("arg0_1", "input", 4096, 0, (1, None, 0)), ("arg1_1", "input", 1024, 0, (1, None, 1))]
    met += [(name, "input", size, 0, NEW) for name, size in came_in]
    log.record(layout(1, 1, met, [(0, 1)]))
    later: list[Any] = [(name, kind, size, 0, (1, None, i)) for i, (name, kind, size, _, _) in enumerate(met) if i]
    log.record(layout(2, 1, later, []))
    late = start_of(0) + 30_000
    deaths = [(1, 2 + i, late) for i, (name, _) in enumerate(came_in) if name not in kept]
    calls = [0, 1, 2] if again else [0, 1]
    log.record(lifetimes(calls, calls, [(0, 1, late), *deaths] if dead else deaths))
    return log.record(End("exit", start_of(9)))


def test_what_a_graph_break_keeps_alive(opened: Open) -> None:
    (finding,) = found(opened(broken()), "graph_break")
    assert finding.severity == "info"
    assert finding.evidence["held_bytes"] == 1024
    assert finding.evidence["held_buffers"] == [
        {
            "buffer": "buf1", "held_as": "arg1_1", "storage_bytes": 1024, "made_by": "compiled region",
            "made_by_graph": 0, "held_in_graph": 1, "last_kernel": "add", "launches_after": 2,
            "line": "/src/model.py:10",
        }
    ]  # fmt: skip
    assert finding.evidence["perhaps_held_bytes"] == 0
    assert finding.title.endswith("; buf1 (1.0 kB) stays alive across the break")


def test_what_came_in_after_a_graph_break(opened: Open) -> None:
    came_in = [("arg2_1", 2048), ("arg3_1", 1023), ("arg4_1", 4096), ("weight", 9999)]
    (finding,) = found(opened(broken(came_in=came_in, kept=["weight"])), "graph_break")
    assert finding.title.endswith(
        "; buf1 (1.0 kB) stays alive across the break, and so do arg4_1, arg2_1 (6.1 kB), made after the break or by"
        " the caller"
    )
    assert finding.evidence["held_bytes"] == 1024
    assert finding.evidence["perhaps_held_bytes"] == 2048 + 1023 + 4096
    held = finding.evidence["held_buffers"]
    assert [one["buffer"] for one in held] == ["arg4_1", "arg2_1", "buf1", "arg3_1"]
    assert held[0] == {
        "buffer": "arg4_1", "held_as": "arg4_1", "storage_bytes": 4096,
        "made_by": "between the regions, or the caller's", "made_by_graph": None, "held_in_graph": 1,
        "last_kernel": "add", "launches_after": 2, "line": None,
    }  # fmt: skip
    assert finding.source is not None
    assert finding.source.line == 12


def test_arguments_of_the_caller_alone_are_no_claim(opened: Open) -> None:
    (finding,) = found(opened(broken(dead=False, came_in=[("arg2_1", 2048)])), "graph_break")
    assert "alive" not in finding.title
    assert (finding.evidence["held_bytes"], finding.evidence["perhaps_held_bytes"]) == (0, 2048)


def test_what_autograd_gives_to_a_backward_graph_is_not_held(opened: Open) -> None:
    trace = opened(broken(came_in=[("tangents_1", 2048)], phase="backward"))
    (finding,) = found(trace, "graph_break")
    assert finding.evidence["perhaps_held_bytes"] == 0


def test_what_a_later_call_uses_is_not_held_for_nothing(opened: Open) -> None:
    (finding,) = found(opened(broken(came_in=[("arg2_1", 2048)], again=True)), "graph_break")
    assert (finding.evidence["held_bytes"], finding.evidence["perhaps_held_bytes"]) == (0, 0)
    assert "alive" not in finding.title


@pytest.mark.parametrize(("after", "dead"), [(0, True), (2, False)])
def test_a_graph_break_that_keeps_nothing(opened: Open, after: int, dead: bool) -> None:
    (finding,) = found(opened(broken(after, dead)), "graph_break")
    assert finding.evidence["held_bytes"] == 0
    assert "alive" not in finding.title


def test_without_lifetimes_it_is_not_known(opened: Open) -> None:
    data = broken().data
    for kind in (b"stepscope_lifetime_layout", b"stepscope_lifetimes"):
        data = data.replace(b'"' + kind + b'"', b'"stepscope_unknown"')
    (finding,) = found(opened(data), "graph_break")
    assert finding.evidence["held_bytes"] is None


def test_a_finding_leads_to_the_break_with_what_it_holds_and_costs(opened: Open) -> None:
    trace = opened(broken(came_in=[("arg2_1", 2048)]))
    (finding,) = found(trace, "graph_break")
    assert finding.page == "/graph-breaks?break=2"
    client = Client(trace)
    (cause,) = client.get("/graph-breaks.json?break=2").json()["breaks"]["causes"]
    (place,) = cause["places"]
    assert (place["is_asked"], place["held_bytes"], place["perhaps_held_bytes"]) == (True, 1024, 2048)
    assert [(one["buffer"], one["launches_after"]) for one in place["held"]] == [("arg2_1", 2), ("buf1", 2)]
    assert (place["resume_functions"], place["calls"], place["launches"]) == (1, 1, 3)
    assert place["between_ns"] is not None
    assert place["calls_ns"] is not None
    text = " ".join(re.sub(r"<[^>]+>", " ", client.get("/graph-breaks?break=2").text).split())
    assert "1 time, 3 launches after the break" in text
    assert "1.0 kB , and 2.0 kB that the caller may hold anyway" in text
    assert client.get("/graph-breaks?break=0").status_code == 404


def test_a_break_in_a_function_that_dynamo_inlined_resumes_its_caller(opened: Open) -> None:
    text = b"""Graph break in user code at /src/model.py:3
Reason: gb is disabled
User code traceback:
  File "/src/model.py", line 12, in fn
    y = helper(x)
  File "/src/model.py", line 3, in helper
    gb(x)
"""
    (cause,) = Client(opened(broken(text=text))).get("/graph-breaks.json").json()["breaks"]["causes"]
    (place,) = cause["places"]
    assert (place["source"]["line"], place["resume_functions"], place["held_bytes"]) == (3, 1, 1024)


def test_storages_that_were_not_tracked_are_not_zero(opened: Open) -> None:
    log = LogBuilder()
    log.torch("str", ["/src/model.py", 7])
    reason = {"name": "dynamo_graph_break_reason", "encoding": "string"}
    log.torch("artifact", reason, b"Graph break in user code at /src/model.py:12\nReason: no", frame_id=0, frame_compile_id=0, attempt=0)  # noqa: E501  # fmt: skip
    trace = opened(compile_records(log, 0, 0, co_name="fn"))
    (cause,) = Client(trace).get("/graph-breaks.json").json()["breaks"]["causes"]
    assert (cause["places"][0]["held"], cause["places"][0]["held_bytes"]) == (None, None)
    assert (cause["places"][0]["calls"], cause["places"][0]["is_asked"]) == (0, False)
