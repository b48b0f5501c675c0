"""What recording costs programs of many small kernels on the CPU: ``python -m tests.benchmarks.bench_programs``.

Three programs whose tensors are small, so that the cost of a row counts and not that of its bytes: a GPT-2 of four
layers of width 64, an LSTM whose cell is unrolled, and an actor-critic with Adam. ``corpus`` measures every program of
`tests.programs` instead, other arguments those with these names. One process takes turns of a few steps: unrecorded,
the same again, launches, values, values with every argument read again before each launch. Prints ratios to the
unrecorded step of the same turn, and what each launch takes at `launches`, and each value row beyond that at `values`,
in ns. All times are CPU time of the process (user and system, all threads).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
import torch._inductor.config as inductor_config

import stepscope
from tests.benchmarks.bench_launches import NEVER, set_code, wrapper_functions
from tests.capture.logs import Trace
from tests.programs import load
from tests.programs.training import Transformer

TURNS, WARM_TURNS, WARM_STEPS = 16, 2, 4
TURN_MS, MOST_STEPS = 30.0, 32
WAYS = ("off", "again", "launches", "values", "verify")
NOT_TIMED = ("cpp_wrapper", "collective")
"""Programs of the corpus without Python code to exchange, or that open a process group."""

Step = Callable[[], Any]


def gpt2() -> Step:
    model = Transformer(width=64, heads=4, layers=4, tokens=200)
    ids, targets = torch.randint(0, 200, (1, 32)), torch.randint(0, 200, (1, 32))
    return trained(model, torch.compile(model), ids, targets)


class Lstm(torch.nn.Module):
    def __init__(self, width: int, times: int) -> None:
        super().__init__()
        self.cell = torch.nn.LSTMCell(width, width)
        self.head = torch.nn.Linear(width, 1)
        self.times = times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros_like(x[0])
        for n in range(self.times):
            h, c = self.cell(x[n], (h, c))
        loss: torch.Tensor = self.head(h).square().mean()
        return loss


def lstm() -> Step:
    model = Lstm(32, 8)
    return trained(model, torch.compile(model), torch.randn(8, 4, 32))


class ActorCritic(torch.nn.Module):
    def __init__(self, sees: int, width: int, actions: int) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(sees, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh()
        )
        self.actor, self.critic = torch.nn.Linear(width, actions), torch.nn.Linear(width, 1)

    def forward(self, seen: torch.Tensor, done: torch.Tensor, earned: torch.Tensor) -> torch.Tensor:
        h = self.body(seen)
        chances, worth = self.actor(h).log_softmax(-1), self.critic(h).squeeze(-1)
        gained = earned - worth
        chosen = chances.gather(1, done[:, None]).squeeze(1)
        entropy = -(chances.exp() * chances).sum(-1).mean()
        loss: torch.Tensor = gained.square().mean() - (chosen * gained.detach()).mean() - 0.01 * entropy
        return loss


def actor_critic() -> Step:
    model = ActorCritic(8, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = trained(model, torch.compile(model), torch.randn(16, 8), torch.randint(0, 4, (16,)), torch.randn(16))
    update = torch.compile(optimizer.step)

    def train() -> None:
        step()
        update()

    return train


def trained(model: torch.nn.Module, compiled: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Step:
    def step() -> None:
        model.zero_grad(set_to_none=True)
        compiled(*inputs).backward()  # type: ignore[no-untyped-call]

    return step


SMALL: dict[str, Callable[[], Step]] = {"gpt2": gpt2, "lstm": lstm, "actor_critic": actor_critic}


class Turns:
    """The times of one program's steps, in ms, and what they recorded."""

    def __init__(self, step: Step, folder: Path) -> None:
        self.times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(WARM_STEPS):
            step()
        self.steps = self._steps_of_a_turn(step)
        functions = wrapper_functions()
        self._code = {"off": _codes(functions), "again": _codes(functions)}
        with stepscope.trace(folder) as recorder:
            if recorder.lifetimes is not None:
                recorder.lifetimes.every = NEVER
            self._take(step, functions)
        trace = Trace(folder)
        self.rows = sum(len(batch["min"]) for batch in trace.of("values"))
        self.launches = sum(1 for _ in trace.launches())

    def _steps_of_a_turn(self, step: Step) -> int:
        start = time.process_time_ns()
        step()
        return max(1, min(MOST_STEPS, int(TURN_MS * 1e6 / (time.process_time_ns() - start))))

    def _take(self, step: Step, functions: list[FunctionType]) -> None:
        self._code["launches"] = _codes(functions)
        stepscope.configure(level="values")
        self._code["values"] = _codes(functions)
        stepscope.configure(verify_before=True)
        self._code["verify"] = _codes(functions)
        for turn in range(TURNS + WARM_TURNS):
            for way in WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]:
                set_code(self._code[way])
                start = time.process_time_ns()
                for _ in range(self.steps):
                    step()
                    if way not in ("off", "again"):
                        stepscope.step()
                elapsed = (time.process_time_ns() - start) / 1e6 / self.steps
                if turn >= WARM_TURNS:
                    self.times[way].append(elapsed)
        set_code(self._code["verify"])  # as the recorder left it

    def ratio(self, way: str) -> tuple[float, float, float]:
        """Return the quartiles of the ratios to the unrecorded step of the same turn."""
        ratios = [a / b for a, b in zip(self.times[way], self.times["off"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        return low, middle, high

    def extra_ns(self, way: str, than: str, of: float) -> float:
        """Return by how many ns a step of one way is longer than that of another, for each of `of` in a step."""
        return (statistics.median(self.times[way]) - statistics.median(self.times[than])) * 1e6 / max(of, 1)


def _codes(functions: list[FunctionType]) -> list[tuple[FunctionType, CodeType]]:
    return [(function, function.__code__) for function in functions]


def rows_of_a_step(step: Step) -> tuple[float, float]:
    """Return the launches and the value rows of one step at `values`."""
    with tempfile.TemporaryDirectory() as folder:
        with stepscope.trace(folder, level="values"):
            for _ in range(4):
                step()
        trace = Trace(Path(folder))
        return sum(1 for _ in trace.launches()) / 4, sum(len(batch["min"]) for batch in trace.of("values")) / 4


def measure(name: str, build: Callable[[], Step], config: dict[str, Any]) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with ExitStack() as stack:
        stack.enter_context(inductor_config.patch(config))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        step = build()
        turns = Turns(step, Path(folder))
        launches, rows = rows_of_a_step(step)
    cells = [f"{turns.ratio(way)[1]:6.3f} ({turns.ratio(way)[0]:.2f}..{turns.ratio(way)[2]:.2f})" for way in WAYS[1:]]
    print(
        f"{name:<20}{statistics.median(turns.times['off']):8.3f} ms {launches:5.0f} {rows:5.0f}  "
        + "  ".join(cells)
        + f"  {turns.extra_ns('launches', 'off', launches):6.0f} {turns.extra_ns('values', 'launches', rows):6.0f}",
        flush=True,
    )


def main() -> int:
    torch.set_num_threads(1)
    corpus = {name: (one.build, one.config) for name, one in load().items() if name not in NOT_TIMED}
    small = {name: (build, dict[str, Any]()) for name, build in SMALL.items()}
    asked = sys.argv[1:] or list(small)
    names = list(corpus) if asked == ["corpus"] else asked
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {torch.get_num_threads()} thread")
    print("program: unrecorded step, launches and value rows of a step,")
    print(f"ratios of {', '.join(WAYS[1:])} (quartiles), ns a launch at launches, ns a row at values\n")
    for name in names:
        try:
            measure(name, *(small.get(name) or corpus[name]))
        except Exception as error:
            print(f"{name:<20} not measured: {type(error).__name__}: {str(error)[:80]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
