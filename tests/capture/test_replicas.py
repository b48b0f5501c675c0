"""Ranks that should hold the same: a difference is named with its step, and healthy twins are silent."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.replica_program import FIRST_WRONG
from tests.capture.test_deaths import COMMAND

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def found(what: str, ranks: int, folder: Path) -> list[dict[str, Any]]:
    """Return the findings about replicas of a recorded program."""
    environment = clean_environment(folder / "cache", TORCH_DEVICE_BACKEND_AUTOLOAD="1", OMP_NUM_THREADS="1")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    program = ["-m", "tests.capture.replica_program", what]
    recorder = [*COMMAND, "run", "--level", "values", "-o", folder / "trace", "--"]
    ran = python_processes.run([*recorder, *launcher, *program], env=environment, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    answer = json.loads(python_processes.run([*COMMAND, "summary", folder / "trace", "--json"], check=True).stdout)
    assert answer["counts"]["value_rows"] > 0
    return [one for one in answer["findings"] if one["kind"] in ("replica_difference", "skipped_step")]


def test_a_change_by_one_rank_is_named_at_its_step(tmp_path: Path) -> None:
    (finding,) = found("by_hand", 3, tmp_path)
    assert (finding["severity"], finding["rank"], finding["step"]) == ("critical", 2, FIRST_WRONG)
    assert finding["evidence"]["parameter"] == "head.bias"
    assert finding["evidence"]["differing_ranks"] == [2]
    assert "self.head.bias" in finding["title"]
    assert "on rank 2 than on the other 2 ranks" in finding["title"]


def test_gradients_that_are_not_averaged_drift_after_their_step(tmp_path: Path) -> None:
    (finding,) = found("around", 2, tmp_path)
    assert finding["step"] == FIRST_WRONG + 1
    assert finding["evidence"]["differing_ranks"] == [0, 1]
    assert finding["evidence"]["parameters"] == 6
    step, position = FIRST_WRONG + 1, finding["evidence"]["launch_in_step"]
    for rank, said in enumerate(sorted(finding["proof"][:2])):
        place = re.fullmatch(rf"rank {rank}: .+, at launch \d+, the (\d+)\w\w of (\d+) launches of step {step}", said)
        assert place is not None, said
        assert int(place[1]) == position <= int(place[2])


def test_a_step_that_an_optimizer_made_on_one_rank_alone(tmp_path: Path) -> None:
    (finding,) = found("skips", 2, tmp_path)
    assert finding["step"] == FIRST_WRONG + 1
    assert f"SGD made a step on rank 0 in step {FIRST_WRONG}, but not on rank 1." in finding["proof"][-1]


def test_the_second_of_two_modules_with_equal_names(tmp_path: Path) -> None:
    (finding,) = found("two", 2, tmp_path)
    assert (finding["severity"], finding["step"], finding["evidence"]["parameters"]) == ("critical", 1, 6)


def test_statistics_that_are_not_broadcast_are_information(tmp_path: Path) -> None:
    (finding,) = found("buffers", 2, tmp_path)
    assert (finding["severity"], finding["step"]) == ("info", 1)
    assert "norm.running_" in finding["title"]
    assert finding["title"].startswith("The buffer ")


def test_gradients_that_the_program_forgets_to_average(tmp_path: Path) -> None:
    (finding,) = found("forgotten", 2, tmp_path)
    assert (finding["severity"], finding["step"]) == ("warning", 1)
    assert "head." in finding["title"]
    assert finding["evidence"]["parameters_that_stay_equal"] == 4
    assert finding["proof"][2].endswith("and those of self.head.bias and self.head.weight are probably not")


def test_gradients_of_one_of_two_models_that_the_program_forgets_to_average(tmp_path: Path) -> None:
    (finding,) = found("one_forgotten", 2, tmp_path)
    assert (finding["severity"], finding["step"]) == ("warning", 1)
    assert finding["evidence"]["parameters_that_stay_equal"] == 6
    assert "6 other parameters of other graphs change in training and stay equal on all ranks" in finding["proof"][2]
    assert re.fullmatch(r"Parameters change in the step of SGD \(replica_program\.py:\d+\)\.", finding["proof"][-1])


def test_averaged_gradients_of_ranks_that_began_with_other_values(tmp_path: Path) -> None:
    (finding,) = found("other_seeds", 2, tmp_path)
    assert (finding["severity"], finding["step"], finding["evidence"]["parameters"]) == ("warning", 0, 4)
    assert "and 3 other parameters have different values on 2 ranks" in finding["title"]
    assert "the ranks began with different values" in finding["proof"][-1]


@pytest.mark.parametrize(
    ("what", "ranks"),
    [("healthy", 3), ("sharded", 2), ("averaged", 2), ("two_averaged", 2), ("apart", 2), ("samples", 2)],
)
def test_ranks_that_may_differ_or_agree_have_no_finding(what: str, ranks: int, tmp_path: Path) -> None:
    assert found(what, ranks, tmp_path) == []
