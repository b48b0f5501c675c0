"""How the times of two runs compare: what is slower by more than the spread, and what only seems so."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from stepscope.viewer.compare.compare import compare, wanted
from stepscope.viewer.compare.spread import rank_probability
from stepscope.viewer.compare.time_rows import Times
from stepscope.viewer.compare.times_text import time_lines
from tests.logs.synthetic import LogBuilder
from tests.logs.timed_logs import KERNELS, STEADY, noisy, run_of


def times(folder: Path, left: LogBuilder, right: LogBuilder) -> Times:
    ours, theirs = left.write(folder / "left" / "a.log"), right.write(folder / "right" / "b.log")
    found = compare(wanted(str(ours)), wanted(str(theirs))).times
    assert found is not None
    return found


def test_a_slower_kernel_is_named_with_both_spreads(tmp_path: Path) -> None:
    found = times(tmp_path, run_of(noisy(1)), run_of(noisy(2, {KERNELS[2]: 3.0})))
    (change,) = found.slower
    assert (change.kernel, change.left.calls, change.right.calls, found.compared) == (KERNELS[2], 11, 11, 5)
    assert change.factor == pytest.approx(3.0, rel=0.05)
    assert change.difference_ns == pytest.approx(11 * 2 * STEADY, rel=0.05)
    assert (found.faster, found.alone, found.refused) == ([], [], [])
    said = "\n".join(time_lines(found, 20))
    assert f"  {KERNELS[2]} of 0/0 forward" in said
    assert "Of 5 launch sites, 1 is slower and 0 faster by more than the spread of their calls." in said
    assert found.steps is not None
    assert found.steps.is_significant
    assert found.steps.factor == pytest.approx(7 / 5, rel=0.05)


def test_a_faster_kernel_is_the_same_the_other_way_round(tmp_path: Path) -> None:
    found = times(tmp_path, run_of(noisy(1, {KERNELS[2]: 3.0})), run_of(noisy(2)))
    assert ([one.kernel for one in found.faster], found.slower) == ([KERNELS[2]], [])


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_equal_runs_differ_in_nothing(tmp_path: Path, seed: int) -> None:
    found = times(tmp_path, run_of(noisy(seed, spread=3.0)), run_of(noisy(seed + 1, spread=3.0)))
    assert found.slower == found.faster == []


def test_a_busy_machine_accuses_no_kernel(tmp_path: Path) -> None:
    found = times(tmp_path, run_of(noisy(1)), run_of(noisy(2, machine=2.0)))
    assert found.slower == found.faster == []
    assert found.common_factor == pytest.approx(2.0, rel=0.05)
    assert "5 of them changed together: in the median the right side takes 2.0" in "\n".join(time_lines(found, 20))


def test_one_long_call_is_no_slower_kernel(tmp_path: Path) -> None:
    def once(kernel: str, number: int) -> int:
        return STEADY * (1000 if number == 7 else 1)

    assert times(tmp_path, run_of(noisy(1)), run_of(once)).slower == []


def test_few_calls_prove_nothing(tmp_path: Path) -> None:
    slow = {KERNELS[0]: 5.0}
    assert times(tmp_path, run_of(noisy(1), calls=4), run_of(noisy(2, slow), calls=4)).compared == 0
    assert times(tmp_path, run_of(noisy(1), calls=6), run_of(noisy(2, slow), calls=6)).slower == []


@pytest.mark.parametrize(("devices", "named"), [(["cpu"], [KERNELS[2]]), (["cpu", "GPU"], [])])
def test_host_times_of_a_gpu_are_not_compared(tmp_path: Path, devices: list[str], named: list[str]) -> None:
    runs = (run_of(noisy(seed, {KERNELS[2]: seed}), kind="extern", devices=devices) for seed in (1, 3))
    assert [one.kernel for one in times(tmp_path, *runs).slower] == named


def test_kernels_of_one_side_and_those_of_another_fusion(tmp_path: Path) -> None:
    nodes = {"cpp_fused_a_5": ["a"], "cpp_fused_b_6": ["b"], "cpp_fused_a_b_7": ["a", "b"], "cpp_fused_new_8": ["new"]}
    left = run_of(noisy(1), [*KERNELS, "cpp_fused_a_5", "cpp_fused_b_6"], nodes=nodes)
    right = run_of(noisy(2), [*KERNELS, "cpp_fused_a_b_7", "cpp_fused_new_8"], nodes=nodes)
    found = times(tmp_path, left, right)
    (refused,) = found.refused
    assert [one.kernel for one in refused.left] == ["cpp_fused_a_5", "cpp_fused_b_6"]
    assert [one.kernel for one in refused.right] == ["cpp_fused_a_b_7"]
    assert [(one.side, one.kernel, one.launches) for one in found.alone] == [("right", "cpp_fused_new_8", 12)]


def test_the_page_and_the_file_show_times(tmp_path: Path) -> None:
    from stepscope.viewer.compare.html import render_html

    sides = run_of(noisy(1)), run_of(noisy(2, {KERNELS[2]: 3.0}))
    paths = [log.write(tmp_path / f"{number}.log") for number, log in enumerate(sides)]
    page = render_html(compare(wanted(str(paths[0])), wanted(str(paths[1]))))
    assert "Slower on the right" in page
    assert page.partition("Slower on the right")[2].count(f'<span class="mono">{KERNELS[2]}</span>') == 1


def test_the_probability_of_ranks_is_that_of_all_arrangements() -> None:
    """The exact distribution of the test is that of all 2**n ways to give the ranks to the sides."""
    left, right = [1, 2, 3, 4, 6, 7], [5, 8, 9, 10, 11, 12]
    every = sorted([*left, *right])
    off = abs(sum(every.index(one) + 1 for one in left) - 39)
    sums = [
        sum(rank for rank, mine in enumerate(sides, 1) if mine)
        for sides in product((0, 1), repeat=12)
        if sum(sides) == 6
    ]
    exact = sum(abs(one - 39) >= off for one in sums) / len(sums)
    assert rank_probability(left, right) == pytest.approx(exact, abs=0.005)
    assert rank_probability([5] * 9, [5] * 9) == 1.0
