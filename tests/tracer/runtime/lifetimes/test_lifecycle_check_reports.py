"""What checks of memory steps tell, where, and how often; and the forms in which torch calls them."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._inductor.runtime import debug_utils
from torch.utils._python_dispatch import TorchDispatchMode

import stepscope
from stepscope.tracer import check_memory_step, track_tensor
from stepscope.tracer.inductor.compat import debug_functions_replaced
from stepscope.tracer.runtime.lifetimes import lifecycle_checks
from stepscope.tracer.runtime.lifetimes.step_reports import Reports
from stepscope.tracer.schema.graphs import Graph
from stepscope.tracer.schema.memory import MemoryStepMismatch
from tests.tracer.logs import read
from tests.tracer.runtime.lifetimes.test_lifecycle_checks import mismatch, new, strict  # noqa: F401 - strict is a fixture

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of itself while it compiles


def planted() -> None:
    check_memory_step(allocated=["buf99"], freed=[])


def test_what_is_found_is_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle_checks, "reports", Reports())
    with inductor_config.patch({"test_configs.track_memory_lifecycle": None}), caplog.at_level(logging.INFO):
        planted()
        planted()
    (entry,) = [one for one in caplog.records if one.name == "stepscope"]
    assert "buf99 should have been allocated and was not" in entry.message


@pytest.mark.slow
def test_the_recording_says_what_is_done_and_holds_it(tmp_path: Path) -> None:
    with inductor_config.patch({"test_configs.track_memory_lifecycle": None}):
        with stepscope.trace(tmp_path / "log") as recorder:
            planted()
            planted()
        with stepscope.trace(tmp_path / "assert", lifetimes="assert"):
            assert mismatch(planted)
        with stepscope.trace(tmp_path / "off", lifetimes="off"):
            planted()
    assert recorder.path is not None
    records = read(recorder.path)[MemoryStepMismatch.KIND]
    assert [(record["kind"], record["buffer"], record["times"], record["file"]) for record in records] == [
        (["missing_allocation"], ["buf99"], [1], __file__)
    ] * 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["log", "assert"])
def test_the_recording_counts_each_time_and_holds_what_the_program_caught(tmp_path: Path, mode: str) -> None:
    keep: list[Any] = []

    def run() -> None:
        buf0 = new("buf0")
        track_tensor(buf0, "buf0")
        keep.append(buf0)
        check_memory_step(allocated=["buf0"], freed=[])
        del buf0
        check_memory_step(allocated=[], freed=["buf0"])

    with inductor_config.patch({"test_configs.track_memory_lifecycle": mode}), stepscope.trace(tmp_path) as recorder:
        for number in range(1, 4):
            if mode == "assert":
                assert f"held by list of {number} in" in mismatch(run)
            else:
                run()
    assert recorder.path is not None
    records = read(recorder.path)[MemoryStepMismatch.KIND]
    assert {(*record["kind"], *record["buffer"], *record["storage"]) for record in records} == {
        ("missing_death", "buf0", "buf0")
    }
    assert sum(sum(record["times"]) for record in records) == 3
    assert any("list of 1 in" in words for words in records[0]["holders"][0])


def test_a_further_recording_is_told_anew(tmp_path: Path) -> None:
    with inductor_config.patch({"test_configs.track_memory_lifecycle": None}):
        for name in ("first", "second"):
            with stepscope.trace(tmp_path / name) as recorder:
                planted()
            assert recorder.path is not None
            assert len(read(recorder.path)[MemoryStepMismatch.KIND]) == 1


def test_the_function_that_is_checked_is_named_as_the_holder() -> None:
    def run() -> torch.Tensor:
        buf0 = new("buf0")
        track_tensor(buf0, "buf0")
        check_memory_step(allocated=["buf0"], freed=[])
        check_memory_step(allocated=[], freed=["buf0"])
        return buf0

    assert "held by local variable buf0 of run() at test_lifecycle_check_reports.py:" in mismatch(run)


# The check as an operator, and torch's own functions.


def test_the_check_as_an_operator() -> None:
    debug_utils.register_check_mem_op()
    check = torch.ops._inductor_debug.check_memory_step

    def run(keep: list[Any], freed: list[str]) -> None:
        buf0 = new("buf0")
        track_tensor(buf0, "buf0")
        keep.append(buf0)
        check(["buf0"], [], False)
        buf1 = buf0; del buf0  # reuse  # fmt: skip  # noqa: E702
        torch.ops._inductor_debug.check_memory_step.default(["buf1"], ["buf0"], False)
        del buf1
        check.default([], freed, True)

    with debug_functions_replaced(lifecycle_checks.STAND_INS):
        run([], [])
        text = mismatch(lambda: run([1], ["buf1"]))
    assert re.search(
        r"at test_lifecycle_check_reports.py:\d+: buf1 \(16 bytes\) should have been freed and is alive", text
    )
    assert "list of 2" in text


def test_what_held_torchs_functions_before_calls_ours_meanwhile() -> None:
    check, track, allocate = debug_utils.check_memory_step, debug_utils.track_tensor, debug_utils.tracked_empty_strided

    def run() -> None:
        buf0 = new("buf0")
        track(buf0, "buf0")
        buf1 = allocate([4], [1], dtype=torch.float32, device=torch.device("cpu"), name="buf1")
        check(["buf0", "buf1"], [])
        buf2 = buf1; del buf1  # reuse  # fmt: skip  # noqa: E702
        check(["buf2", "buf77"], ["buf1"])
        del buf2

    with debug_functions_replaced(lifecycle_checks.STAND_INS):
        text = mismatch(run)
    assert text.endswith("buf77 should have been allocated and was not")
    assert "at test_lifecycle_check_reports.py:" in text


class Passing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of the program's stands between an operator and who calls it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_an_operator_under_a_mode_checks_the_function_that_calls_it() -> None:
    debug_utils.register_check_mem_op()

    def run() -> None:
        buf0 = new("buf0")
        track_tensor(buf0, "buf0")
        torch.ops._inductor_debug.check_memory_step(["buf0", "buf77"], [], False)
        del buf0

    with debug_functions_replaced(lifecycle_checks.STAND_INS), Passing():  # type: ignore[no-untyped-call]
        assert mismatch(run).endswith("buf77 should have been allocated and was not")


@pytest.mark.slow
def test_a_compiled_program_with_the_operator(tmp_path: Path) -> None:
    """The wrapper has it as an operator; while the program is traced nothing runs, so nothing is checked."""
    debug_utils.register_check_mem_op()

    def program(x: torch.Tensor) -> torch.Tensor:
        torch.ops._inductor_debug.check_memory_step([], [], False)
        y = (x @ x).sin() @ x
        torch.ops._inductor_debug.check_memory_step(["buf77"], [], True)
        return y

    with inductor_config.patch({"test_configs.track_memory_lifecycle": None}), stepscope.trace(tmp_path) as recorder:
        compiled = torch.compile(program)
        for _ in range(3):
            compiled(torch.ones(8, 8))
    assert recorder.path is not None
    records = read(recorder.path)
    graph = records[Graph.KIND][-1]  # those of other tests may still be loaded
    assert not any("check_memory_step" in site["kernel"] for site in graph["sites"])
    found = records[MemoryStepMismatch.KIND]
    assert {Path(record["file"]).stem for record in found} == {graph["wrapper_key"]}
    assert {record["graph"] for record in found} == {graph["graph"]}
    assert sum(sum(record["times"]) for record in found) == 3
    assert not records["failure"]
