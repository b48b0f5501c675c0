"""Small programs with real bugs: the guilty line is on the overview or one click away."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests import python_processes
from tests.browser.conftest import Visit, serving
from tests.browser.walk import clicks_to

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"
GUILTY = {
    "01_fp16_overflow_attention": [3, 5],
    "03_log0_where_backward_nan": [2],
    "06_inplace_alias_198270": [3],
    "09b_retained_list": [19],
    "11_recompiles": [15, 22, 26],
    "13_graph_break_liveness_122512": [12],
    "17_nan_inside_one_fused_kernel": [7],
}
WARM = "16_warm_cache_hides_counters"

pytest.importorskip("torch")
if not CASES.is_dir():
    pytest.skip("the programs with real bugs are not here", allow_module_level=True)


def record(case: str, folder: Path) -> Trace:
    command = [sys.executable, "-m", "stepscope", "run", "--level", "values", "--out", str(folder), "--"]
    done = python_processes.run([*command, CASES / f"{case}.py"], timeout=500)
    assert done.returncode == 0, done.stderr
    return open_trace(folder)


@pytest.mark.parametrize("case", GUILTY)
def test_the_guilty_line_is_at_most_one_click_away(visit: Visit, tmp_path: Path, case: str) -> None:
    with record(case, tmp_path) as trace, serving(trace) as root:
        clicks = {line: clicks_to(visit, root, f"{case}.py:{line}") for line in GUILTY[case]}
        visit.page.goto("about:blank")
    assert None not in clicks.values(), clicks


def test_what_a_warm_cache_hides_is_called_not_recorded(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    record(WARM, tmp_path / "cold").close()
    with record(WARM, tmp_path / "warm") as trace, serving(trace) as root:
        page = visit.page
        page.goto(root)
        assert page.locator(".finding").count() == 0
        page.goto(f"{root}/compile/0_0")
        stages = page.locator(".stage-tabs a", has_text="–")
        assert stages.count() > 0
        stages.first.click()
        visit.settle()
        assert page.get_by_text("not recorded").locator("visible=true").count() > 0
        visit.page.goto("about:blank")
