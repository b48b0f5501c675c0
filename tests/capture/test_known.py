"""What a log reveals without a judge: a program with one fault of each kind, and its healthy twin."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def findings_of(what: str, folder: Path) -> list[dict[str, Any]]:
    command = [*COMMAND, "run", "--level", "values", "-o", folder / what, "--", "-m", "tests.capture.known_program"]
    run = python_processes.run([*command, what], env=clean_environment(folder / "cache"), timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    answer = python_processes.run([*COMMAND, "summary", folder / what, "--json"], check=True)
    found: list[dict[str, Any]] = json.loads(answer.stdout)["findings"]
    return found


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return findings_of("sick", tmp_path_factory.mktemp("sick"))


def test_healthy_programs_have_no_findings(tmp_path: Path) -> None:
    assert [one["title"] for one in findings_of("healthy", tmp_path)] == []


def the_one(found: list[dict[str, Any]], kind: str, words: str) -> dict[str, Any]:
    (one,) = [one for one in found if one["kind"] == kind and words in one["title"]]
    return one


def test_exceptions_that_the_program_catches_are_named_with_their_line(sick: list[dict[str, Any]]) -> None:
    index = the_one(sick, "raised_call", "index out of bounds")
    assert index["source"]["code"] == "return table[rows] * 2.0"
    assert index["title"].startswith("index (known_program.py:")
    assert index["title"].endswith("; the program went on")
    assert (index["severity"], index["evidence"]["cause"]) == ("warning", "index out of bounds")
    assert "look_up(table, torch.tensor(" in " ".join(index["proof"])

    strides = the_one(sick, "raised_call", "did not return what was compiled for")
    assert strides["source"]["code"] == "turned: Tensor = transposed(x.sin(), is_sick)"
    assert strides["evidence"]["cause"] == "size or stride"

    lowering = the_one(sick, "compile_failure", "planted: no lowering")
    assert lowering["source"]["code"] == "result: Tensor = unknown(x) + 1"
    assert lowering["evidence"]["operator"] == "known_program.unknown.default"


def test_tensors_that_changed_before_their_backward_pass_are_named(sick: list[dict[str, Any]]) -> None:
    batch = the_one(sick, "changed_saved_tensor", "args[0]")
    assert (batch["severity"], batch["evidence"]["tensors"]) == ("critical", ["args[0] (primals_3)"])
    assert len(batch["evidence"]["steps"]) == 1
    read, was = (float(line.partition("largest magnitude ")[2].partition(" ")[0]) for line in batch["proof"][1::-1])
    assert abs(read / was - 2) < 1e-4
    factor = the_one(sick, "changed_saved_tensor", "factor")
    assert factor["source"]["code"] == "return x * factor"
    between = r"between the compiled call at known_program\.py:\d+ and the backward pass at known_program\.py:\d+$"
    assert re.search(between, factor["title"])
    *_, said, first, second = factor["proof"]
    assert said.endswith("other code changed it in place; the lines in between are")
    assert [re.sub(r"py:\d+ ", "py:N ", line) for line in (first, second)] == [
        "known_program.py:N  if is_sick:",
        "known_program.py:N  scale.data.add_(1)",
    ]


def test_activations_that_are_recomputed_with_other_values_are_named(sick: list[dict[str, Any]]) -> None:
    other = the_one(sick, "other_recomputation", "it drew other random numbers")
    assert other["severity"] == "critical"
    assert "dropout" in other["title"]
    assert other["evidence"]["calls"] == 4
    assert re.search(r"calls this function at known_program\.py:\d+: x = checkpoint\(block", other["proof"][0])
    again = the_one(sick, "other_recomputation", "The backward pass of noisy (known_program.py:")
    assert " draws new random numbers (known_program.py:" in again["title"]
    assert again["source"]["code"] == "return torch.nn.functional.dropout(torch.relu(layer(x)))"
    assert (again["severity"], again["evidence"]["calls"]) == ("critical", 4)


def test_a_nan_that_the_code_of_a_kernel_contains_is_told_as_such(sick: list[dict[str, Any]]) -> None:
    constant = the_one(sick, "nonfinite", "NaN comes from a NaN constant in the kernel of mul (known_program.py:")
    assert "float(" in constant["source"]["code"]


def test_elements_that_nothing_wrote_are_told_with_the_line_that_allocates_them(sick: list[dict[str, Any]]) -> None:
    unwritten = the_one(sick, "nonfinite", "NaN comes from elements of empty_like (known_program.py:")
    assert " that nothing wrote, in mul (known_program.py:" in unwritten["title"]
    assert unwritten["source"]["code"] == "total = torch.empty_like(x)"


def test_an_infinity_and_a_nan_from_one_constant_are_one_finding(sick: list[dict[str, Any]]) -> None:
    constant = the_one(sick, "nonfinite", "comes from an infinite constant in the kernel of ")
    assert constant["severity"] == "critical"


def test_the_backward_of_a_nan_is_no_finding_of_its_own(sick: list[dict[str, Any]]) -> None:
    spread = the_one(sick, "nonfinite", "NaN comes from the std of too few elements")
    assert (
        spread["source"]["code"] == "loss: Tensor = ((hidden - hidden.mean(0)) / (hidden.std(0) + 1e-5)).pow(2).sum()"
    )
    assert len(spread["evidence"]["explains_launches"]) == 1


def test_a_result_that_nothing_writes_is_named_with_the_operator_that_was_to_write_it(
    sick: list[dict[str, Any]],
) -> None:
    unwritten = the_one(sick, "unwritten_result", "known_program.secretly_filled (known_program.py:")
    assert unwritten["title"].startswith("copy is returned although nothing has written it: ")
    assert unwritten["source"]["code"] == "write(x, copy.view(4, 5))"
    assert unwritten["severity"] == "critical"


def test_an_operator_that_the_compiler_left_out_is_named(sick: list[dict[str, Any]]) -> None:
    left_out = the_one(sick, "left_out_operator", "known_program.secretly_filled (known_program.py:")
    assert left_out["source"]["code"] == "write(x, cache)"
    assert left_out["severity"] == "warning"
    assert left_out["proof"][0].startswith("1 call of graph ")


def test_memory_that_nothing_writes_is_named_with_the_operator_that_was_to_write_it(
    sick: list[dict[str, Any]],
) -> None:
    unwritten = the_one(sick, "uninitialised_read", " reads uninitialised memory: ")
    assert "; known_program.secretly_filled (known_program.py:" in unwritten["title"]
    assert unwritten["title"].endswith(" was left out of the generated code")
    assert unwritten["source"]["code"] == "write(x, copy)"


def test_a_tensor_that_a_kernel_reads_as_another_dtype_is_named_with_its_operator(sick: list[dict[str, Any]]) -> None:
    misread = the_one(sick, "misread_dtype", "known_program.weighted (known_program.py:")
    assert " returns float64, although its fake kernel promises float32: " in misread["title"]
    assert misread["title"].endswith(" reads its bytes as float32")
    assert misread["source"]["code"] == "weights: Tensor = weighted(x, is_sick)"
    assert (misread["severity"], misread["evidence"]["size"]) == ("critical", [16, 16])
    assert misread["proof"][1:] == ["The same happens at 1 other launch site of these lines"]


def test_memory_that_a_reference_cycle_keeps_is_named_with_its_holder(sick: list[dict[str, Any]]) -> None:
    cycle = the_one(sick, "reference_cycle", "wait for the garbage collector: a reference cycle")
    assert set(cycle["evidence"]["holders"]) <= {"attribute output of Result"}  # a search in a busy machine is given up
    assert cycle["source"]["code"] == "return x.sin() * 2"
    assert (cycle["evidence"]["storages"], cycle["evidence"]["most_bytes"]) == (8, 4 << 20)


def test_each_fault_has_one_finding(sick: list[dict[str, Any]]) -> None:
    from tests.capture import known_program  # imports Inductor, for which collecting need not wait

    assert len(sick) == len(known_program.PROGRAMS)
