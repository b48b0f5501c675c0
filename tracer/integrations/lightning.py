"""The callback for Lightning, which is imported as `lightning` or as `pytorch_lightning`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from stepscope.tracer.integrations.training import TrainingRun

_NAMES = ("lightning", "pytorch_lightning")
_loaded = [name for name in _NAMES if name in sys.modules] or [name for name in _NAMES if find_spec(name)] or [*_NAMES]
# Each of the two packages has a class of its own.
_Callback: Any = import_module({"lightning": "lightning.pytorch"}.get(_loaded[0], _loaded[0])).Callback


class LightningCallback(_Callback):  # type: ignore[misc]
    """Marks each global step, as in `Trainer(callbacks=[LightningCallback("out/")])`, and reports a run that fails.

    With a directory it also records the training there; the settings are those of `stepscope.trace`.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        self._run = TrainingRun(directory, settings)
        self._step = 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._step = trainer.global_step
        self._run.begin()

    def on_train_batch_end(self, trainer: Any, *_batch: Any, **_more: Any) -> None:
        if trainer.global_step != self._step:  # else gradients of several batches are added up
            self._step = trainer.global_step
            self._run.step()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._run.failed(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._run.end()
