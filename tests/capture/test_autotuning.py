"""The autotuner's choices of a program that compiles, and of one whose graph comes from a cache."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stepscope.tracer.schema.record import artifact_name
from stepscope.tracer.schema.tuning import Autotuned
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.values.queries.tunings import Tuning, tunings
from tests import python_processes
from tests.capture.conftest import clean_environment

pytestmark = pytest.mark.slow


PROGRAM = """
import sys, torch, torch._inductor.config as config, stepscope
config.max_autotune, config.max_autotune_gemm_backends = True, "CPP,ATEN"
product = torch.compile(lambda x, y: torch.bmm(x, y))
with stepscope.trace(sys.argv[1]):
    for _ in range(3):
        product(torch.ones(2, 64, 64), torch.ones(2, 64, 64))
"""

TWO_OPERATORS = """
from torch._inductor.select_algorithm import ExternKernelChoice, add_preprocessing_fn
def by_matmul(x, y, *, out): return torch.matmul(x, y, out=out)
other = ExternKernelChoice(by_matmul, name="by_matmul")
add_preprocessing_fn(lambda choices: [*choices, other.bind(choices[0].input_nodes, choices[0].layout)])
"""


def recorded(folder: Path, name: str, program: str = PROGRAM) -> Tuning:
    python_processes.run(
        [sys.executable, "-c", program, folder / name], env=clean_environment(folder / "cache"), check=True
    )
    (log,) = (folder / name).glob("*.log")
    assert artifact_name(Autotuned) in log.read_text()
    with open_trace(folder / name) as trace:
        (found,) = tunings(trace)
    return found


def test_choices_are_known_of_a_graph_that_comes_from_a_cache(tmp_path: Path) -> None:
    compiled, cached = recorded(tmp_path, "compiled"), recorded(tmp_path, "cached")
    assert (compiled.measured, cached.measured) == (True, False)
    assert (compiled.operator, compiled.launches) == ("bmm", 3)
    assert {"bmm"} < {choice.kernel for choice in compiled.choices}
    assert (cached.choices, cached.chosen, cached.inputs) == (compiled.choices, compiled.chosen, compiled.inputs)
    assert [one.size for one in compiled.inputs] == [[2, 64, 64]] * 2
    assert compiled.chosen == 0


def test_the_choice_between_two_operators_is_known(tmp_path: Path) -> None:
    imports, settings = PROGRAM.split("config.max_autotune,", 1)
    program = imports + TWO_OPERATORS + "config.max_autotune," + settings.replace("CPP,ATEN", "ATEN")
    tuning = recorded(tmp_path, "recorded", program)
    assert {choice.kernel for choice in tuning.choices} == {"bmm", "by_matmul"}
    assert tuning.chosen == 0
