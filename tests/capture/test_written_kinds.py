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


def optimizing(folder: Path) -> None:
    """Steps of an optimizer with many parameters, whose gradients are not set to zero, and of one without effect."""
    code = (
        "import torch; w = torch.nn.Parameter(torch.ones(4_000_000)); o = torch.optim.Adam([w])\n"
        "f = torch.compile(lambda x: (x * x).sum()); [(f(w).backward(), o.step()) for _ in range(3)]\n"
        "v, u = torch.nn.Parameter(w.detach()[:64].bfloat16()), torch.nn.Parameter(torch.ones(1))\n"
        "v.grad, o = v.detach(), torch.optim.SGD([v, u], lr=1e-6)\n"
        "[o.step() for _ in range(6)]"
    )
    run_recorded(folder, code)


def listing(folder: Path) -> None:
    """Steps of an optimizer that lacks the layer which a plain list of the module holds."""
    code = (
        "import torch; net = torch.nn.Linear(4, 4); net.more = [torch.nn.Linear(4, 4)]\n"
        "f, o = torch.compile(lambda x: net.more[0](net(x)).sum()), torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "[(f(torch.ones(2, 4)).backward(), o.step()) for _ in range(6)]"
    )
    run_recorded(folder, code)


def sharing(folder: Path) -> None:
    """Steps of an optimizer whose parameters share memory with another module."""
    code = (
        "import torch; net, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)\n"
        "other.load_state_dict(net.state_dict(), assign=True)\n"
        "f, o = torch.compile(lambda x: (net(x) - other(x)).sum()), torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "[(f(torch.ones(2, 4)).backward(), o.step()) for _ in range(3)]"
    )
    run_recorded(folder, code)


def clearing(folder: Path) -> None:
    """Steps of an optimizer whose gradients are cleared between backward passes."""
    code = (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "part = lambda: (o.zero_grad(), f(torch.ones(2, 4)).sum().backward())\n"
        "[(part(), part(), o.step()) for _ in range(6)]"
    )
    run_recorded(folder, code)


def clipping(folder: Path) -> None:
    """Gradients are clipped after each step of an optimizer."""
    code = (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "clip = lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"
        "[(f(torch.ones(2, 4)).sum().backward(), o.step(), clip(), o.zero_grad()) for _ in range(7)]"
    )
    run_recorded(folder, code)


def hooking(folder: Path) -> None:
    """A hook is added to a module after its compile."""
    code = (
        "import torch; net = torch.nn.Sequential(torch.nn.Linear(4, 4)); f, x = torch.compile(net), torch.ones(2, 4)\n"
        "f(x); net[0].register_forward_hook(lambda *_: None); f(x)"
    )
    run_recorded(folder, code)


def loading(folder: Path) -> None:
    """A checkpoint of a compiled module loads nothing."""
    code = (
        "import torch; net, f = torch.nn.Linear(4, 4), torch.compile(torch.nn.Linear(4, 4))\n"
        "net.load_state_dict(f.state_dict(), strict=False); f(torch.ones(2, 4))"
    )
    run_recorded(folder, code)


def restoring(folder: Path) -> None:
    """A program restores the weights of a step from a dictionary that is no copy."""
    code = (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "step = lambda: (f(torch.ones(2, 4)).sum().backward(), o.step()); step()\n"
        "best = net.state_dict(); step(); net.load_state_dict(best)"
    )
    run_recorded(folder, code)


def piling(folder: Path) -> None:
    """A hook is added to a parameter in each step."""
    code = (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "hook = lambda: net.weight.register_hook(lambda grad: grad * 0.9)\n"
        "[(hook(), f(torch.ones(2, 4)).sum().backward(), o.step(), o.zero_grad()) for _ in range(18)]"
    )
    run_recorded(folder, code)


def evaluating(folder: Path) -> None:
    """A module is left in eval mode."""
    code = (
        "import torch; net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())\n"
        "f, o, x = torch.compile(net), torch.optim.SGD(net.parameters()), torch.ones(2, 4)\n"
        "train = lambda: (f(x).sum().backward(), o.step(), o.zero_grad())\n"
        "train(); net.eval()\n"
        "with torch.no_grad(): f(x)\n"
        "[train() for _ in range(6)]"
    )
    run_recorded(folder, code)


def pairing(folder: Path) -> None:
    """A loss outside of compiled code combines each prediction with all targets."""
    code = (
        "import torch; f = torch.compile(torch.nn.Linear(4, 1))\n"
        "[(f(torch.ones(3, 4)) - torch.ones(3)).square().mean().backward() for _ in range(2)]"
    )
    run_recorded(folder, code)


def summing(folder: Path) -> None:
    """A backward pass waits for the forward passes of all micro-batches."""
    code = (
        "import torch; layer = lambda: torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh())\n"
        "f = torch.compile(torch.nn.Sequential(layer(), layer(), layer()))\n"
        "[sum(f(torch.ones(2048, 512)).square().mean() for _ in range(4)).backward() for _ in range(2)]"
    )
    run_recorded(folder, code)


def losing(folder: Path) -> None:
    """The parameters become NaN in a step."""
    code = (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "[((f(torch.ones(2, 4)) * float('nan')).sum().backward(), o.step(), o.zero_grad()) for _ in range(2)]"
    )
    run_recorded(folder, code)


def vanishing(folder: Path) -> None:
    """A factor of the loss makes every gradient zero."""
    code = (
        "import torch; net = torch.nn.Linear(4, 4); f, o = torch.compile(net), torch.optim.SGD(net.parameters())\n"
        "[((f(torch.ones(2, 4)) * 0).sum().backward(), o.step(), o.zero_grad()) for _ in range(18)]"
    )
    run_recorded(folder, code)


def freezing(folder: Path) -> None:
    """A weight changes after the compile that made a constant of it, and that measured choices for its product."""
    code = (
        "import torch, torch._inductor.config as config; config.freezing = config.max_autotune = True\n"
        "config.max_autotune_gemm_backends = 'CPP,ATEN'; net = torch.nn.Linear(16, 16)\n"
        "f = torch.compile(net); torch.set_grad_enabled(False); f(torch.ones(2, 16)); net.weight.add_(1)\n"
        "f(torch.ones(2, 16))"
    )
    run_recorded(folder, code)


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


def keeping(folder: Path) -> None:
    """A program keeps what a compiled function writes again in each call."""
    code = (
        "import torch\n"
        "out, kept = torch.zeros(4), []\n"
        "@torch.compile\n"
        "def write(x): out.copy_(x * 2); return out\n"
        "for _ in range(9): kept.append(write(torch.rand(4)))"
    )
    run_recorded(folder, code)


def caching(folder: Path) -> None:
    """A program whose cache keeps an input of each call."""
    code = (
        "import functools, torch; from stepscope.tracer.runtime.lifetimes import kept_tensors\n"
        "kept_tensors.MOST_SHARE, kept_tensors.SECONDS = 1e9, 60  # the program is short\n"
        "mask = functools.cache(lambda x: x[:, None] > x); f = torch.compile(lambda x, m: (x * m).sum())\n"
        "for _ in range(20): f(torch.rand(512), mask(torch.rand(512)))"
    )
    run_recorded(folder, code)


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
        optimizing,
        "run graph launches step_marks optimizer_step kept_gradients learning_rate lost_updates missing_gradients end",
    ),
    "listing": (listing, "run graph launches untrained_parameters end"),
    "sharing": (sharing, "run graph launches shared_parameters end"),
    "clearing": (clearing, "run graph launches cleared_gradients end"),
    "clipping": (clipping, "run graph launches misplaced_clipping end"),
    "hooking": (hooking, "run graph launches changed_hooks end"),
    "loading": (loading, "run graph launches unmatched_keys end"),
    "restoring": (restoring, "run graph launches uncopied_state end"),
    "piling": (piling, "run graph launches piled_hooks end"),
    "evaluating": (evaluating, "run graph launches eval_call end"),
    "pairing": (pairing, "run graph launches loss_path end"),
    "summing": (summing, "run graph launches summed_losses end"),
    "vanishing": (vanishing, "run graph launches zero_gradients end"),
    "losing": (losing, "run graph launches nonfinite_parameters end"),
    "freezing": (freezing, "run graph autotuned launches changed_frozen_weight end"),
    "keeping": (keeping, "run graph launches kept_results end"),
    "caching": (caching, "run graph launches kept_tensors end"),
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
