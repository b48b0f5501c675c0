"""Flags of PyTorch: which ones stepscope sets and when, and that those of the user stay as they are."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepscope.tracer.aoti.live import environment as printer_environment
from stepscope.tracer.aoti.printer_output import FIELDS, PrintedTensor, PrinterReader
from stepscope.tracer.command import run
from stepscope.tracer.command.crash_runs import CrashRuns, Limits
from stepscope.tracer.config import TraceConfig, to_environment
from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.pytorch_helpers.table import named_in
from tests.tracer.logs import read

DEADLY = "import os; os.abort()"
COMPILED = "import torch; torch.compile(lambda x: x.sin(), backend='aot_eager')(torch.ones(2))"

# Every node of a group carries too many bytes after a swap; what is recorded of that is printed as JSON.
PLANTED = """
import sys
import torch._inductor.comms as comms

update = comms._update_memory_tracking_after_swap_reorder

def planted(candidate, gns, *rest):
    update(candidate, gns, *rest)
    carried = next(one for one in rest if isinstance(one, dict) and isinstance(one.get(candidate), tuple))
    for node in gns:
        alloc, free = carried[node]
        carried[node] = (alloc + 64, free)

comms._update_memory_tracking_after_swap_reorder = planted
sys.argv = ["program", sys.argv[1], "ours"]
import tests.tracer.inductor.recompute_program
"""


@dataclass(frozen=True)
class Look:
    """A process that died, and in which Inductor has compiled or a package may have run."""

    compiles: bool
    is_packaged: bool
    symptom: str | None = "SIGABRT"
    kernels: tuple[str, ...] = ()


@pytest.mark.slow
@pytest.mark.parametrize(("level", "logs"), [("off", 0), ("launches", 1)])
def test_level_off_records_nothing(tmp_path: Path, level: str, logs: int) -> None:
    result = run.run(["-c", COMPILED], TraceConfig(tmp_path / "out", level=level))
    assert result.exit_code == 0
    assert len(result.logs) == logs
    assert (tmp_path / "out").exists() == bool(logs)


@pytest.mark.parametrize("level", ["off", "launches", "values", "save"])
def test_recording_switches_no_flag_of_torch_on(tmp_path: Path, level: str) -> None:
    """Without `--aoti` and `--crash` a program gets settings of stepscope alone."""
    added = to_environment(TraceConfig(tmp_path, level=level, lifetimes="assert", check_recompute=True))
    assert added
    assert [name for name in added if not name.startswith("STEPSCOPE_")] == []


def test_variables_of_the_user_reach_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = "The AOTInductor debugging guide", "Settings that turn checks on"
    wanted = {name: "7" for table in tables for name in named_in(table) if name.isupper() and "=" not in name}
    assert {"AOT_INDUCTOR_DEBUG_SYMBOLS", "TORCH_SHOW_CPP_STACKTRACES", "PYTORCH_SINK_WAITS_LIMIT"} <= wanted.keys()
    seen = tmp_path / "seen"
    program = f"import json, os, pathlib; pathlib.Path({str(seen)!r}).write_text(json.dumps(dict(os.environ)))"
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    assert run.run(["-c", program], TraceConfig(tmp_path, level="values")).exit_code == 0
    environment = json.loads(seen.read_text())
    assert {name: environment.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("look", "flags"),
    [
        (Look(compiles=True, is_packaged=False), {"TORCHINDUCTOR_NAN_ASSERTS": "1"}),
        (Look(compiles=False, is_packaged=True), {"AOTI_RUNTIME_CHECK_INPUTS": "1"}),
        (
            Look(compiles=True, is_packaged=True),
            {"TORCHINDUCTOR_NAN_ASSERTS": "1", "AOTI_RUNTIME_CHECK_INPUTS": "1"},
        ),
    ],
)
def test_sanity_checks_are_those_of_what_was_compiled(tmp_path: Path, look: Look, flags: dict[str, str]) -> None:
    runs = CrashRuns(["-c", DEADLY], TraceConfig(tmp_path), Limits(), lambda _: look, lambda _: None)
    runs.run()
    folder = max(tmp_path.glob("run-*"))
    (log,) = folder.glob("*.log")
    (ending,) = read(log)["process_end"]
    assert ending["crash_run"]["purpose"] == "sanity checks"
    assert ending["crash_run"]["environment"] == flags


def test_a_number_that_cpp_code_prints_costs_no_tensor_behind_it() -> None:
    """PyTorch prints a backslash and an n where it means a new line, so that the next block begins on the same line."""
    facts = zip(FIELDS, ["4", "float32", "1", "0", "7", "cpu", "[4]", "[1]", "Strided", "1", "0"], strict=True)
    block = "".join(f"{field.decode()}: {value}\n" for field, value in facts)
    text = f"[  before_launch - k - ks0: 4  ]\\n[  before_launch - k - buf0  ]:\n{block}\n"
    reader = PrinterReader()
    events = [*reader.feed(text.encode(), None), *reader.end(None)]
    (found,) = [event for event in events if isinstance(event, PrintedTensor)]
    assert (found.kernel, found.argument, found.numel, found.max, found.whole) == ("k", "buf0", 4, 7.0, True)


def test_each_level_of_the_printer_has_a_name() -> None:
    variable = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"
    levels = {level: printer_environment(level, ())[variable] for level in ("launches", "values", "save")}
    assert levels == {"launches": "3", "values": "2", "save": "1"}


@pytest.mark.slow
def test_each_node_of_a_group_that_differs_is_a_reason(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLANTED, str(tmp_path)]
    environment = clean_environment(tmp_path / "cache")
    ran = python_processes.run(command, env=environment, timeout=400)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = read(Path(json.loads(ran.stdout)["log"]))["recompute_mismatch"]
    named = [
        [node for reason, node in zip(one["reasons"], one["reason_snode"], strict=True) if reason == "group"]
        for one in found
    ]
    assert any(named)
    assert all(set(nodes) <= set(one["group"]) for nodes, one in zip(named, found, strict=True))
    assert named[0] == found[0]["group"]
