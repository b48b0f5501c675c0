"""What may end a step, and the guess of the step that runs. Which step a call belongs to is found by the reader."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from stepscope.tracer.steps import PossibleStepEnd, StepTracker


class Optimizer:
    """Of the program."""


class Adam(Optimizer):
    pass


class Steps:
    def __init__(self) -> None:
        self.marks: list[PossibleStepEnd] = []
        clock = count(1)
        self.tracker = StepTracker(self.marks.append, lambda: next(clock))
        self.optimizer = Adam()

    def forward(self, frame: str = "0") -> int:
        return self.tracker.on_call(frame, "forward")

    def train(self, frame: str = "0", optimizer: Optimizer | None = None, skipped: bool = False) -> int:
        step = self.forward(frame)
        assert self.tracker.on_call(frame, "backward") == step
        if not skipped:
            self.tracker.on_optimizer(optimizer or self.optimizer)
        return step

    def infer(self, frame: str = "0") -> int:
        return self.tracker.on_call(frame, "inference")


@pytest.fixture
def steps() -> Steps:
    return Steps()


def test_marks_say_what_who_and_where(steps: Steps) -> None:
    other = Optimizer()
    for optimizer in (steps.optimizer, other, steps.optimizer):
        steps.tracker.on_optimizer(optimizer)
    steps.tracker.on_user()
    steps.tracker.on_whole_call(True)
    steps.tracker.on_whole_call(False)
    thread = threading.get_native_id()
    assert steps.marks == [
        ("optimizer", 0, "Adam", thread, 1),
        ("optimizer", 1, "Optimizer", thread, 2),
        ("optimizer", 0, "Adam", thread, 3),
        ("user", 0, None, thread, 4),
        ("begin", 0, None, thread, 5),
        ("end", 0, None, thread, 6),
    ]


def test_an_optimizer_that_is_gone_gives_its_number_to_no_other(steps: Steps) -> None:
    for _ in range(3):
        steps.tracker.on_optimizer(Optimizer())
    steps.tracker.on_optimizer(steps.optimizer)
    assert len({mark.who for mark in steps.marks}) == 4


def test_each_inference_call_of_a_frame_is_a_step(steps: Steps) -> None:
    assert [steps.infer() for _ in range(3)] == [0, 1, 2]


def test_frames_of_a_graph_break_share_a_step(steps: Steps) -> None:
    assert [steps.infer(frame) for frame in ("0", "1", "0", "1")] == [0, 0, 1, 1]


def test_training_without_optimizer_is_split_by_forward_calls(steps: Steps) -> None:
    assert [steps.train(skipped=True) for _ in range(3)] == [0, 1, 2]


def test_an_optimizer_ends_the_step(steps: Steps) -> None:
    assert [steps.train() for _ in range(3)] == [0, 1, 2]


def test_blocks_before_the_first_optimizer_do_not_count(steps: Steps) -> None:
    for _ in range(6):
        steps.forward()
    steps.tracker.on_optimizer(steps.optimizer)
    assert steps.forward() == steps.forward() == 1


def test_a_rollout_belongs_to_its_update(steps: Steps) -> None:
    for step in range(3):
        called = [steps.infer("act") for _ in range(12)]
        assert step == 0 or called == [step] * 12
        steps.train("update")
    assert steps.infer("act") == 3


def test_a_check_of_the_evaluation_counts_before_the_first_optimizer(steps: Steps) -> None:
    assert [steps.infer(), steps.infer(), steps.train(), steps.train()] == [0, 1, 2, 3]


def test_a_metric_after_the_optimizer_is_no_step_of_its_own(steps: Steps) -> None:
    numbers = []
    for _ in range(3):
        numbers.append(steps.train())
        steps.infer("metric")
    assert numbers == [0, 1, 2]


def test_generation_is_one_step(steps: Steps) -> None:
    for step in range(2):
        steps.tracker.on_whole_call(True)
        assert [steps.infer() for _ in range(4)] == [step] * 4
        steps.tracker.on_whole_call(False)
    assert steps.infer() == 2


def test_gradient_accumulation_is_one_step_once_the_optimizer_is_known(steps: Steps) -> None:
    steps.train()
    numbers = [steps.train(skipped=not n % 2) for n in range(6)]
    assert numbers == [1, 1, 2, 2, 3, 3]


def test_a_skipped_optimizer_step_still_ends_the_step(steps: Steps) -> None:
    numbers = [steps.train(), steps.train(), steps.train(skipped=True), steps.train()]
    assert numbers == [0, 1, 2, 3]


def test_with_two_optimizers_a_step_is_one_round(steps: Steps) -> None:
    other = Optimizer()
    for _ in range(3):
        steps.train("discriminator")
        steps.train("generator", other)
    assert steps.forward("discriminator") == 3


def test_evaluation_between_training_steps_is_split_by_its_calls(steps: Steps) -> None:
    steps.train()
    assert [steps.infer(), steps.infer(), steps.train()] == [1, 2, 3]


def test_the_users_own_mark_wins(steps: Steps) -> None:
    steps.tracker.on_user()
    assert steps.infer() == steps.infer() == steps.train() == 0
    steps.tracker.on_user()
    assert steps.infer() == 1


def test_a_step_without_a_visible_call_counts(steps: Steps) -> None:
    steps.train()
    steps.tracker.on_optimizer(steps.optimizer)
    assert steps.train() == 2


def test_training_that_goes_on_to_another_model_follows_its_optimizer(steps: Steps) -> None:
    other = Optimizer()
    first = [steps.train("0") for _ in range(3)]
    second = [steps.train("1", other) for _ in range(3)]
    assert first + second == list(range(6))


def test_a_signal_handler_may_end_a_step(steps: Steps) -> None:
    def on_mark(mark: PossibleStepEnd) -> None:
        if mark.ns < 3:
            tracker.on_user()

    clock = count()
    tracker = StepTracker(on_mark, lambda: next(clock))
    tracker.on_call("0", "forward")
    tracker.on_user()
    assert tracker.on_call("0", "forward") == 1
