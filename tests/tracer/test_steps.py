"""Where steps begin and end."""

from __future__ import annotations

from itertools import count

import pytest

from stepscope.tracer.steps import EndedStep, StepTracker


class Steps:
    def __init__(self) -> None:
        self.ended: list[EndedStep] = []
        self._clock = count(1)
        self.tracker = StepTracker(self.ended.append, lambda: next(self._clock))

    def forward(self, frame: str = "0") -> int:
        return self.tracker.on_call(frame, "forward")

    def train(self, frame: str = "0", optimizer: int | None = 1) -> int:
        step = self.forward(frame)
        assert self.tracker.on_call(frame, "backward") == step
        if optimizer is not None:
            self.tracker.on_optimizer(optimizer)
        return step

    def infer(self, frame: str = "0") -> int:
        return self.tracker.on_call(frame, "inference")


@pytest.fixture
def steps() -> Steps:
    return Steps()


def test_each_inference_call_of_a_frame_is_a_step(steps: Steps) -> None:
    assert [steps.infer() for _ in range(3)] == [0, 1, 2]


def test_frames_of_a_graph_break_share_a_step(steps: Steps) -> None:
    assert [steps.infer(frame) for frame in ("0", "1", "0", "1")] == [0, 0, 1, 1]


def test_training_without_optimizer_is_split_by_forward_calls(steps: Steps) -> None:
    assert [steps.train(optimizer=None) for _ in range(3)] == [0, 1, 2]


def test_an_optimizer_ends_the_step(steps: Steps) -> None:
    assert [steps.train() for _ in range(3)] == [0, 1, 2]
    assert [(ended.by, ended.kind) for ended in steps.ended] == [("optimizer", "train")] * 3


def test_gradient_accumulation_is_one_step_once_the_optimizer_is_known(steps: Steps) -> None:
    steps.train()
    numbers = [steps.train(optimizer=1 if n % 2 else None) for n in range(6)]
    assert numbers == [1, 1, 2, 2, 3, 3]


def test_a_skipped_optimizer_step_still_ends_the_step(steps: Steps) -> None:
    numbers = [steps.train(), steps.train(), steps.train(optimizer=None), steps.train()]
    assert numbers == [0, 1, 2, 3]


def test_with_two_optimizers_a_step_is_one_round(steps: Steps) -> None:
    for _ in range(3):
        steps.train("discriminator", optimizer=1)
        steps.train("generator", optimizer=2)
    assert len(steps.ended) == 3


def test_evaluation_between_training_steps_is_split_by_its_calls(steps: Steps) -> None:
    steps.train()
    assert [steps.infer(), steps.infer(), steps.train()] == [1, 2, 3]
    assert [ended.kind for ended in steps.ended] == ["train", "inference", "inference", "train"]


def test_the_users_own_mark_wins(steps: Steps) -> None:
    steps.tracker.on_user()
    assert steps.infer() == steps.infer() == steps.train() == 0
    steps.tracker.on_user()
    assert steps.infer() == 1


def test_a_step_without_a_visible_call_lasts_from_the_end_of_the_one_before(steps: Steps) -> None:
    steps.train()
    steps.tracker.on_optimizer(1)
    first, second = steps.ended
    assert (second.step, second.kind) == (1, "train")
    assert second.start_ns == first.end_ns


def test_the_open_step_ends_with_the_recording(steps: Steps) -> None:
    steps.infer()
    steps.tracker.finish()
    steps.tracker.finish()
    assert len(steps.ended) == 1


def test_training_that_goes_on_to_another_model_follows_its_optimizer(steps: Steps) -> None:
    first = [steps.train("0", optimizer=1) for _ in range(3)]
    second = [steps.train("1", optimizer=2) for _ in range(3)]
    assert first + second == list(range(6))


def test_a_signal_handler_may_end_a_step(steps: Steps) -> None:
    tracker = StepTracker(lambda ended: tracker.on_user(), lambda: 1)
    tracker.on_call("0", "forward")
    tracker.on_user()
    assert tracker.on_call("0", "forward") == 1
