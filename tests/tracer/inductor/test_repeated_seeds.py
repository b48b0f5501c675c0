"""Seeds that are set in each step, and those of programs whose steps draw different numbers."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from stepscope.tracer.inductor import repeated_seeds
from stepscope.tracer.inductor.repeated_seeds import LEAST, MOST_TOLD, SeedWatch
from stepscope.tracer.schema.repeats import RepeatedSeed

cuda_random: Any = torch.cuda.random
LIBRARY = (
    "import torch\ndef seed_everything(seed):\n    torch.manual_seed(seed)\n    torch.cuda.manual_seed_all(seed)\n"
)


class Training:
    """An optimizer before whose steps the generators are looked at."""

    def __init__(self) -> None:
        self.told: list[RepeatedSeed] = []
        self.failures: list[str] = []
        self.watch = SeedWatch(self.told.append, lambda where, error: self.failures.append(f"{where}: {error}"))
        self.optimizer = self.watched()

    def watched(self) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])
        optimizer.register_step_pre_hook(lambda one, *_: self.watch.begins(one))
        return optimizer

    def run(self, before: Callable[[int], object], steps: int = LEAST + 2) -> list[RepeatedSeed]:
        for step in range(steps):
            before(step)
            self.optimizer.step()
        assert not self.failures
        return self.told


@pytest.fixture
def training() -> Iterator[Training]:
    state, original = torch.get_rng_state(), cuda_random._lazy_call
    one = Training()
    one.watch.attach()
    one.watch.attach()
    yield one
    one.watch.detach()
    assert cuda_random._lazy_call is original
    torch.set_rng_state(state)


def seeded(seed: int = 7, draws: int = 3) -> Callable[[int], object]:
    def seed_and_draw(_: int) -> None:
        torch.manual_seed(seed)
        torch.rand(draws)

    return seed_and_draw


def test_a_seed_in_each_step(training: Training) -> None:
    (told,) = training.run(seeded())
    assert (told.function, told.seed, told.device, told.file) == ("torch.manual_seed", "7", "cpu", __file__)
    assert told.line == seeded.__code__.co_firstlineno + 2
    assert len(told.called_ns) == LEAST
    assert told.called_ns == sorted(set(told.called_ns))


@pytest.mark.parametrize("seed", [-1, 2**64 - 1])
def test_seeds_of_64_bits(training: Training, seed: int) -> None:
    assert [one.seed for one in training.run(seeded(seed))] == [str(seed)]


def test_a_seed_is_told_once(training: Training) -> None:
    other = training.watched()

    def both(step: int) -> None:
        seeded()(step)
        other.step()

    assert len(training.run(both, 3 * LEAST)) == 1


def test_a_seed_between_the_steps_of_two_optimizers(training: Training) -> None:
    other = training.watched()

    def both(step: int) -> None:
        other.step()
        seeded()(step)

    assert len(training.run(both)) == 1


def test_another_name_of_the_function(training: Training) -> None:
    (told,) = training.run(lambda _: torch.random.manual_seed(7))
    assert (told.function, told.file) == ("torch.manual_seed", __file__)


def test_a_library_that_sets_the_seed(training: Training) -> None:
    scope: dict[str, Any] = {}
    exec(compile(LIBRARY, "/env/lib/python3.11/site-packages/lightning/fabric/seed.py", "exec"), scope)
    (told,) = training.run(lambda _: scope["seed_everything"](7))
    assert (told.function, told.device, told.file) == ("torch.manual_seed", "cpu", __file__)


def test_the_last_of_several_seeds_counts(training: Training) -> None:
    def twice(step: int) -> None:
        torch.manual_seed(7)
        torch.manual_seed(step)

    assert training.run(twice) == []
    (told,) = training.run(lambda _: [torch.manual_seed(seed) for seed in (1, 7)])
    assert told.seed == "7"


@pytest.mark.parametrize(
    "before",
    [
        lambda step: torch.manual_seed(step),
        lambda step: torch.manual_seed(7) if step % LEAST else None,  # not in each step
        lambda step: torch.manual_seed(7) if step == 0 else None,
        lambda step: (torch.manual_seed(7), torch.rand(step + 1)),  # how much is drawn differs
        lambda step: (torch.manual_seed(7), torch.seed()),
        lambda step: (torch.manual_seed(7), torch.default_generator.manual_seed(step)),
        lambda _: torch.cuda.manual_seed(7),  # there is no device
        lambda _: torch.cuda.manual_seed_all(7),
        lambda _: random.seed(7),
        lambda _: torch.Generator().manual_seed(7),
    ],
)
def test_steps_that_draw_different_numbers(training: Training, before: Callable[[int], object]) -> None:
    assert training.run(before, 2 * LEAST - 1) == []


def test_few_steps(training: Training) -> None:
    assert training.run(seeded(), LEAST - 1) == []
    training.optimizer.step()
    assert training.run(seeded(), LEAST - 1) == []


def test_a_new_optimizer_for_each_model(training: Training) -> None:
    def once(step: int) -> None:
        seeded()(step)
        training.watched().step()

    for step in range(2 * LEAST):
        once(step)
    assert training.told == []


@pytest.mark.parametrize("draws", [0, 3])
def test_a_seed_within_a_fork(training: Training, draws: int) -> None:
    """Also if the program has set the same seed before, and draws nothing else."""
    torch.manual_seed(7)

    def forked(step: int) -> None:
        torch.rand(draws)
        with torch.random.fork_rng():
            seeded()(step)

    assert training.run(forked, 3 * LEAST) == []


def test_a_fork_elsewhere(training: Training) -> None:
    def forked(step: int) -> None:
        with torch.random.fork_rng():
            torch.rand(3)
        seeded()(step)

    assert len(training.run(forked)) == 1


def test_a_state_that_is_restored(training: Training) -> None:
    torch.manual_seed(7)

    def restored(step: int) -> None:
        torch.rand(3)
        state = torch.get_rng_state()
        seeded()(step)
        torch.set_rng_state(state)

    assert training.run(restored) == []


def test_a_seed_that_pytorch_sets(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_seeds, "_FOLDER", __file__)
    assert training.run(seeded()) == []


def test_a_checkpoint_restores_the_generator(training: Training) -> None:
    x = torch.ones(4, requires_grad=True)

    def recomputed(_: int) -> None:
        checkpoint(lambda x: torch.nn.functional.dropout(x).square(), x, use_reentrant=False).sum().backward()

    torch.manual_seed(7)
    assert training.run(recomputed) == []


def test_a_seed_of_another_thread(training: Training) -> None:
    def apart(_: int) -> None:
        thread = threading.Thread(target=torch.manual_seed, args=(7,))
        thread.start()
        thread.join()

    assert training.run(apart) == []  # no line of the program calls it


def test_a_few_lines_are_told(training: Training) -> None:
    for seed in range(MOST_TOLD + 2):
        training.run(seeded(seed), LEAST)
    assert len(training.told) == MOST_TOLD


def test_a_child_begins_anew(training: Training) -> None:
    training.run(seeded(), LEAST - 1)
    training.watch.after_fork()
    assert training.run(seeded(), LEAST - 1) == []


def test_a_failure_is_told_once(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_seeds, "_state", lambda *_: 1 / 0)
    with pytest.raises(AssertionError):
        training.run(seeded())
    assert training.failures == ["seeds that are set in each step: division by zero"]
    assert torch.initial_seed() == 7


def of_cpu(seed: int) -> object:
    return torch.manual_seed(seed)


def of_random(seed: int) -> object:
    return torch.random.manual_seed(seed)


def of_cuda(seed: int) -> None:
    torch.cuda.manual_seed(seed)


def of_all(seed: int) -> None:
    torch.cuda.manual_seed_all(seed)


def compiled(seeds: Callable[[int], object], *, fullgraph: bool) -> tuple[list[Any], ...]:
    """Return what a compiled function that sets a seed draws, or its error, and its graph breaks and graphs."""
    from torch._dynamo.utils import counters

    def draw(x: Any) -> Any:
        y = torch.nn.functional.dropout(x)
        seeds(7)
        return y + torch.nn.functional.dropout(x)

    torch._dynamo.reset()
    counters.clear()
    torch.default_generator.manual_seed(3)
    try:
        run = torch.compile(draw, backend="eager", fullgraph=fullgraph)
        found = [run(torch.ones(8)).tolist() for _ in range(2)]
    except Exception as error:
        found = [type(error), str(error).partition("from user code")[0]]
    return found, [*counters["graph_break"].items()], [*counters["stats"].items()]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [of_cpu, of_random, of_cuda, of_all])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_dynamo_sees_the_functions_as_without_the_hook(seeds: Callable[[int], object], fullgraph: bool) -> None:
    before = compiled(seeds, fullgraph=fullgraph)
    watch = SeedWatch(lambda _: None, lambda where, error: pytest.fail(f"{where}: {error}"))
    watch.attach()
    try:
        assert compiled(seeds, fullgraph=fullgraph) == before
    finally:
        watch.detach()
    assert compiled(seeds, fullgraph=fullgraph) == before
