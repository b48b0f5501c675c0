"""The callback for the Trainer of transformers."""

from __future__ import annotations

import os
from typing import Any

import transformers

from stepscope.tracer.integrations.training import TrainingRun


class TrainerCallback(transformers.TrainerCallback):  # type: ignore[misc]
    """Marks each global step. `Trainer(..., callbacks=[TrainerCallback("out/")])`

    With a directory it also records the training there; the settings are those of `stepscope.trace`. The Trainer tells
    no callback of an exception, so the report of a run that fails is written when the process ends, or in a notebook
    after the cell.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        self._run = TrainingRun(directory, settings)

    def on_train_begin(self, *_state: Any, **_objects: Any) -> None:
        self._run.begin()

    def on_step_end(self, *_state: Any, **_objects: Any) -> None:
        self._run.step()

    def on_train_end(self, *_state: Any, **_objects: Any) -> None:
        self._run.end()
