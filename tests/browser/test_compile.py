"""The pages of compiles in a real browser: the trie, stages, guards, and the three panes of provenance."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from stepscope.viewer.store.open import open_trace
from tests.browser.conftest import Visit, serving
from tests.logs import compile_logs

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LAUNCH = compile_logs.CODE.split("\n").index("    triton_poi_fused_add_relu_0.run(buf0, 4, stream=stream0)") + 1
RELU = next(n for n, line in enumerate(compile_logs.POST_GRAD.split("\n"), 1) if line.strip().startswith("relu:"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = compile_logs.run().write(tmp_path_factory.mktemp("compiles") / "run.log")
    with open_trace(log) as trace, serving(trace) as where:
        yield where


def lit(visit: Visit, pane: str) -> Locator:
    return visit.page.locator(f'.pane[data-pane="{pane}"] .line.lit')


def expect_lit(visit: Visit, pane: str, names: list[str]) -> None:
    lines = lit(visit, pane)
    expect(lines).to_have_count(len(names))
    for place, name in enumerate(names):
        expect(lines.nth(place)).to_have_id(name)


def test_from_the_trie_to_a_stage_and_a_guard(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/compile")
    forward = page.locator(".trie .leaf", has_text="forward")
    expect(forward.locator(".chip")).to_have_count(3)
    page.locator(".trie > li > details > summary").first.click(position={"x": 3, "y": 6})
    expect(forward).to_be_hidden()
    page.locator(".trie > li > details > summary").first.click(position={"x": 3, "y": 6})
    forward.locator(".chip", has_text="0/0").click()
    page.wait_for_url("**/compile/0_0?log=0")
    page.locator(".stage-tabs a", has_text="Output code").click()
    page.locator(".stage-tabs a[aria-current]", has_text="Output code").wait_for()
    page.locator(".stage-graphs a", has_text="backward").click()
    page.locator(".stage-view .line", has_text="0_backward").wait_for()
    page.locator(".guards .leaf", has_text="EQUALS_MATCH").get_by_role("link", name="0/2").click()
    page.wait_for_url("**/compile/0_2?log=0#recompiled")
    page.locator("#recompiled").get_by_role("link", name="0/0").click()
    page.wait_for_url("**/compile/0_0?log=0#failed")
    expect(page.locator("#failed")).to_be_visible()


def test_going_back_shows_the_filters_of_the_address(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/records")
    kind, name = page.locator("main select[name=kind]"), page.locator("main input[name=text]")
    kind.select_option("dynamo_output_graph")
    name.fill("graph")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/records?text=graph&kind=dynamo_output_graph**")
    expect(kind).to_have_value("dynamo_output_graph")
    expect(name).to_have_value("graph")
    page.go_back()
    expect(page).to_have_url(f"{served}/records")
    expect(kind).to_have_value("")
    expect(name).to_have_value("")


def test_a_click_lights_up_what_belongs_together(visit: Visit, served: str) -> None:
    page = visit.page
    page.set_viewport_size({"width": 1440, "height": 520})
    page.goto(f"{served}/compile/0_0/provenance")
    page.locator(f"#post-{RELU}").click()
    expect_lit(visit, "post", [f"post-{RELU}"])
    expect_lit(visit, "pre", ["pre-10"])
    expect(lit(visit, "code").and_(page.locator(f"#code-{LAUNCH}"))).to_have_count(1)
    expect(page).to_have_url(re.compile(f"line=post-{RELU}$"))
    page.locator("#related").get_by_role("link", name="triton_poi_fused_add_relu_0:2").wait_for()
    expect(page.locator(f"#code-{LAUNCH}")).to_be_in_viewport()
    box, code = page.locator(f"#code-{LAUNCH}").bounding_box(), page.locator("[data-pane=code] .code").bounding_box()
    assert box
    assert code
    assert code["y"] <= box["y"] < code["y"] + code["height"]
    page.reload()
    page.locator(f"#code-{LAUNCH}.lit").wait_for()


def test_keys_go_through_the_panes(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(f"{served}/compile/0_0/provenance?line=pre-10")
    page.locator("#pre-10.current").wait_for()
    page.keyboard.press("ArrowRight")
    page.locator(f"#post-{RELU}.current").wait_for()
    page.keyboard.press("ArrowDown")
    page.locator(f"#post-{RELU + 1}.current").wait_for()
    page.keyboard.press("ArrowRight")
    page.locator(f"#code-{LAUNCH}.current").wait_for()
    expect_lit(visit, "post", [f"post-{RELU}", f"post-{RELU + 1}"])
    page.keyboard.press("Escape")
    expect(page.locator(".line.lit, .line.current")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("line="))
