"""Tests the comparison of logs that PyTorch's DebugMode saved, with each other and with traces."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from stepscope.viewer.cli import app
from stepscope.viewer.compare import call_pairs
from stepscope.viewer.compare.compare import compare, wanted
from stepscope.viewer.compare.debug_log import read_debug_log
from stepscope.viewer.compare.html import render_html
from stepscope.viewer.compare.readings import Reading, difference, norm_bounds
from stepscope.viewer.compare.rows import Comparison, Numbers
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.open import open_trace
from tests.logs.value_logs import Stat, ValueLog, attention
from tests.viewer.compare.debug_logs import kernel, operator, write

X, W = 30.5, 12.25


def layer(scale: float = 1.0, made: float = 8.0, has_inputs: bool = True) -> list[dict[str, Any]]:
    """Return the calls of a product, a scaling and an activation that multiplies by `scale`."""

    def read(*hashes: float | None) -> dict[str, Any]:
        return {"read": hashes} if has_inputs else {}

    return [
        operator("aten::mm", "t$1: f32[4, 8], t$2: f32[8, 8]", line=3, hash=made, **read(X, W)),
        operator("aten::mul.Tensor", f"t$3: f32[4, 8], {scale}", line=4, hash=made * scale, **read(made, None)),
        operator("aten::gelu", "t$4: f32[4, 8]", line=5, hash=made * scale / 2, **read(made * scale)),
    ]


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    def ask(left: list[Any], right: list[Any], *words: str) -> Result:
        paths = write(tmp_path / "left.json", *left), write(tmp_path / "right.json", *right)
        return CliRunner().invoke(app, ["compare", *map(str, paths), *words])

    return ask


def answer(result: Result) -> Any:
    assert result.exit_code in (0, 1), result.output
    return orjson.loads(result.stdout)


def test_equal_logs_have_no_difference(asked: Any) -> None:
    result = asked(layer(), layer())
    assert result.exit_code == 0
    assert "No result that was compared differs: 7 tensors agree." in result.stdout


def test_the_first_call_that_computes_something_else_is_named(asked: Any) -> None:
    result = asked(layer(), layer(scale=1.25))
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "what call 1, aten::mul.Tensor (/src/model.py:4), computes: its inputs agree, and its other" in text
    assert "- aten::mul.Tensor(t: f32[4, 8], 1.0) + aten::mul.Tensor(t: f32[4, 8], 1.25)" in text
    found = answer(asked(layer(), layer(scale=1.25), "--json"))
    assert (found["verdict"], found["compared_by"], found["left"]["launches"]) == ("launch", "hashes", 3)
    assert [row["largest_relative"] for row in found["growth"]] == [pytest.approx(0.2)] * 2
    assert found["launches"][0]["outputs"][0]["right"]["norm"] == [10.0, 10.0]


def test_without_hashes_of_inputs_they_are_unknown(asked: Any) -> None:
    found = answer(asked(layer(has_inputs=False), layer(made=9.0, has_inputs=False), "--json"))
    assert found["verdict"] == "output"
    assert "hash_inputs=True" in found["sentence"]


def test_a_difference_of_what_is_read_is_an_input(asked: Any) -> None:
    other = [operator("aten::mm", "t: f32[4, 8], t: f32[8, 8]", line=3, hash=8.0, read=(X, W + 1)), *layer()[1:]]
    found = answer(asked(layer(), other, "--json"))
    assert found["verdict"] == "input"
    assert [one["tensor"]["name"] for one in found["inputs"]] == ["argument 1"]


def test_rounding_is_within_a_tolerance(asked: Any) -> None:
    assert asked(layer(), layer(made=8.00001)).exit_code == 1
    assert asked(layer(), layer(made=8.00001), "--tolerance", "1e-5").exit_code == 0


def test_compiled_code_is_laid_beside_eager_code(asked: Any) -> None:
    """Compiled code fuses operators, calls variants with `out`, and may call operators in another order."""
    backward = [
        operator("aten::t", "t: f32[8, 8]", "t: f32[8, 8]", hash=W, read=(W,)),
        operator("aten::mm", "t: f32[8, 4], t: f32[4, 8]", "t: f32[8, 8]", hash=2.0, read=(X, 4.0)),
        operator("aten::mm", "t: f32[8, 4], t: f32[4, 8]", "t: f32[8, 8]", hash=3.0, read=(5.0, 6.0)),
    ]
    names: dict[str, Any] = {"by_name": ", out=t: f32[8, 8]", "read_by_name": {"out": 77.0}}
    compiled = [
        operator("aten::mm.out", "t: f32[4, 8], t: f32[8, 8]", hash=8.0, read=(X, W), by_name=", out=t: f32[4, 8]"),
        operator("aten::mm.out", "t: f32[8, 4], t: f32[4, 8]", "t: f32[8, 8]", hash=3.0, read=(5.0, 6.0), **names),
        operator("aten::mm.out", "t: f32[8, 4], t: f32[4, 8]", "t: f32[8, 8]", hash=2.5, read=(X, 4.0), **names),
    ]
    found = answer(asked([*layer(), *backward], compiled, "--json"))
    assert found["verdict"] == "launch"
    assert "call 4, aten::mm" in found["sentence"]
    assert (found["compared"]["launches"], found["compared"]["different_value_rows"]) == (3, 1)
    lone = {one["name"].partition(" (")[0]: one["count"] for one in found["without_partner"]}
    assert lone == {"aten::mul.Tensor": 1, "aten::gelu": 1, "operators that make views": 1}


def test_triton_kernels_have_inputs_and_outputs(asked: Any) -> None:
    arguments = "in_ptr0=t: f32[32], out_ptr0=t: f32[32], xnumel=32"
    left = kernel(
        "triton_poi_fused_gelu_0", arguments, {"in_ptr0": 1.5, "out_ptr0": 9.0}, {"in_ptr0": 1.5, "out_ptr0": 2.0}
    )
    right = kernel(
        "triton_poi_fused_gelu_1", arguments, {"in_ptr0": 1.5, "out_ptr0": 7.0}, {"in_ptr0": 1.5, "out_ptr0": 2.5}
    )
    found = answer(asked([left], [right], "--json"))
    assert found["verdict"] == "launch"
    assert [one["name"] for one in found["launches"][0]["outputs"]] == ["out_ptr0"]


def test_long_logs_are_matched_in_parts(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_pairs, "MOST_CALLS", 4)
    names = ["aten::mm", "aten::gelu", "aten::exp", "aten::log"] * 5
    calls = [operator(name, "t: f32[4]", "t: f32[4]") for name in names]
    found = answer(asked(calls, [*calls[:9], operator("aten::sin", "t: f32[4]", "t: f32[4]"), *calls[9:]], "--json"))
    assert found["compared"]["launches"] == 20
    assert [one["name"] for one in found["without_partner"]] == ["aten::sin"]


def test_what_only_one_side_has_is_structure(asked: Any) -> None:
    found = answer(asked(layer(), layer()[:2], "--json"))
    assert (found["verdict"], found["without_partner"][0]["name"]) == ("structure", "aten::gelu (/src/model.py:5)")


def test_logs_without_hashes_compare_nothing(asked: Any) -> None:
    calls = [operator("aten::relu", "t: f32[2]", "t: f32[2]")]
    result = asked(calls, calls)
    assert result.exit_code == 0
    assert "DebugMode.log_tensor_hashes()" in result.stdout


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": 7}, "in format 7"),
        ({"logs": 3}, "has no list of calls"),
    ],
)
def test_damaged_logs_are_one_sentence(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    path = write(tmp_path / "a.json", *layer(), **changed)
    with pytest.raises(StepscopeError, match=said):
        compare(wanted(str(path)), wanted(str(path)))


def test_cut_logs_are_one_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", *layer())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StepscopeError, match="damaged log of DebugMode"):
        compare(wanted(str(path)), wanted(str(path)))


def test_unreadable_entries_are_counted(asked: Any) -> None:
    found = answer(asked([*layer(), 3, {"type": "future"}, {**layer()[0], "log": {"type": "?"}}], layer(), "--json"))
    assert {"side": "left", "what": "unreadable entry", "name": "the log of DebugMode", "count": 3} in found[
        "without_partner"
    ]


def test_marks_compute_nothing(tmp_path: Path) -> None:
    mark = {"type": "annotate", "tag": "Net.a", "header": "nn.Mod", "call_depth": 1}
    assert len(read_debug_log(str(write(tmp_path / "a.json", mark, *layer()))).calls) == 3


def test_other_readers_say_what_the_file_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", *layer())
    with pytest.raises(StepscopeError, match="a log of PyTorch's DebugMode: `stepscope compare`"):
        open_trace(path)


def traced(tmp_path: Path, scores: Stat = Stat(min=0.0, max=0.5)) -> str:  # noqa: B008
    """Return a trace of two steps in which `buf0` has one sign, so that its mean tells its norm."""
    log, program = ValueLog(attention()), attention()
    for step in range(2):
        log.call(program, step=step, buf0=scores)
    return str(log.end().write(tmp_path / "trace" / "a.log"))


def products(scores: float, read: tuple[float, ...] = (20.0, 20.0)) -> list[dict[str, Any]]:
    shape = "t: f32[2, 4, 8]"
    return [operator("aten::bmm", f"{shape}, {shape}", shape, line=7, hash=scores, read=read)]


def compared(left: str, right: str) -> Comparison:
    return compare(wanted(left), wanted(right))


def test_a_log_stands_beside_a_trace(tmp_path: Path) -> None:
    trace, equal = traced(tmp_path), str(write(tmp_path / "equal.json", *products(16.0)))
    found = compared(f"{trace}#step=1", equal)
    assert (found.verdict, found.compared_by) == ("no difference", "norms")
    assert (found.compared.value_rows, found.compared.not_comparable) == (1, 2)
    found = compared(str(write(tmp_path / "other.json", *products(17.0))), f"{trace}#step=1")
    assert (found.verdict, found.compared.different_value_rows) == ("output", 1)
    assert found.launches[0].outputs[0].relative == pytest.approx(1 / 17)
    assert found.launches[0].outputs[0].right.norm == (16.0, 16.0)


def test_norms_outside_of_the_bounds_differ(tmp_path: Path) -> None:
    """Elements of at most 1 have a norm of at least their sum of squares, 64 · 0.25² + 63 · 0.5²."""
    found = compared(traced(tmp_path), str(write(tmp_path / "a.json", *products(16.0, (20.0, 9.0)))))
    assert found.verdict == "input"
    assert [one.tensor.name for one in found.inputs] == ["primals_2"]
    assert found.inputs[0].tensor.relative == pytest.approx(1 - 9 / 19.75)


def test_norms_within_the_bounds_prove_nothing(tmp_path: Path) -> None:
    found = compared(traced(tmp_path, Stat()), str(write(tmp_path / "a.json", *products(20.0))))
    assert found.verdict == "nothing compared"
    assert "nothing is proved: 3 norms of DebugMode" in found.sentence
    assert f"{tmp_path}/trace/a.log#step=0" in found.sentence


def test_steps_are_of_traces_alone(tmp_path: Path) -> None:
    trace, debug = traced(tmp_path), str(write(tmp_path / "a.json", *products(16.0)))
    for left, right, said in (
        (debug, f"{trace}#step=9", "no call of a graph in step 9"), (f"{debug}#step=1", trace, "has no steps"),
    ):  # fmt: skip
        with pytest.raises(StepscopeError, match=said):
            compared(left, right)


def test_the_file_and_the_report_show_calls(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / f"{n}.json", *layer(scale))) for n, scale in enumerate((1.0, 1.25))]
    page = render_html(compared(*paths))
    assert "call 1" in page
    assert "launch 1" not in page
    assert "None" not in page


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50))
def test_the_norm_lies_within_its_bounds(numbers: list[float]) -> None:
    low, high, largest = min(numbers), max(numbers), max(map(abs, numbers))
    mean, l2 = math.fsum(numbers) / len(numbers), math.sqrt(math.fsum(x * x for x in numbers))
    bounds = norm_bounds(Numbers("float32", len(numbers), 0, 0, 0, 0, low, high, mean, None), l2, largest)
    assert bounds is not None
    norm = math.fsum(map(abs, numbers))
    assert bounds[0] <= norm * (1 + 1e-9) + 1e-12
    assert norm <= bounds[1] * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("left", "right", "state"),
    [
        ((1.0,), (1.0,), "equal"),
        ((1.0, 5), (1.0, 5), "equal"),
        ((1.0, 5), (1.0, 6), "differs"),
        ((math.nan,), (1.0,), "differs"),
        ((math.nan,), (math.nan,), "unknown"),
        ((math.nan, 5), (math.nan, 5), "equal"),
        ((1.0,), (1,), "unknown"),
        (("a",), ("b",), "differs"),
    ],
)
def test_hashes(left: Any, right: Any, state: str) -> None:
    assert difference(Reading("x", "float32", 4, left), Reading("x", "float32", 4, right), None).state == state
