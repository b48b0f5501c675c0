"""What is said of real runs: nothing of healthy ones, and of others no more than is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.torch_version import TorchVersion

from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from tests.capture.scripts import Scripts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


def findings(folder: Path) -> list[Finding]:
    with open_trace(folder, index_dir=folder / "index") as trace:
        return all_findings(trace)


def record(scripts: Scripts, folder: Path, body: str) -> list[Finding]:
    done = scripts.run(folder, body)
    assert done.returncode == 0, done.stderr
    return findings(folder)


def test_a_sequential_of_torch_names_its_modules_and_its_caller(scripts: Scripts, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, stepscope, torch\n"
        "from torch import nn\n"
        "net = torch.compile(nn.Sequential(nn.Linear(8, 16), nn.Sequential(nn.LayerNorm(16), nn.GELU())))\n"
        "with stepscope.trace(sys.argv[1]):\n"
        "    net(torch.ones(4, 8)).sum().backward()\n"
    )
    for cache in ("cold", "warm"):
        folder = tmp_path / cache
        done = scripts.run(folder, f"import runpy; runpy.run_path({str(script)!r})")
        assert done.returncode == 0, done.stderr
        with open_trace(folder, index_dir=folder / "index") as trace:
            rows = sql.rows(trace, "SELECT kernel, stacks FROM sites ORDER BY site")
        stacks = [(kernel, [stack[-1] for stack in json.loads(text)]) for kernel, text in rows]
        assert {(line["file"], line["line"]) for _, lines in stacks for line in lines} == {(str(script), 5)}
        (forward,) = [lines[0]["code"] for kernel, lines in stacks if "gelu" in kernel and "backward" not in kernel]
        assert forward == (
            "Sequential.1.0 (LayerNorm), Sequential.1.1 (GELU), called by: net(torch.ones(4, 8)).sum().backward()"
        )
        assert findings(folder) == []


@pytest.mark.parametrize("name", ["demo", "masked_attention", "dropout"])
def test_healthy_training_has_no_finding(scripts: Scripts, tmp_path: Path, name: str) -> None:
    body = f"""
    from tests.capture import healthy
    with stepscope.trace(FOLDER, level="values"):
        healthy.{name}()
    """
    assert record(scripts, tmp_path, body) == []


def test_what_dynamo_leaves_to_python_is_a_graph_break(scripts: Scripts, tmp_path: Path) -> None:
    body = """
    net = torch.compile(torch.nn.LSTM(4, 4))
    with stepscope.trace(FOLDER):
        for _ in range(2):
            net(VALUE[:2, :4])[0].sum().backward()
    """
    found = record(scripts, tmp_path, body)
    assert {(finding.kind, finding.severity) for finding in found} == {("graph_break", "warning")}


def test_who_leaves_by_os_exit_ends_the_log_before(scripts: Scripts, tmp_path: Path) -> None:
    """As launchers, forked servers and workers do: a child, and the program itself."""
    body = """
    import time
    with stepscope.trace(FOLDER):
        same(model(VALUE))
        child = os.fork()
        if child == 0:
            for _ in range(2):
                same(model(VALUE))
                time.sleep(0.4)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        os._exit(0)
    """
    assert record(scripts, tmp_path, body) == []
    assert len(list(tmp_path.glob("*.log"))) == 2
    assert list(tmp_path.glob("*.ring")) == []


def test_a_failed_compile_that_a_test_expects_is_info(scripts: Scripts, tmp_path: Path) -> None:
    body = """
    with stepscope.trace(FOLDER):
        try:
            torch.compile(lambda value: value @ value, fullgraph=True)(torch.ones(2, 3))
        except Exception:
            pass
        same(model(VALUE))
    """
    found = record(scripts, tmp_path, body)
    assert [(finding.kind, finding.severity) for finding in found] == [("compile_failure", "info")]


OVERLAP = """
@torch.compile
def flipped(value):
    value.index_put_((torch.arange(value.size(0)),), value * 2.0)
    value.add_(value.flip(0))
    return value
with stepscope.trace(FOLDER):
    flipped(torch.rand(64, 32))
"""
HEALTHY = """
@torch.compile
def recurrent(value, weight):
    state, states = torch.zeros_like(value[0]), []
    for piece in value:
        state = torch.tanh(piece @ weight + state) * 0.5 + state.t().contiguous().t()
        states.append(state)
    rows = torch.cat([torch.stack(states), value.permute(0, 2, 1).contiguous().relu()], 1)
    return rows.softmax(-1) + rows.masked_fill(rows > 1, 0.0)
weight = torch.rand(20, 20, requires_grad=True)
with stepscope.trace(FOLDER):
    losses = []
    for _ in range(4):
        losses.append(recurrent(torch.rand(3, 20, 20), weight).mean())
        losses[-1].backward()
        stepscope.step()
"""


@pytest.mark.parametrize(("body", "kinds"), [(OVERLAP, [("storage_overlap", "critical")]), (HEALTHY, [])])
def test_memory_that_a_kernel_shares(scripts: Scripts, tmp_path: Path, body: str, kinds: list[tuple[str, str]]) -> None:
    """The first kernel reads what it overwrites; the second program works in place, and keeps its losses in a list."""
    found = record(scripts, tmp_path, body)
    if body is OVERLAP and not found and TorchVersion(torch.__version__) >= "2.14":
        pytest.skip("this torch computes the first program right")
    assert [(finding.kind, finding.severity) for finding in found] == kinds


def test_a_killed_process_stays_a_crash(scripts: Scripts, tmp_path: Path) -> None:
    body = """
    import signal
    with stepscope.trace(FOLDER):
        same(model(VALUE))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert scripts.run(tmp_path, body).returncode != 0
    assert [(finding.kind, finding.severity) for finding in findings(tmp_path)] == [("crash", "critical")]


def test_only_a_written_minus_infinity_is_a_mask(scripts: Scripts, tmp_path: Path) -> None:
    body = """
    @torch.compile
    def plus(value, chosen):
        return torch.where(chosen, value * 1e38 * 1e3, 0.0)
    @torch.compile
    def minus(value, chosen):
        return torch.where(chosen, value * -1e38 * 1e3, 0.0)
    @torch.compile
    def mask(value, chosen):
        return torch.where(chosen, value, -torch.inf) * 2
    ones, chosen = torch.ones(64), torch.arange(64) % 2 == 0
    with stepscope.trace(FOLDER, level="values"):
        for function in (plus, minus, mask):
            function(ones, chosen)
    """
    found = record(scripts, tmp_path, body)
    assert [finding.title.partition(" (")[0] for finding in found] == ["fp32 overflow in mul"] * 2
    proofs = [" ".join(finding.proof) for finding in found]
    assert [("+inf" in proof, "-inf" in proof) for proof in proofs] == [(True, False), (False, True)]


@pytest.mark.parametrize(("filled", "severity"), [("data.nan_to_num()", "info"), ("data", "critical")])
def test_missing_data_that_is_masked_is_no_fault(scripts: Scripts, tmp_path: Path, filled: str, severity: str) -> None:
    body = f"""
    @torch.compile
    def loss(guess, data):
        known = ~data.isnan()
        return ((guess - {filled}) ** 2 * known).sum() / known.sum()
    guess = torch.ones(8, 8, requires_grad=True)
    with stepscope.trace(FOLDER, level="values"):
        loss(guess, torch.where(VALUE > 0.9, torch.nan, VALUE)).backward()
    """
    found = [finding for finding in record(scripts, tmp_path, body) if finding.kind == "nonfinite"]
    assert [finding.severity for finding in found] == [severity]
    assert found[0].title.startswith("NaN enters with the input data (primals_")


_STD = "(VALUE[:size] - VALUE[:size].mean(0)) / (VALUE[:size].std(0) + 1e-5)"
_SPREAD = f"advantage = {_STD}\n        return advantage * torch.log_softmax(weight[:size], -1)"
_DISTANCE = "distance = (weight - VALUE * size).pow(2).sum(-1).sqrt()\n        return distance.mean()"
_LOG = "p = torch.softmax(weight * size, -1)\n        return -(VALUE.sign() * torch.log(p)).sum(-1).mean()"
_PENALTY = (
    "p = torch.log_softmax(weight, -1)[:, 0]\n        gap = VALUE.sum(-1) * size - p\n"
    "        return (torch.exp(gap) - gap) * (VALUE[:, 0] > 9)"
)
_MASK = (
    "w = weight.masked_fill(torch.arange(8)[:, None] >= size, -torch.inf)\n        return torch.softmax(w, -1) @ VALUE"
)


@pytest.mark.parametrize(
    ("body", "healthy", "sick", "told"),
    [
        (_LOG, 1, 5000, "NaN is produced by log"),
        (_DISTANCE, 2, 1, "NaN is produced by the backward of sqrt"),
        (f"return {_STD} * weight[:size]", 8, 1, "NaN comes from the std of too few elements, a division by the const"),
        (_SPREAD, 8, 1, "NaN comes from the std of too few elements, a division by the constant 0 (train.py:5)"),
        (_MASK, 8, 5, "NaN is produced by softmax"),
        (_PENALTY, 1, 100, "NaN is produced by exp (train.py:7)"),
    ],
    ids=["log of softmax", "distance", "std", "std and log_softmax", "mask", "exp and log_softmax"],
)
def test_what_makes_nan_in_a_fused_kernel(
    scripts: Scripts, tmp_path: Path, body: str, healthy: int, sick: int, told: str
) -> None:
    """The operator and the line are those that made the NaN, and its effects are no findings of their own."""
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, stepscope, torch\n"
        "VALUE, size = torch.arange(64.0).reshape(8, 8) / 64, int(sys.argv[2])\n"
        "@torch.compile\n"
        "def model(weight):\n"
        f"        {body}\n"
        "weight = VALUE.clone().requires_grad_()\n"
        "with stepscope.trace(sys.argv[1], level='values'):\n"
        "    model(weight).sum().backward()\n"
    )
    for size, expected in ((healthy, []), (sick, [told])):
        folder = tmp_path / str(size)
        program = f"import runpy, sys; sys.argv.append('{size}'); runpy.run_path({str(script)!r})"
        found = [finding for finding in record(scripts, folder, program) if finding.kind == "nonfinite"]
        assert [finding.title[: len(told)] for finding in found] == expected
    assert found[0].severity == "critical"
    assert "masked_fill" not in body or "masked_fill (" in found[0].title


@pytest.mark.parametrize(
    ("dtype", "optimizer", "told"),
    [
        ("float32", "SGD(parameters, lr=1e-2)", ": for instance a hook on the gradient, clipping or the step of SGD ("),
        ("float16", "Adam(parameters, lr=1e-3)", "), so that the step of Adam ("),
    ],
)
def test_a_parameter_is_bad_although_its_gradient_was_finite(
    scripts: Scripts, tmp_path: Path, dtype: str, optimizer: str, told: str
) -> None:
    """A hook divides the gradient of a dead row by its sum, which is zero; the eps of Adam is zero in float16."""
    body = f"""
    linear = torch.nn.Linear(8, 8).to(torch.{dtype})
    model = torch.compile(linear)
    parameters = list(linear.parameters())
    if {dtype == "float32"}:
        linear.weight.register_hook(lambda grad: grad / grad.sum(1, keepdim=True))
    optimizer = torch.optim.{optimizer}
    mask = (torch.arange(8) > 2).to(torch.{dtype}) / 256
    with stepscope.trace(FOLDER, level="values"):
        for _ in range(3):
            (model(VALUE.to(torch.{dtype})) * mask).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    (finding,) = [one for one in record(scripts, tmp_path / "between", body) if one.severity != "info"]
    assert finding.kind == "nonfinite"
    (proof,) = [line for line in finding.proof if line.startswith("The last gradient of ")]
    assert told in proof
    assert " was finite in step 0 (" in proof
    assert any("Its eps of 1e-08 is zero in float16." in line for line in finding.proof) is (dtype == "float16")


def test_a_gradient_that_lies_where_an_input_was_is_no_overlapping_input(scripts: Scripts, tmp_path: Path) -> None:
    """The backward graph allocates the gradients where inputs that it has used were, at other sizes other ones."""
    body = """
    import copy
    layers = [torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)]
    model = torch.nn.Sequential(*layers)
    other = copy.deepcopy(model)
    compiled = torch.compile(model, dynamic=True)
    with stepscope.trace(FOLDER):
        for size in range(10, 22):
            x = torch.randn(size, 8)
            for called in (compiled, other):
                called(x).square().mean().backward()
                called.zero_grad()
    """
    kinds = [finding.kind for finding in record(scripts, tmp_path / "dynamic", body)]
    assert "overlapping_inputs" not in kinds


@pytest.mark.parametrize(
    "clears",
    [
        "optimizer.zero_grad(set_to_none=False)",
        "[one.grad.data.zero_() for one in net.parameters() if one.grad is not None]",
        "if step % 4 == 0: optimizer.zero_grad()",
    ],
    ids=["zero", "data", "every fourth"],
)
def test_gradients_that_are_set_to_zero(scripts: Scripts, tmp_path: Path, clears: str) -> None:
    body = f"""
    net = torch.nn.Linear(VALUE.shape[1], 1)
    compiled, optimizer = torch.compile(net), torch.optim.SGD(net.parameters(), lr=1e-3)
    with stepscope.trace(FOLDER):
        for step in range(7):
            {clears}
            compiled(VALUE).square().mean().backward()
            optimizer.step()
    """
    assert "kept_gradients" not in [one.kind for one in record(scripts, tmp_path, body)]


@pytest.mark.parametrize("forgets", [True, False])
def test_gradients_of_two_optimizers_that_use_each_others_networks(
    scripts: Scripts, tmp_path: Path, forgets: bool
) -> None:
    """The second optimizer's backward pass goes through the first one's network before its gradients are cleared."""
    body = f"""
    size = VALUE.shape[1]
    maker, judge = torch.nn.Linear(size, size), torch.nn.Linear(size, 1)
    make, look = torch.compile(maker), torch.compile(judge)
    first, second = (torch.optim.SGD(one.parameters(), lr=1e-3) for one in (judge, maker))
    with stepscope.trace(FOLDER):
        for step in range(6):
            first.zero_grad()
            look(make(VALUE).detach()).square().mean().backward()
            first.step()
            {"pass" if forgets else "second.zero_grad()"}
            look(make(VALUE)).square().mean().backward()
            second.step()
    """
    found = [one for one in record(scripts, tmp_path, body) if one.kind == "kept_gradients"]
    assert len(found) == forgets
