"""The JSON answer has every key that its format promises; the text says the verdict first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from stepscope.tracer.schema.constants import PRINTED_KEY
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.layer_checks import LayerCheck
from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.overview.summary import findings, findings_text, summary, summary_text
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_ns
from tests.logs.planted import machine
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, calls, compile_records, graph, recorded, run
from tests.logs.value_logs import Program, ValueLog
from tests.viewer.client import Client

Open = Callable[[LogBuilder | bytes], Trace]
KEYS = {
    "runs": "rank world_size pid torch python devices argv level format_version complete",
    "counts": "logs records compiles graphs launch_sites launches value_rows steps lifetime_events",
    "ingest": "skipped problems not_recorded",
    "findings": "kind severity title rank step graph launch kernel buffer argument source evidence page",
    "graphs": (
        "graph compile_id aot_id snodes launch_sites estimated_peak_bytes estimated_peak_snode estimated_peak_index"
        " measured_peak_bytes measured_peak_snode measured_peak_index"
    ),
    "memory": "peak_bytes peak_step peak_graph growth_bytes_per_step",
    "compiles": "compile_id frame status attempts duration_ns cache recompile_reason graph_break_reason",
    "steps": "found_by doubt data_workers rows",
    "overhead": "hook_ns stats_ns log_bytes bytes_per_launch failures",
}


@pytest.mark.parametrize("log", [recorded(end=False), compile_records(LogBuilder(), fail_type="X", fail_reason="y")])
def test_every_promised_key_is_there(opened: Open, log: LogBuilder) -> None:
    answer = orjson.loads(orjson.dumps(summary(opened(log.data + b"noise\n"))))
    assert answer["format"] == "stepscope-summary/1"
    assert set(answer) == {"format", "crash_runs", "time", *KEYS}
    for part, keys in KEYS.items():
        found = answer[part] if isinstance(answer[part], list) else [answer[part]]
        assert found
        assert set(keys.split()) <= set(found[0])
    assert answer["ingest"]["skipped"] == {"not_a_record": 1}
    assert set(answer["ingest"]["problems"][0]) == {"log", "line", "byte", "reason", "text"}


def test_findings_alone_are_those_of_the_summary(opened: Open) -> None:
    trace = opened(recorded(end=False).data + b"noise\n")
    alone, whole = findings(trace), summary(trace)
    assert alone == {"format": "stepscope-findings/1"} | {key: whole[key] for key in ("counts", "findings", "ingest")}
    assert alone["findings"]
    schema = json.loads(Path(__file__).parents[3].joinpath("docs", "findings.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(orjson.loads(orjson.dumps(alone)))
    assert summary_text(trace).startswith(findings_text(trace) + "\n\n")


def test_gaps_that_are_alike_are_one_line(opened: Open) -> None:
    log = recorded()
    for kernel in ("cpp_fused_relu_0", "cpp_fused_add_mul_12", "cpp_fused_relu_0"):
        why = f"the profile has {len(kernel)} runs and the text has 3, and nothing says which of them belong together"
        log.record(Skipped(f"durations of the launches of {kernel}", why))
    log.record(Skipped("values inside a CUDA graph", "the graph was captured before", 0))
    text = summary_text(opened(log))
    verdict, _, gaps = text.partition("\nNot recorded\n")
    shown = " ".join(gaps.split("\n\n")[0].split())
    assert [part.count("durations of the launches of") for part in (verdict, gaps)] == [1, 1]
    assert "Not recorded (3 times, in 2 variants with other names or numbers): durations" in " ".join(verdict.split())
    assert "belong together (3 times, in 2 variants with other names or numbers)" in shown
    assert "values inside a CUDA graph: the graph was captured before" in shown
    assert all(len(line) <= 100 for line in gaps.splitlines())


def test_unknown_is_null_and_never_zero(opened: Open) -> None:
    answer = summary(opened(compile_records(LogBuilder())))
    assert answer["counts"]["launches"] is None
    assert answer["counts"]["steps"] is None
    assert answer["runs"][0]["complete"] is None
    assert answer["graphs"][0]["launch_sites"] is None
    assert answer["graphs"][0]["snodes"] is None
    assert set(answer["memory"].values()) == {None}
    assert answer["overhead"] == dict.fromkeys(KEYS["overhead"].split())


def test_rows_name_their_log_as_the_runs_do(opened: Open) -> None:
    answer = summary(opened(recorded(end=False)))
    names = [run["log"] for run in answer["runs"]]
    for part in ("findings", "graphs", "compiles"):
        assert {row["log"] for row in answer[part]} == set(names), part


def test_a_long_frame_is_cut_with_a_sign(opened: Open) -> None:
    text = summary_text(opened(compile_records(LogBuilder(), co_name="f" * 60)))
    assert "f" * 49 + "…" in text
    assert "f" * 50 not in text


def test_facts_of_a_recorded_run(opened: Open) -> None:
    answer = summary(opened(recorded()))
    assert answer["findings"] == []
    assert answer["graphs"][0]["snodes"] == 4
    assert (answer["counts"]["launches"], answer["counts"]["subgraph_calls"]) == (12, 4)
    assert answer["compiles"][0]["cache"] == "miss"
    assert answer["overhead"]["failures"] == 0


def test_text_of_a_healthy_run(opened: Open) -> None:
    lines = summary_text(opened(recorded())).split("\n")
    assert lines[0] == "No findings in 3 steps, 12 launches of kernels, 4 calls of subgraphs, no values read."
    assert any(line.startswith("Run  train.py --lr 0.1") for line in lines)
    assert "  0     inference  user  5.00 us        –         3      2" in lines
    assert any("0_forward" in line for line in lines)
    assert max(map(len, lines)) <= 100


def test_the_line_of_a_run_is_whole_and_names_the_interpreter_without_its_folders(opened: Open) -> None:
    argv = ["/home/user/.venv/bin/python3.11", "a_program_with_a_long_name.py", "--rate", "0.001", "--steps", "9"]
    trace = opened(recorded(argv=argv, end=False))
    text = summary_text(trace)
    run = text[text.index("\nRun  ") :].split("\n\n")[0]
    assert " ".join(run.split()) == (
        "Run python3.11 a_program_with_a_long_name.py --rate 0.001 --steps 9 torch 2.13.0 cpu"
        " level launches no end record"
    )
    assert ">python3.11 a_program_with_a_long_name.py --rate" in Client(trace).get("/").text


@pytest.mark.slow
def test_a_run_without_graphs_names_the_option_for_packages(opened: Open) -> None:
    lines = summary_text(opened(LogBuilder().record(run()).record(End("exit", 1)))).split("\n")
    assert lines[:3] == [
        "No findings in 0 steps, 0 launches, no values read.",
        "No compiled graph was called. Launches of AOTInductor's packages and of graphs with cpp_wrapper are",
        "recorded with --aoti launches; packages check their inputs if AOTI_RUNTIME_CHECK_INPUTS=1 is set.",
    ]
    assert "--aoti" not in summary_text(opened(LogBuilder().record(run())))
    failed = compile_records(LogBuilder().record(run()), fail_type="X", fail_reason="y")
    assert "--aoti" not in summary_text(opened(failed.record(End("exit", 1))))


CHECKS = {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
PRINTS = {"AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "3"}


@pytest.mark.parametrize(
    ("variables", "is_compiled", "told"),
    [
        (
            {},
            True,
            "AOTInductor compiled a package (model.py:10), whose calls are recorded with --aoti launches; packages"
            " check their inputs if AOTI_RUNTIME_CHECK_INPUTS=1 is set.",
        ),
        (
            CHECKS,
            True,
            "AOTInductor compiled a package (model.py:10), whose calls are recorded with --aoti launches.",
        ),
        (
            CHECKS | PRINTS,
            True,
            "AOTInductor compiled a package (model.py:10) that prints its launches, but none was printed: it was not"
            " called, each call ended before its first launch, or the filter of kernels names none of them.",
        ),
        (
            CHECKS,
            False,
            "No compiled graph was called. Launches of AOTInductor's packages and of graphs with cpp_wrapper are"
            " recorded with --aoti launches.",
        ),
        (
            PRINTS,
            False,
            "No compiled graph was called, and no launch was printed: PyTorch builds its printer into a package, or a"
            " graph with cpp_wrapper, when it compiles it.",
        ),
    ],
)
def test_what_is_said_of_packages_does_not_advise_what_the_run_did(
    opened: Open, variables: dict[str, str], is_compiled: bool, told: str
) -> None:
    log = LogBuilder().record(run(machine=machine(variables=variables)))
    if is_compiled:
        compile_records(log, has_code=False)
        package = {"name": "inductor_aot_wrapper_code", "type": "cpp", "filename": "/tmp/x.cpp"}
        log.torch("graph_dump", package, b"code", frame_id=0, frame_compile_id=0, attempt=0)
    lines = summary_text(opened(log.record(End("exit", 1)))).split("\n\n")[0].split("\n")
    assert lines[0] == (
        "No findings in 1 compile; no call of compiled code was recorded."
        if is_compiled
        else "No findings in 0 steps, 0 launches, no values read."
    )
    assert " ".join(lines[1:]) == told


def test_printed_launches_advise_what_can_be_printed(opened: Open) -> None:
    printed = replace(graph(), wrapper_key=f"{PRINTED_KEY}0")
    log = LogBuilder().record(run()).record(printed).record(calls(0, 0, MONOTONIC_NS)).record(End("exit", 1))
    text = " ".join(summary_text(opened(log)).split())
    assert "record with --aoti values to look for NaN and growing magnitudes." in text
    assert "--level values" not in text
    assert "--judge" not in text


@pytest.mark.parametrize(
    ("key", "variables", "is_told"),
    [
        (f"{PRINTED_KEY}0", {}, True),
        (f"{PRINTED_KEY}0", {"AOTI_RUNTIME_CHECK_INPUTS": "1"}, False),
        ("key", {}, False),
    ],
)
def test_packages_that_do_not_check_their_inputs_name_the_variable(
    opened: Open, key: str, variables: dict[str, str], is_told: bool
) -> None:
    log = LogBuilder().record(run(machine=machine(variables=variables))).record(replace(graph(), wrapper_key=key))
    assert ("AOTI_RUNTIME_CHECK_INPUTS=1" in summary_text(opened(log.record(End("exit", 1))))) == is_told


@pytest.mark.slow
def test_a_trace_without_values_names_the_option_that_records_them(opened: Open) -> None:
    trace = opened(recorded())
    values = (
        "Values were not recorded; record with --level values to look for NaN, growing magnitudes, reads of unwritten"
        " memory and changed saved tensors."
    )
    told = f"{values} To look for finite but wrong numbers, record with --judge first --check-eager."
    for text in (summary_text(trace), findings_text(trace)):
        assert told in " ".join(text.split())
    assert values in Client(trace).get("/").text
    check = LayerCheck("0/0", 0, "forward", "eager", "compiled", "agrees", None, 1, 0, None)
    assert "--judge" not in summary_text(opened(recorded(end=False).record(check)))
    assert "--level" not in summary_text(opened(recorded(level="values")))
    assert "--level" not in summary_text(opened(compile_records(LogBuilder())))


@pytest.mark.parametrize(
    ("returned", "phase", "is_told"),
    [
        ("arg0_1", "inference", True),
        ("arg0_1", "forward", False),
        ("reinterpret_tensor(arg0_1, (4, ))", "inference", False),
        ("buf0", "inference", False),
    ],
)
def test_a_graph_that_returns_an_input_itself_names_the_option_that_compares_it(
    opened: Open, returned: str, phase: Any, is_told: bool
) -> None:
    code = f"def call(args):\n    arg0_1, = args\n    buf0 = arg0_1\n    return ({returned}, )\n"
    log = compile_records(LogBuilder().record(run()), has_code=False)
    ids: Any = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    log.torch("inductor_output_code", {"filename": "/tmp/x/cwrapper.py"}, code.encode(), **ids)
    text = " ".join(summary_text(opened(log.record(replace(graph(), phase=phase)))).split())
    told = "The graph 0/0 returns an input itself as a result; record with --check-eager"
    assert (told in text) == is_told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "buffer", "zones", "is_told"),
    [
        ("torch.ops.mine.fill.default", "buf0", "0", True),
        ("torch.ops.mine.fill.default", "buf0", "1", False),
        ("torch.ops.mine.fill.default", "arg0_1", "0", False),
        ("torch.ops.aten.fill_.Scalar", "buf0", "0", False),
    ],
)
def test_operators_that_write_into_buffers_name_the_option_that_watches_the_ends(
    opened: Open, kernel: str, buffer: str, zones: str, is_told: bool
) -> None:
    program = Program().allocate("buf0").launch(kernel, [buffer], [buffer], "fallback")
    log = ValueLog(program, machine=machine(variables={"STEPSCOPE_RED_ZONES": zones}))
    log.call(program)
    text = " ".join(summary_text(opened(log.end())).split())
    told = "whether mine.fill writes outside of the given tensors; record with --red-zones to find out."
    assert (told in text) == is_told


@pytest.mark.parametrize("end", [True, False])
def test_the_page_of_problems_knows_a_recorded_trace_without_an_end(opened: Open, end: bool) -> None:
    trace = opened(recorded(end=end))
    text = Client(trace).get("/problems").text
    assert "Everything requested was recorded." in text
    assert "PyTorch wrote this trace" not in text


def test_text_of_a_run_with_findings_and_damage(opened: Open) -> None:
    text = summary_text(opened(recorded(end=False).data + b"noise\n"))
    assert text.startswith("✖ The log has no end record: process 4711 ended after launch 15 of step 2")
    assert "Damage\n  1 not_a_record: a line is not a record of a TORCH_TRACE log\n" in text


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0 ns"), (999, "999 ns"), (1500, "1.50 us"), (12_345_678, "12.3 ms"), (None, "–")]
)
def test_times(ns: int | None, text: str) -> None:
    assert format_ns(ns) == text
