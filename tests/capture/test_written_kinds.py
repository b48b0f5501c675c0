"""Every kind of record is written by a program here; each record and each summary has the form of its JSON schema."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stepscope.tracer.aoti.live import LiveCapture
from stepscope.tracer.config import TraceConfig
from stepscope.tracer.schema.constants import OUTPUT_CODE
from stepscope.tracer.schema.records import RECORD_TYPES
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.store.open import open_trace
from tests import python_processes
from tests.capture.conftest import ROOT, clean_environment
from tests.capture.logs import LogRecord, read_log
from tests.capture.short_programs import SHORT_PROGRAMS
from tests.logs import judged_logs
from tests.logs.synthetic import recorded
from tests.tracer.aoti.test_capture import OVERFLOW, imported, print_to

CODE = f"{OUTPUT_CODE}N"


def run(folder: Path, *command: str, autoload: bool = False, alone: bool = False) -> int:
    """Programs that record themselves are not recorded through the entry point as well, which `autoload` is about."""
    environment = clean_environment(folder / "cache", TORCH_DEVICE_BACKEND_AUTOLOAD="1" if autoload else "0")
    return python_processes.run(command, env=environment, alone=alone).returncode


def dying(folder: Path) -> None:
    """Under `stepscope run`, which writes how the command ended."""
    stepscope = [sys.executable, "-m", "stepscope", "run", "-o", str(folder / "trace"), "--"]
    program = [sys.executable, "-m", "tests.capture.written_kinds", str(folder / "trace")]
    assert run(folder, *stepscope, *program, alone=True) == 1


def failing(folder: Path) -> None:
    """Compiles without an id fail."""
    stepscope = [sys.executable, "-m", "stepscope", "run", "-o", str(folder / "trace"), "--"]
    assert run(folder, *stepscope, "-m", "tests.capture.failing_compiles", autoload=True) == 0


def recompute(folder: Path) -> None:
    """A pass that carries wrong figures along."""
    program = [sys.executable, "-m", "tests.tracer.inductor.recompute_program", str(folder / "trace"), "ours reorder"]
    assert run(folder, *program) == 0


def printed(folder: Path) -> None:
    """What PyTorch's debug printer printed, with the times of a profiler."""
    names = ["aoti_torch_cpu_mm_out", "cpp_fused_log_0", "cpp_fused_exp_1"]
    events = [{"ph": "X", "cat": "cpu_op", "name": name, "ts": 10.0 * n, "dur": 1} for n, name in enumerate(names)]
    profile = folder / "profile.json"
    profile.write_text(json.dumps({"traceEvents": events}))
    imported(folder, OVERFLOW, str(profile))


def read_live(folder: Path) -> None:
    """The same, read while it is printed."""
    print_to(LiveCapture(TraceConfig(directory=folder / "trace"), "values", ["program"]), OVERFLOW * 3, 1)


def cpp(folder: Path) -> None:
    """A graph with cpp_wrapper, whose code prints names."""
    stepscope = [sys.executable, "-m", "stepscope", "run", "--aoti", "launches", "-o", str(folder / "trace"), "--"]
    assert run(folder, *stepscope, "-m", "tests.tracer.aoti.cpp_sites", str(folder), "cpp", autoload=True) == 0


def judged(folder: Path) -> None:
    """A graph whose kernel is wrong."""
    stepscope = [sys.executable, "-m", "stepscope", "run", "--judge", "first", "-o", str(folder / "trace"), "--"]
    assert run(folder, *stepscope, "-m", "tests.capture.judged_program", "wrong", autoload=True) == 0


def raising(folder: Path) -> None:
    """Exceptions leave calls of compiled code, and the program catches them."""
    stepscope = [sys.executable, "-m", "stepscope", "run", "-o", str(folder / "trace"), "--"]
    assert run(folder, *stepscope, "-m", "tests.capture.known_program", "sick", autoload=True) == 0


def waiting(folder: Path) -> None:
    """A loop that waits for its batches."""
    stepscope = [sys.executable, "-m", "stepscope", "run", "-o", str(folder / "trace"), "--"]
    assert run(folder, *stepscope, "-m", "tests.slowness.programs", "data_loader", "slow", autoload=True) == 0


def run_recorded(folder: Path, code: str, *options: str) -> None:
    """Record a program of some lines."""
    stepscope = [sys.executable, "-m", "stepscope", "run", *options, "-o", str(folder / "trace"), "--"]
    assert run(folder, *stepscope, sys.executable, "-c", code, autoload=True) == 0


def short(name: str) -> Callable[[Path], None]:
    """Return what records one of the short programs."""
    return lambda folder: run_recorded(folder, SHORT_PROGRAMS[name])


def straying(folder: Path) -> None:
    """An operator writes next to its output."""
    code = (
        "import ctypes, torch\n"
        "@torch.library.custom_op('kinds::fill', mutates_args={'out'})\n"
        "def fill(out: torch.Tensor) -> None: ctypes.memset(out.data_ptr(), 0, 40)\n"
        "def filled(x): out = torch.empty_like(x); fill(out); return out + 1\n"
        "torch.compile(filled)(torch.ones(8))"
    )
    run_recorded(folder, code, "--red-zones")


def profiled(folder: Path) -> None:
    """A program with PyTorch's profiler in its second step."""
    code = "import torch; f = torch.compile(lambda x: (x @ x - 99).sqrt()); [f(torch.ones(8, 8)) for _ in range(3)]"
    stepscope = [
        sys.executable,
        "-m",
        "stepscope",
        "run",
        "--level",
        "values",
        "--profile",
        "1",
        "-o",
        str(folder / "trace"),
        "--",
    ]
    assert run(folder, *stepscope, sys.executable, "-c", code, autoload=True) == 0


def replicated(folder: Path) -> None:
    """Two ranks train a model with DistributedDataParallel."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    stepscope = [sys.executable, "-m", "stepscope", "run", "--level", "values", "-o", str(folder / "trace"), "--"]
    program = ["-m", "tests.capture.replica_program", "healthy"]
    assert run(folder, *stepscope, *launcher, *program, autoload=True) == 0


def bypassing(folder: Path) -> None:
    """Two ranks train the module in a DistributedDataParallel without a call of it."""
    program = folder / "bypassing.py"
    program.write_text(
        "import torch, torch.distributed as dist; dist.init_process_group('gloo'); net = torch.nn.Linear(4, 4)\n"
        "ddp = torch.nn.parallel.DistributedDataParallel(net); f, x = torch.compile(ddp.module), torch.ones(2, 4)\n"
        "o = torch.optim.SGD(net.parameters(), lr=0.1); [(f(x).sum().backward(), o.step()) for _ in range(6)]\n"
        "dist.barrier(); dist.destroy_process_group()"
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    stepscope = [sys.executable, "-m", "stepscope", "run", "-o", str(folder / "trace"), "--"]
    assert run(folder, *stepscope, *launcher, str(program), autoload=True) == 0


def clobbered(folder: Path) -> None:
    """A launch whose input was changed, as the judge of a wrapper with such a fault writes it."""
    folder.joinpath("trace").mkdir()
    judged_logs.judged(recorded()).write(folder / "trace" / "clobbered.log")


PROGRAMS: dict[str, tuple[Callable[[Path], None], str]] = {
    "dying": (
        dying,
        "run graph output_code_N provenance tensors same_tensors step_marks launches call_symbols value_layout"
        " values saved_tensor scheduler_memory lifetime_layout lifetimes lifetime_mismatch memory_step_mismatch growth"
        " layer_check tuned_kernels failure overhead uncaught_exception end process_end",
    ),
    "failing": (failing, "run compile_error failed_node end"),
    "raising": (raising, "run raised_call failed_node calls_in_backward collections end"),
    "waiting": (waiting, "run graph call_site launches call_gaps data_wait sampled_lines line_samples end"),
    "optimizing": (
        short("optimizing"),
        "run graph launches step_marks optimizer_step kept_gradients learning_rate lost_updates missing_gradients end",
    ),
    "listing": (short("listing"), "run graph launches untrained_parameters end"),
    "sharing": (short("sharing"), "run graph launches shared_parameters end"),
    "clearing": (short("clearing"), "run graph launches cleared_gradients end"),
    "clipping": (short("clipping"), "run graph launches misplaced_clipping end"),
    "hooking": (short("hooking"), "run graph launches changed_hooks end"),
    "loading": (short("loading"), "run graph launches unmatched_keys end"),
    "restoring": (short("restoring"), "run graph launches uncopied_state end"),
    "piling": (short("piling"), "run graph launches piled_hooks end"),
    "seeding": (short("seeding"), "run graph launches repeated_seed end"),
    "repeating": (short("repeating"), "run graph launches repeated_batch end"),
    "evaluating": (short("evaluating"), "run graph launches eval_call end"),
    "pairing": (short("pairing"), "run graph launches loss_path end"),
    "summing": (short("summing"), "run graph launches summed_losses end"),
    "vanishing": (short("vanishing"), "run graph launches zero_gradients end"),
    "losing": (short("losing"), "run graph launches nonfinite_parameters end"),
    "freezing": (short("freezing"), "run graph autotuned launches changed_frozen_weight end"),
    "keeping": (short("keeping"), "run graph launches kept_results end"),
    "caching": (short("caching"), "run graph launches kept_tensors end"),
    "straying": (straying, "run graph launches red_zone_write end"),
    "profiled": (profiled, "run graph launches profiled_operator end"),
    "recompute": (recompute, "run graph recompute_mismatch end"),
    "printed": (printed, "run graph launches values device_times skipped end"),
    "cpp": (cpp, "run graph cpp_code output_code_N steps launches skipped end"),
    "judged": (judged, "run graph judged_call judged_buffer saved_tensor end"),
    "clobbered": (clobbered, "clobbered_input"),
    "bypassing": (bypassing, "run graph launches unaveraged_gradients end"),
    "replicated": (replicated, "run graph replicated_parameters launches values end"),
    "read live": (read_live, "run graph steps launches values end"),
}
"""Programs, and kinds that each of them writes."""
FEW = {"loading"}
"""What each run of the tests records; tests of the other programs are slow."""


@pytest.fixture(
    scope="module",
    params=[name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS],
)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name of a program, and the folder of its logs."""
    folder = tmp_path_factory.mktemp(request.param)
    PROGRAMS[request.param][0](folder)
    return request.param, folder / "trace"


def ours(folder: Path) -> list[LogRecord]:
    found = [record for path in folder.glob("*.log") for record in read_log(path)]
    return [record for record in found if (record.artifact or "").startswith("stepscope_")]


@functools.cache
def schema(name: str) -> dict[str, Any]:
    """As it is published, and no field besides; its own check takes seconds."""
    read: dict[str, Any] = json.loads((ROOT / "docs" / f"{name}.schema.json").read_text())
    for part in (read if name == "summary" else {}, *read["$defs"].values()):
        if "properties" in part:
            part["additionalProperties"] = False
    jsonschema.Draft202012Validator.check_schema(read)
    return read


ON_GPU = {"stepscope_device_work"}
"""Kinds that only a program on a GPU writes, as those of tests/gpu/test_profile.py."""


def test_every_kind_is_written_by_a_program() -> None:
    """A new kind needs a line above."""
    every = {f"stepscope_{kind.KIND}" for kind in RECORD_TYPES} | {CODE}
    listed = {f"stepscope_{kind}" for _, kinds in PROGRAMS.values() for kind in kinds.split()}
    assert listed == every - ON_GPU


def test_a_program_writes_its_kinds(written: tuple[str, Path]) -> None:
    name, folder = written
    found = {re.sub(r"_\d+$", "_N", record.artifact or "") for record in ours(folder)}
    assert {f"stepscope_{kind}" for kind in PROGRAMS[name][1].split()} - found == set()


def test_records_have_the_form_of_the_schema(written: tuple[str, Path]) -> None:
    validator = jsonschema.Draft202012Validator(schema("log"))
    for record in ours(written[1]):
        is_code = (record.artifact or "").startswith(OUTPUT_CODE)
        payload = (record.payload or b"").decode() if is_code else record.json()
        validator.validate({"header": record.header, "payload": payload})


def test_the_schema_refuses_what_is_no_record(written: tuple[str, Path]) -> None:
    validator = jsonschema.Draft202012Validator(schema("log"))
    for record in ours(written[1]):
        if record.artifact == "stepscope_run":
            payloads: list[Any] = [{**record.json(), "pid": "one"}, {"pid": 1}, {**record.json(), "surplus": 1}, []]
            for wrong in payloads:
                assert not validator.is_valid({"header": record.header, "payload": wrong})
            strange = {**record.header, "artifact": {"name": "stepscope_tea", "encoding": "json"}}
            assert not validator.is_valid({"header": strange, "payload": {}})


def test_the_summary_has_the_form_of_the_schema(written: tuple[str, Path]) -> None:
    with open_trace(written[1]) as trace:
        answer = json.loads(json.dumps(summary(trace)))
    jsonschema.Draft202012Validator(schema("summary")).validate(answer)
    assert answer["runs"]
    assert answer["findings"] or written[0] in ("waiting", "optimizing"), "a wait may be short, and training is healthy"
