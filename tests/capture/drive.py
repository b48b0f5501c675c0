"""Runs programs of the corpus in this process and leaves behind what the tests compare.

    python -m tests.capture.drive recorded|values|reference FOLDER NAME...

For each program FOLDER gets NAME.pt (the tensors of every step), NAME.json (see `Outcome`) and, when
recorded, the log in NAME/. The recorder is attached for each program anew; the reference run counts launches instead.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch._inductor.codecache import PyCodeCache
from torch.utils._pytree import tree_leaves

import stepscope
from tests.capture.independent import LaunchCounts
from tests.programs import Program, load

HANGS_AFTER_S = 180


@dataclass
class Outcome:
    error: str | None = None
    wrappers: dict[str, str] = field(default_factory=dict)
    """Key of each wrapper that was loaded -> its source."""
    changed: list[str] = field(default_factory=list)
    """Functions of these wrappers whose code is not what the file says, once recording is over."""
    counts: list[dict[str, int]] = field(default_factory=list)
    """Reference run: kernel -> calls, for each step."""


def main() -> int:
    mode, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    corpus = load()
    for name in names:
        outcome = Outcome()
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
        try:
            torch._dynamo.reset()
            PyCodeCache.cache_clear()
            torch.manual_seed(0)
            if mode == "reference":
                reference(corpus[name], folder, outcome)
            else:
                recorded(corpus[name], folder, outcome, mode == "values")
        except Exception:
            outcome.error = traceback.format_exc()
        (folder / f"{name}.json").write_text(json.dumps(asdict(outcome)))
    return 0


def recorded(program: Program, folder: Path, outcome: Outcome, with_values: bool) -> None:
    level = "values" if with_values else "launches"
    with stepscope.trace(folder / program.name, level=level, verify_before=with_values, red_zones=with_values):
        run(program, folder, stepscope.step)
    for module in wrappers():
        keep_source(module, outcome)
        outcome.changed += list(changed_functions(module))


def reference(program: Program, folder: Path, outcome: Outcome) -> None:
    counts = LaunchCounts()
    with counting_loads(counts):
        run(program, folder, counts.next_step)
    outcome.counts = [dict(step) for step in counts.steps]
    for module in wrappers():
        keep_source(module, outcome)


def run(program: Program, folder: Path, end_step: Callable[[], None]) -> None:
    results = []
    with inductor_config.patch(program.config):
        step = program.build()
        end_step()  # steps are ours from the first call on
        for _ in range(program.steps):
            leaves = [leaf for leaf in tree_leaves(step()) if isinstance(leaf, torch.Tensor)]
            results.append([leaf.detach().clone() for leaf in leaves])
            end_step()
    torch.save(results, folder / f"{program.name}.pt")


def wrappers() -> Iterator[ModuleType]:
    for module in PyCodeCache.modules:
        if callable(getattr(module, "call", None)):
            yield module


def keep_source(module: ModuleType, outcome: Outcome) -> None:
    assert module.__file__ is not None
    path = Path(module.__file__)
    outcome.wrappers[path.stem] = path.read_text("utf-8")


def changed_functions(module: ModuleType) -> Iterator[str]:
    path = Path(str(module.__file__))
    # As torch compiles it: without the __future__ flags of this file.
    fresh = compile(path.read_text("utf-8"), str(path), "exec", dont_inherit=True)
    compiled = {code.co_name: code for code in codes(fresh)}
    values = [*vars(module).values(), *vars(getattr(module, "Runner", object)).values()]
    for value in values:
        of_this_file = isinstance(value, FunctionType) and value.__code__.co_filename == str(path)
        if of_this_file and value.__code__ != compiled[value.__name__]:
            yield f"{module.__name__}.{value.__name__}"
    if any("stepscope" in name for name in vars(module)):
        yield f"{module.__name__}: a name of the recorder is left"


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


@contextmanager
def counting_loads(counts: LaunchCounts) -> Iterator[None]:
    original = PyCodeCache.__dict__["load_by_key_path"]

    def load_by_key_path(cls: Any, *args: Any, **kwargs: Any) -> ModuleType:
        module: ModuleType = original.__func__(cls, *args, **kwargs)
        if callable(getattr(module, "call", None)) and not hasattr(module, "counted"):
            vars(module)["counted"] = True
            if "inductor_entry" not in vars(module):
                counts.count(module)
        return module

    setattr(PyCodeCache, "load_by_key_path", classmethod(load_by_key_path))  # noqa: B010
    try:
        yield
    finally:
        setattr(PyCodeCache, "load_by_key_path", original)  # noqa: B010


if __name__ == "__main__":
    sys.exit(main())
