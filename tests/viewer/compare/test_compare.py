"""Tests the comparison of two runs: what differs first, what has no partner, and the exit codes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from stepscope.viewer.cli import app
from stepscope.viewer.compare.compare import compare, wanted
from stepscope.viewer.compare.filters import counts_text, strip_parts
from stepscope.viewer.compare.queries.pairs import comparable_code
from stepscope.viewer.compare.rows import Numbers
from stepscope.viewer.errors import StepscopeError
from tests.logs.synthetic import LogBuilder, recorded
from tests.logs.value_logs import Program, Stat, ValueLog, attention

OTHER = Stat(mean=0.3)
CODE = """# AOT ID: ['0_forward']
cpp_fused__softmax_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
// {path}
#include "{path}/{digest}.h"
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) {{ out_ptr0[0] = in_ptr0[0] * {constant}; }}
''')
"""


def code(constant: float = 1.5, path: str = "/tmp/a", digest: str = "c" + "a" * 51) -> bytes:
    return CODE.format(constant=constant, path=path, digest=digest).encode()


def attention_log(steps: int = 2, wrapper: bytes | None = None, program: Program | None = None, **stats: Any) -> Any:
    """Return the log of an attention that ran in `steps` steps; `stats` are those of the last one."""
    program = program or attention()
    log = ValueLog(program)
    if wrapper is not None:
        ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
        log.log.torch("inductor_output_code", {"filename": "/tmp/x/cw0.py"}, wrapper, **ids)
        log.log.record(replace(program.graph(), graph=1))
    for step in range(steps):
        log.call(program, step=step, **(stats if step == steps - 1 else {}))
    return log.end()


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    def ask(left: LogBuilder, right: LogBuilder | None = None, *words: str, ends: tuple[str, str] = ("", "")) -> Result:
        first = left.write(tmp_path / "left" / "a.log")
        second = right.write(tmp_path / "right" / "b.log") if right else first
        return CliRunner().invoke(app, ["compare", f"{first}{ends[0]}", f"{second}{ends[1]}", *words])

    return ask


def answer(result: Result) -> Any:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return orjson.loads(result.stdout)


def test_equal_runs_have_no_difference(asked: Any) -> None:
    result = asked(attention_log(), attention_log())
    assert result.exit_code == 0
    assert result.stdout.startswith("No difference was found.\n")
    assert "1 graph, 2 calls, 6 launches and 12 value rows, of which 0 differ" in " ".join(result.stdout.split())
    assert "Statistics were compared, not bits" in " ".join(result.stdout.split())


@pytest.mark.parametrize(("outputs", "differing"), [({}, 2), ({"buf2": OTHER}, 3)], ids=["unused", "used"])
def test_a_tensor_that_changed_after_it_was_written_is_a_difference(
    asked: Any, outputs: dict[str, Any], differing: int
) -> None:
    program = Program(again=True).launch("a", ["x"], ["buf0"]).launch("b", ["buf0"], []).launch("c", ["buf0"], ["buf2"])
    result = asked(
        attention_log(program=program),
        attention_log(program=program, buf0_1=OTHER, buf0_2=OTHER, **outputs),
        "--json",
    )
    found = answer(result)
    assert (result.exit_code, found["verdict"], found["compared"]["different_value_rows"]) == (1, "output", differing)
    assert found["sentence"].startswith("The first difference is a tensor that launch 4 reads, although nothing")


def test_the_launch_whose_inputs_agree_is_named_with_both_sides_numbers(asked: Any) -> None:
    stats: dict[str, Any] = {"buf1": Stat(zero=7), "buf2": OTHER}
    result = asked(attention_log(), attention_log(**stats), "--json")
    found = answer(result)
    assert result.exit_code == 1
    assert (found["format"], found["verdict"], found["compared_by"]) == ("stepscope-compare/1", "launch", "statistics")
    (launch,) = found["launches"]
    place = launch["place"]
    assert (place["kernel"], place["left_launch"], place["right_step"]) == ("cpp_fused__softmax_0", 4, 1)
    assert (place["source"]["file"], place["source"]["line"]) == ("/src/model.py", 11)
    (output,) = launch["outputs"]
    assert (output["name"], output["relative"]) == ("buf1", 0)
    assert (output["left"]["zero"], output["right"]["zero"]) == (0, 7)
    assert [(row["buffer"], row["different"], row["launches"]) for row in found["growth"]] == [
        ("buf1", 1, 2),
        ("buf2", 1, 2),
    ]
    assert found["growth"][1]["first_relative"] == pytest.approx(0.1)
    assert found["inputs"] == []


def test_two_faults_are_both_named(asked: Any) -> None:
    found = answer(asked(attention_log(), attention_log(buf0=OTHER), "--json"))
    assert [one["place"]["left_launch"] for one in found["launches"]] == [3]
    both = Program().launch("mm_a", ["x"], ["buf0"]).launch("mm_b", ["y"], ["buf1"])
    again = Program().launch("mm_a", ["x"], ["buf0"]).launch("mm_b", ["y"], ["buf1"])
    sides = attention_log(program=both), attention_log(program=again, buf0=OTHER, buf1=OTHER)
    found = answer(asked(*sides, "--json"))
    assert [one["place"]["kernel"] for one in found["launches"]] == ["mm_a", "mm_b"]


def test_a_differing_input_is_named_and_no_launch(asked: Any) -> None:
    changed: dict[str, Any] = {name: OTHER for name in ("primals_3", "buf2")}
    found = answer(asked(attention_log(), attention_log(**changed), "--json"))
    assert found["verdict"] == "input"
    assert [one["tensor"]["name"] for one in found["inputs"]] == ["primals_3"]
    assert found["launches"] == []


def test_small_differences_of_inputs_do_not_accuse_a_launch(asked: Any) -> None:
    near, far = Stat(mean=None, std=0.5 * (1 + 9e-6)), Stat(mean=None, std=0.5 * (1 + 3e-5))
    without = Stat(mean=None)
    base: dict[str, Any] = dict.fromkeys(("primals_1", "primals_2", "primals_3", "buf0", "buf1", "buf2"), without)
    found = answer(asked(attention_log(**base), attention_log(**{**base, "buf0": near, "buf1": far}), "--json"))
    assert found["verdict"] == "output"
    first = found["launches"][0]
    assert (first["place"]["left_launch"], first["inputs"]) == (4, "near")
    clear = Stat(mean=None, std=0.6)
    found = answer(asked(attention_log(**base), attention_log(**{**base, "buf0": near, "buf1": clear}), "--json"))
    assert found["verdict"] == "launch"


@pytest.mark.slow
def test_the_tolerance_decides(asked: Any) -> None:
    sides = attention_log(), attention_log(buf2=OTHER)
    assert asked(*sides, "--tolerance", "0.2").exit_code == 0
    assert asked(*sides, "--tolerance", "0.01").exit_code == 1
    assert asked(*sides, "--tolerance", "nan").exit_code != 0


def test_inputs_that_were_not_read_are_not_said_to_agree(asked: Any) -> None:
    skipped = Stat(skipped="sparse", min=None, max=None, mean=None, std=None)
    sides = attention_log(primals_3=skipped), attention_log(primals_3=skipped, buf2=OTHER)
    found = answer(asked(*sides, "--json"))
    assert found["verdict"] == "output"
    assert "may differ, too" in found["sentence"]
    assert found["compared"]["not_comparable"] == 1


def test_two_steps_of_a_trace(asked: Any) -> None:
    log = attention_log(3, buf1=OTHER)
    same = asked(log, None, "--json", ends=("#step=0", "#step=1"))
    assert (same.exit_code, answer(same)["left"]["launches"]) == (0, 3)
    found = answer(asked(log, None, "--json", ends=("#step=1", "#step=2")))
    (launch,) = found["launches"]
    assert (launch["place"]["left_step"], launch["place"]["right_step"]) == (1, 2)
    missing = asked(log, None, ends=("#step=1", "#step=7"))
    assert isinstance(missing.exception, StepscopeError)
    assert "has no call of a graph in step 7" in str(missing.exception)


@pytest.mark.slow
def test_differing_code_is_told_with_the_lines_of_the_kernel(asked: Any) -> None:
    sides = attention_log(wrapper=code()), attention_log(wrapper=code(2.5), buf1=OTHER)
    result = asked(*sides)
    assert result.stdout.index("The generated code differs in") < result.stdout.index("Launches whose inputs agree")
    assert "* 1.5; }" in result.stdout
    assert "* 2.5; }" in result.stdout
    assert answer(asked(*sides, "--json"))["kernels"][0]["kernel"] == "cpp_fused__softmax_0"


def test_names_of_files_hashes_and_comments_are_no_difference_of_code() -> None:
    here, there = code().decode(), code(path="/home/b", digest="c" + "b" * 51).decode()
    assert comparable_code(here) == comparable_code(there)
    assert comparable_code(here) != comparable_code(code(1.25).decode())


def test_settings_and_versions_stand_before_the_numbers(asked: Any) -> None:
    sides = recorded(config={"fx_graph_cache": True}), recorded(torch_version="2.14.0")
    result = asked(*sides)
    assert "version torch: 2.13.0  →  2.14.0" in result.stdout
    assert "setting fx_graph_cache: True  →  –" in result.stdout
    assert result.exit_code == 0, "settings that change no result are no difference"


@pytest.mark.slow
def test_logs_without_values_say_what_was_not_compared(asked: Any) -> None:
    result = asked(recorded(), recorded())
    assert result.exit_code == 0
    assert "Neither side has values, so results were not compared" in result.stdout
    lone = answer(asked(recorded(3), recorded(2), "--json"))
    assert lone["verdict"] == "structure"
    assert [(one["side"], one["what"]) for one in lone["without_partner"]] == [("left", "call")]


def test_unrelated_traces_are_one_sentence(asked: Any) -> None:
    result = asked(recorded(), attention_log())
    assert isinstance(result.exception, StepscopeError)
    assert "have no graph in common" in str(result.exception)
    assert result.exception.exit_code == 2


def test_launch_sites_without_a_partner_are_listed_and_the_others_compared(asked: Any) -> None:
    more = attention().allocate("buf3").launch("extern_kernels.addmm", ["buf2"], ["buf3"])
    found = answer(asked(attention_log(), attention_log(program=more), "--json"))
    lone = [(one["side"], one["what"], one["name"]) for one in found["without_partner"]]
    assert lone == [("right", "launch site", "extern_kernels.addmm of 0/0 forward (/src/model.py:13)")]
    assert found["compared"]["launches"] == 6


def test_a_file_may_have_the_name_of_a_step(tmp_path: Path) -> None:
    path = attention_log().write(tmp_path / "a#step=3")
    assert wanted(str(path)).step is None
    assert wanted(f"{path}#step=4").step == 4
    assert not compare(wanted(str(path)), wanted(str(path))).has_difference


def digests(log: Any, first: int = 1, **changes: int) -> Any:
    """Add a call of an attention whose tensors have digests; `changes` are those of single tensors."""
    names = ("primals_1", "primals_2", "primals_3", "buf0", "buf1", "buf2")
    stats = {name: Stat(digest=changes.get(name, first + place)) for place, name in enumerate(names)}
    log.call(attention(), step=log.calls, **stats)
    return log


def test_equal_digests_prove_that_runs_are_equal(asked: Any) -> None:
    result = asked(*(digests(ValueLog(attention())).end() for _ in range(2)))
    assert result.exit_code == 0
    assert result.stdout.startswith("No difference was found: 6 value rows are equal in every bit.\n")


@pytest.mark.slow
def test_unequal_digests_differ_although_statistics_are_equal(asked: Any) -> None:
    logs = digests(ValueLog(attention())).end(), digests(ValueLog(attention()), buf1=77).end()
    found = answer(asked(*logs, "--json"))
    assert (found["verdict"], found["compared_by"], found["compared"]["different_value_rows"]) == (
        "launch",
        "digests",
        1,
    )
    assert found["launches"][0]["place"]["kernel"] == "cpp_fused__softmax_0"
    assert found["nondeterministic"] is None  # the logs hold no code that could be compared
    result = asked(*logs, "--tolerance", "1e-5")
    assert result.exit_code == 0
    assert "Tensors whose digests are not equal were compared by statistics" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("body", "causes"),
    [("rand_cpu(in_ptr0[0], 1)", ["a random number generator"]), ("atomic_add(out_ptr0, 1)", ["atomic additions"]),
     ("in_ptr0[0]", [])],
)  # fmt: skip
def test_a_launch_with_equal_inputs_and_code_that_differs_is_nondeterministic(
    asked: Any, body: str, causes: list[str]
) -> None:
    wrapper = code().replace(b"in_ptr0[0] * 1.5", body.encode())
    logs = [with_code(wrapper, changed) for changed in (5, 77)]
    found = answer(asked(*logs, "--json"))
    assert (found["verdict"], found["nondeterministic"]["buffers"]) == ("nondeterministic", ["buf1"])
    assert found["nondeterministic"]["causes"] == causes
    assert found["sentence"].startswith("Nondeterministic: launch 1, cpp_fused__softmax_0 of graph")


def with_code(wrapper: bytes, changed: int, **run_changes: Any) -> Any:
    """Return a log with digests and generated code; `changed` is the digest of buf1."""
    log = ValueLog(attention(), **run_changes)
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    log.log.torch("inductor_output_code", {"filename": "/tmp/x/cw0.py"}, wrapper, **ids)
    return digests(log, buf1=changed).end()


def test_equal_code_under_another_setting_is_not_nondeterministic(asked: Any) -> None:
    right = with_code(code(), 77, config={"cpp.simdlen": 0}, torch_version="2.14.0")
    found = answer(asked(with_code(code(), 5), right, "--json"))
    assert (found["verdict"], found["nondeterministic"]) == ("launch", None)
    assert found["sentence"].endswith(
        "its inputs agree, and its code is equal. The runs differ in the version of torch and the setting cpp.simdlen,"
        " which may be the cause."
    )


def test_the_sentence_says_whether_the_code_differs(asked: Any) -> None:
    right = with_code(code(2.5), 77, config={"cpp.simdlen": 0})
    found = answer(asked(with_code(code(), 5), right, "--json"))
    assert (found["verdict"], found["sentence"].endswith("its inputs agree, and its code differs.")) == ("launch", True)


def test_many_inputs_are_one_line_each_after_the_first_ones(asked: Any) -> None:
    names = [f"primals_{n}" for n in range(1, 10)]
    program = Program().launch("extern_kernels.mm", names, ["buf0"])
    changed: dict[str, Any] = dict.fromkeys(names, OTHER)
    sides = [attention_log(program=program), attention_log(program=program, **changed)]
    text = asked(*sides).stdout
    assert "In this call, 8 other inputs differ, too." in " ".join(text.split())
    assert text.count("relative difference up to 0.1\n") == 3
    assert [" ".join(line.split()) for line in text.splitlines() if line.startswith("  primals_")] == [
        f"{name} 1 0.1" for name in names[3:]
    ]


def test_a_launch_that_reads_what_has_no_partner_names_its_writer(asked: Any) -> None:
    sides = []
    for kernel, wrote in (("cpp_fused_view_0", Stat()), ("cpp_fused_relu_view_0", OTHER)):
        program = Program().launch(kernel, ["x"], ["buf0"], "cpp")
        for name in ("buf1", "buf2"):
            program = program.launch("extern_kernels.mm", ["buf0"], [name])
        sides.append(attention_log(program=program, buf0=wrote, buf1=wrote, buf2=wrote))
    found = answer(asked(*sides, "--json"))
    assert found["sentence"].endswith(
        "It reads buf0, which cpp_fused_view_0 (/src/model.py:10) wrote. That launch has no partner on the other side,"
        " so the difference may begin there."
    )
    assert found["without_partner"][0]["name"] == "cpp_fused_view_0 of 0/0 forward (/src/model.py:10)"


def test_a_generator_of_random_numbers_is_named(asked: Any) -> None:
    wrapper = code().replace(b"in_ptr0[0] * 1.5", b"rand_cpu(in_ptr0[0], 1)")
    right = with_code(wrapper, 77, config={"fallback_random": True})
    found = answer(asked(with_code(wrapper, 5), right, "--json"))
    assert found["sentence"].endswith(
        "and its code is equal. It uses a random number generator. The runs differ in the setting fallback_random,"
        " which may be the cause."
    )


def test_bits_that_differ_under_equal_statistics_are_said_to(asked: Any) -> None:
    logs = digests(ValueLog(attention())).end(), digests(ValueLog(attention()), buf1=77).end()
    text = asked(*logs).stdout
    assert "buf1, other bits with equal statistics\n" in text
    row = next(line.split() for line in text.splitlines() if "1 of 1" in line)
    assert row[-3:] == ["bits", "bits", "bits"]


def test_ranks_of_one_trace_are_compared(tmp_path: Path) -> None:
    for rank, changed in ((0, 6), (1, 6), (2, 77)):
        log = ValueLog(attention(), rank=rank, world_size=3, pid=100 + rank)
        digests(log, buf2=changed).end().write(tmp_path / "runs" / f"rank_{rank}.log")
    asked = [str(tmp_path / "runs") + f"#rank={rank}" for rank in range(3)]
    same, other = compare(wanted(asked[0]), wanted(asked[1])), compare(wanted(asked[0]), wanted(asked[2]))
    assert (same.verdict, same.left.rank, same.right.rank, same.compared.value_rows) == ("no difference", 0, 1, 6)
    assert same.without_partner == []
    assert (other.verdict, other.launches[0].outputs[0].name) == ("launch", "buf2")
    with pytest.raises(StepscopeError, match="no log of rank 7"):
        compare(wanted(asked[0]), wanted(asked[0][:-1] + "7"))
    found = wanted("a#rank=1#step=2")
    assert (found.trace, found.rank, found.step) == (["a"], 1, 2)


@pytest.mark.slow
def test_the_file_shows_both_sides_and_escapes_what_logs_say(asked: Any, tmp_path: Path) -> None:
    program = Program().launch("<script>alert(1)</script>", ["primals_1"], ["buf0"]).launch("mul", ["buf0"], ["buf1"])
    logs = []
    for mean in (0.25, 0.375):
        log = ValueLog(program)
        log.call(program, buf0=Stat(mean=mean), buf1=Stat(mean=2 * mean))
        logs.append(log.end())
    out = tmp_path / "compare.html"
    assert asked(*logs, "-o", str(out)).exit_code == 1
    page = out.read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "&lt;script&gt;alert(1)" in page
    assert page.count('<dd class="other">0.25</dd>') == page.count('<dd class="other">0.375</dd>') == 1
    assert page.count("<circle") == 2  # the two buffers that differ
    refused = asked(*logs, "-o", str(tmp_path / "none" / "compare.html"))
    assert "cannot be written: No such file or directory" in str(refused.exception)


def test_a_strip_has_a_part_for_each_class_with_an_element() -> None:
    numbers = Numbers("float16", 1000, 2, 500, 0, 0, -1.0, 1.0, 0.0, 1.0)
    parts = strip_parts(numbers)
    assert [(part.css, part.sign) for part in parts] == [("v-finite", ""), ("v-positive-infinity", "▲"), ("v-nan", "")]
    assert parts[-1].width > 0.9, "two of a thousand elements stay visible"
    assert abs(sum(part.width for part in parts) - 100) < 0.05
    assert counts_text(numbers) == "finite 498, +inf 500, NaN 2"
