"""Which step each call belongs to, for programs of many kinds, written as what the recorder sees of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import pytest

from stepscope.tracer.schema.graphs import Graph
from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.viewer.ingest.recorder.launch_batches import EndedStep, LaunchBatches, LoggedMark
from stepscope.viewer.ingest.steps.assign import find_steps
from stepscope.viewer.ingest.torch_trace.torch_text import is_of_an_optimizer
from tests.logs import synthetic

PHASES = {"t": "forward", "b": "backward", "i": "inference", "u": "inference"}
WORDS = {"user": "user", "<": "begin", ">": "end"}


class Program:
    """``t0`` calls function 0 to train it, ``b0`` runs it backward, ``i0`` calls it without gradients, ``u0`` calls it
    as a compiled optimizer, ``oA`` is a step of optimizer A, ``user`` a call of `stepscope.step()`, ``<`` and ``>``
    begin and end a call of `generate`; ``/2`` behind a word is the thread."""

    def __init__(self, words: str) -> None:
        self.graphs: dict[int, Graph] = {}
        self.batches = LaunchBatches()
        self.marks: list[LoggedMark] = []
        self.updates: set[str] = set()
        for at, word in enumerate(words.split()):
            name, _, thread = word.partition("/")
            self._add(name, int(thread or 1), 100 * (at + 1))

    def _add(self, word: str, thread: int, ns: int) -> None:
        if word in WORDS:
            self.marks.append(LoggedMark(WORDS[word], 0, None, thread, ns))
        elif word[0] == "o":
            self.marks.append(LoggedMark("optimizer", ord(word[1]), word[1:], thread, ns))
        else:
            graph = 10 * int(word[1:]) + "tbiu".index(word[0])
            compile_id, phase = f"{word[1:]}/0", PHASES[word[0]]
            if word[0] == "u":
                self.updates.add(compile_id)
            self.graphs[graph] = synthetic.graph(graph, compile_id=compile_id, phase=phase)
            calls = Calls([ns], [graph], [0], [0], [thread], [None], [ns], [50], [0], ["ok"])
            self.batches.add(Launches(calls, [], [], []))

    def steps(self, *, has_ended: bool = True, feeds: bool = False) -> dict[int, EndedStep]:
        return find_steps(
            self.batches, self.graphs, self.marks, [], updates=self.updates, has_ended=has_ended, feeds=feeds
        )

    def calls_of_steps(self) -> list[int]:
        """How many calls each step has."""
        steps = self.steps()
        numbers = list(self.batches.calls["step"])
        return [numbers.count(step) for step in steps]


def kinds(words: str) -> str:
    """``train 3, inference 2``"""
    found = (step.kind for step in Program(words).steps().values())
    return ", ".join(f"{kind} {len(list(group))}" for kind, group in groupby(found))


def repeated(times: int, *parts: str) -> str:
    return " ".join([" ".join(parts)] * times)


TRAIN = "t0 b0 oA"
ITERATIONS = {
    "plain": (repeated(5, TRAIN), "train 5"),
    "a graph break whose first piece needs no gradient": (repeated(5, "i0 t1 b1 oA"), "train 5"),
    "blocks that are compiled one by one": (repeated(4, "t0 t0 t0 t1 b1 b0 b0 b0 oA"), "train 4"),
    "blocks, and a function after the optimizer": (repeated(14, "t0 t0 t0 t1 b1 b0 b0 b0 oA i2"), "train 14"),
    "the discriminator and the generator": (repeated(6, "t0 t1 b1 oD t0 t1 b1 b0 oG"), "train 6"),
    "the generator without gradients first": (repeated(6, "i0 t1 b1 oD t0 t1 b1 b0 oG"), "train 6"),
    "an actor and its critic": (repeated(6, "i0 i0 i0 t1 t2 b1 b2 oA oC"), "train 6"),
    "five steps of the critic for one of its generator": (
        repeated(4, repeated(5, "i0 t1 b1 oD"), "t0 t1 b1 b0 oG"), "train 4",
    ),
    "more steps of the critic at first": (
        repeated(2, repeated(9, "i0 t1 b1 oD"), "t0 t1 b1 b0 oG")
        + " " + repeated(9, repeated(3, "i0 t1 b1 oD"), "t0 t1 b1 b0 oG"), "train 11",
    ),
    "an actor that steps in every other iteration": (
        repeated(4, "i0 i1 t2 b2 oC t0 t3 b3 b0 oA i0 i1 t2 b2 oC"), "train 8",
    ),
    "an optimizer for each parameter, in the backward pass": (repeated(5, "t0 b0 oA oB oC oD"), "train 5"),
    "gradient accumulation": (repeated(4, "t0 b0 t0 b0 t0 b0 t0 b0 oA"), "train 4"),
    "accumulation whose last round is shorter": (repeated(4, "t0 b0 t0 b0 t0 b0 t0 b0 oA") + " t0 b0 oA", "train 5"),
    "a scaler skips the optimizer": (f"{repeated(3, TRAIN)} t0 b0 {repeated(3, TRAIN)}", "train 7"),
    "a scaler skips the first ones": (f"t0 b0 t0 b0 {repeated(5, TRAIN)}", "train 7"),
    "a scaler skips the last one": (f"{repeated(5, TRAIN)} t0 b0", "train 6"),
    "a scaler skips a round of accumulation": (
        f"{repeated(3, 't0 b0 t0 b0 oA')} t0 b0 t0 b0 {repeated(3, 't0 b0 t0 b0 oA')}", "train 7",
    ),
    "a metric after the optimizer": (repeated(5, TRAIN, "i1"), "train 5"),
    "a moving average and a metric": (repeated(5, TRAIN, "i1 i2"), "train 5"),
    "a rollout and an update": (repeated(6, repeated(12, "i0"), "t1 b1 oA"), "train 6"),
    "rollouts of many lengths": (" ".join(repeated(n, "i0") + " t1 b1 oA" for n in (3, 9, 4, 17, 2)), "train 5"),
    "rollouts with gradients": (" ".join(repeated(n, "t0") + " b0 oA" for n in (3, 9, 4, 17, 2)), "train 5"),
    "a rollout of the model that is trained": (repeated(6, repeated(12, "i0"), TRAIN), "train 6"),
    "a rollout and several updates": (repeated(4, repeated(16, "i0"), repeated(4, "t1 b1 oA")), "train 4"),
    "steps of an environment before the first update": (
        f"{repeated(7, 'i0')} {repeated(5, 'i0 t1 b1 oA')}", "inference 7, train 5",
    ),
    "evaluation between epochs": (repeated(2, repeated(5, TRAIN), repeated(3, "i0")), "train 5, inference 3, " * 2),
    "evaluation of pieces of a graph break": (
        repeated(2, repeated(5, "t0 t1 b1 b0 oA"), repeated(3, "i0 i1")), "train 5, inference 3, " * 2,
    ),
    "evaluation of a model whose first piece needs no gradient": (
        repeated(2, repeated(5, "i0 t1 b1 oA"), repeated(3, "i0 i1")), "train 5, inference 3, " * 2,
    ),
    "a check of the evaluation first": (
        f"i0 i0 {repeated(6, TRAIN)} {repeated(4, 'i0')}", "inference 2, train 6, inference 4",
    ),
    "evaluation before each epoch": (repeated(3, "i0 i0 i0", repeated(6, TRAIN)), "inference 3, train 6, " * 3),
    "two trainings one after the other": (f"{repeated(4, TRAIN)} {repeated(3, 't1 b1 oB')}", "train 7"),
    "two optimizers by turns of epochs": (
        repeated(3, repeated(8, "t0 b0 oA"), repeated(8, "t1 b1 oB")), "train 48",
    ),
    "replays of a CUDA graph that calls nothing": (repeated(6, "oA"), "train 6"),
    "a new optimizer in each iteration": ("t0 b0 oA t0 b0 oB t0 b0 oC t0 b0 oD", "train 4"),
    "an optimizer that searches": (f"{repeated(9, 't0 b0')} oLBFGS {repeated(3, 't0 b0 oLBFGS')}", "train 4"),
    "training without an optimizer": (repeated(5, "t0 b0"), "train 5"),
    "a compiled optimizer": (repeated(2, repeated(5, "t0 b0 u1"), repeated(3, "i0")), "train 5, inference 3, " * 2),
    "a compiled optimizer that reaches the recompile limit": (
        f"{repeated(3, 't0 b0 u1')} {repeated(5, 't0 b0')}", "train 8",
    ),
    "a compiled optimizer of an eager model": (repeated(5, "u0"), "inference 5"),
    "blocks without an optimizer": (repeated(5, "t0 t0 t0 t1 b1 b0 b0 b0"), "train 5"),
    "two losses without an optimizer": (repeated(5, "t0 b0 t1 b1"), "train 5"),
    "a loop without an optimizer after the training loop": (repeated(5, TRAIN) + " " + repeated(4, "t1 b1"), "train 9"),
    "the same with two functions": (repeated(5, TRAIN) + " " + repeated(4, "t1 i2 t3 b3 b1"), "train 9"),
    "the same with blocks": (repeated(5, TRAIN) + " " + repeated(4, "t1 t1 t1 t2 b2 b1 b1 b1"), "train 9"),
    "the same function after the training loop": (repeated(5, TRAIN, "i1") + " " + repeated(4, "t0 b0"), "train 9"),
    "an evaluation, and a loop without an optimizer": (
        f"{repeated(5, TRAIN)} {repeated(3, 'i1')} {repeated(4, 't2 b2')} {repeated(2, 'i1')}",
        "train 5, inference 3, train 4, inference 2",
    ),
    "a loop without an optimizer between two epochs": (
        f"{repeated(5, TRAIN)} {repeated(4, 't1 b1')} {repeated(5, TRAIN)}", "train 14",
    ),
    "a loop without an optimizer in each epoch": (repeated(3, repeated(5, TRAIN), repeated(4, "t1 b1")), "train 27"),
    "a loop without an optimizer before the training loop": (f"{repeated(4, 't1 b1')} {repeated(5, TRAIN)}", "train 9"),
    "another loss now and then": (repeated(3, repeated(4, TRAIN), "t1 b1", TRAIN), "train 15"),
    "inference": (repeated(5, "i0"), "inference 5"),
    "inference with a graph break": (repeated(5, "i0 i1 i2"), "inference 5"),
    "inference of compiled blocks": (repeated(4, "i0 i0 i0 i1"), "inference 4"),
    "a prompt and its tokens": ("i0 i1 i1 i1 i0 i1 i1 i0 i1 i1 i1 i1", "inference 3"),
    "two programs of inference": ("i0 i0 i0 i0 i1 i1 i1 i1", "inference 7"),
    "generation": (repeated(6, "< i0 i1 i1 i1 >"), "inference 6"),
    "generation amid other calls": ("i0 < i0 i1 i1 > i0 < i0 i1 >", "inference 4"),
    "an update from what was generated": (repeated(3, "< i0 i1 i1 > t2 b2 oA"), "train 3"),
    "generation that was cut off": ("< i0 i1 > < i0 i1 i1", "inference 2"),
    "threads that serve": ("i0/1 i0/2 i1/1 i1/2 i0/2 i0/1 i1/1 i1/2", "inference 4"),
    "a backward pass on a thread of the device": (repeated(5, "t0/1 b0/9"), "train 5"),
    "threads that help one with an optimizer": (repeated(5, "t0/1 t0/2 b0/9 b0/9 oA/1"), "train 5"),
    "threads that train": (repeated(4, "t0/1 t1/2 b0/1 oA/1 b1/2 oB/2"), "train 8"),
    "the user's marks": (repeated(5, "t0 b0 oA t0 b0 oA i1 user"), "train 5"),
    "the user's marks before each iteration": (repeated(5, "user i0 i0 i0"), "inference 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", ITERATIONS)
def test_steps_are_the_iterations(name: str) -> None:
    words, expected = ITERATIONS[name]
    assert kinds(words) == expected.strip(", ")


@pytest.mark.parametrize(
    ("file", "expected"), [("adam", True), ("optimizer", True), ("swa_utils", False), ("lr_scheduler", False)]
)
def test_the_functions_of_optimizers_are_known_by_their_files(file: str, expected: bool) -> None:
    """A compiled `torch.optim.swa_utils.AveragedModel` is a model that is evaluated."""
    assert is_of_an_optimizer(f"/env/lib/python3.11/site-packages/torch/optim/{file}.py") == expected
    assert not is_of_an_optimizer(f"/src/optim/{file}.py")


def test_what_ran_before_the_first_optimizer_belongs_to_the_first_step() -> None:
    assert Program(repeated(3, "t0 t0 t0 b0 b0 b0 oA i1")).calls_of_steps() == [7, 7, 7]


def test_a_metric_belongs_to_the_step_before_it() -> None:
    program = Program("t0 b0 oA i1 t0 b0 oA i1")
    first, second = program.steps().values()
    assert (first.end_ns, second.start_ns, second.end_ns) == (450, 500, 850)


def test_a_first_step_that_calls_nothing_does_not_begin_with_the_clock() -> None:
    steps = Program("oA oA t0 b0 oA").steps().values()
    assert [(step.start_ns, step.end_ns) for step in steps] == [(100, 100), (100, 200), (300, 500)]
    assert [step.duration_ns for step in steps] == [None, 100, 200]
    (first, second) = Program(repeated(2, "oA oB")).steps().values()
    assert (first.duration_ns, second.duration_ns) == (None, 200)


def test_a_step_says_by_which_optimizers_it_was_found() -> None:
    assert {(step.by, step.who) for step in Program(repeated(3, "t0 oD t0 oG")).steps().values()} == {
        ("optimizer", "D, G")
    }
    assert {step.by for step in Program("< i0 > < i0 >").steps().values()} == {"generate"}
    assert {step.by for step in Program("i0 i0").steps().values()} == {"call"}
    assert {step.by for step in Program("i0 user").steps().values()} == {"user"}


@pytest.mark.parametrize("iterations", range(1, 6))
def test_a_process_that_was_killed_shows_its_iterations(iterations: int) -> None:
    whole = repeated(iterations, "i0 i0 t1 b1 oD t1 b1 oG")
    assert len(Program(whole).steps(has_ended=False)) == iterations
    cut = Program(f"{whole} i0 i0 t1").steps(has_ended=False)
    assert len(cut) <= iterations + 1 + 2 * (iterations == 1)
    assert cut[len(cut) - 1].end_ns is None


def test_what_a_worker_of_a_data_loader_calls_is_no_step() -> None:
    program = Program(repeated(20, "i0"))
    assert [step.kind for step in program.steps(feeds=True).values()] == ["data"]
    assert set(program.batches.calls["step"]) == {0}


def test_inner_calls_are_of_the_step_of_the_outer_one() -> None:
    batches = LaunchBatches()
    for call, parent, start in ((1, 0, 110), (0, None, 100), (3, 2, 310), (4, 3, 320), (2, None, 300), (5, 77, 400)):
        calls = Calls([call], [0], [0], [9], [1], [parent], [start], [50], [0], ["ok"])
        batches.add(Launches(calls, [], [], []))
    graphs = {0: synthetic.graph(phase="inference")}
    find_steps(batches, graphs, [], [], has_ended=True, feeds=False)
    assert list(batches.calls["step"]) == [0, 0, 1, 1, 1, 2]


def test_calls_that_are_each_others_parents_do_no_harm() -> None:
    batches = LaunchBatches()
    for call, parent in ((0, 1), (1, 0), (2, 2), (3, None)):
        calls = Calls([call], [0], [0], [9], [1], [parent], [100 + call], [50], [0], ["ok"])
        batches.add(Launches(calls, [], [], []))
    find_steps(batches, {}, [], [], has_ended=True, feeds=False)
    assert set(batches.calls["step"]) <= {0, 1}


def test_captured_calls_are_of_the_step_that_replays_them() -> None:
    batches = LaunchBatches()
    states: Iterable[str] = ("ok", "captured", "replayed", "replayed")
    for call, state in enumerate(states):
        calls = Calls([call], [0], [0], [9], [1], [None], [100 * call], [50], [0], [state])
        batches.add(Launches(calls, [], [], []))
    find_steps(batches, {0: synthetic.graph(phase="inference")}, [], [], has_ended=True, feeds=False)
    assert list(batches.calls["step"]) == [0, 1, 1, 2]
