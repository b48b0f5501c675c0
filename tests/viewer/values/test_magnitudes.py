"""The map of magnitudes: its rows by kind, its cells, how steps are joined, and the finding that leads to it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.graphs.rows import ProgramName
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.page import magnitudes_csv, magnitudes_page, values_page
from stepscope.viewer.values.queries import magnitudes
from stepscope.viewer.values.queries.magnitudes import magnitude_map, place_of
from stepscope.viewer.values.rows import HEALTH
from stepscope.viewer.web.addresses import NotThere, Request
from tests.logs import synthetic
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import FINE, NAN, Program, Stat, ValueLog, attention

Open = Callable[[LogBuilder | bytes], Trace]


def of_size(largest: float) -> Stat:
    return Stat(min=-largest, max=largest, mean=0.0, std=largest / 2)


def called(*programs: Program, **values: Stat) -> LogBuilder:
    log = ValueLog(*programs)
    for program in programs:
        log.call(program, 0, None, **values)
    return log.end()


def test_outputs_have_a_number_and_the_worst_class_in_each_step(opened: Open) -> None:
    program = attention()
    log = ValueLog(program)
    for step in range(3):
        log.call(program, step, buf1=NAN if step == 1 else of_size(10.0**step))
    found = magnitude_map(opened(log.end()), 0, "outputs", "largest")
    finite, nan = HEALTH.index("finite"), HEALTH.index("nan")
    assert [row.buffer for row in found.rows] == ["buf0", "buf1", "buf2"]
    assert found.cells[1] == [finite, nan, finite]
    assert (found.numbers[1][0], found.numbers[1][2]) == (1.0, 100.0)
    assert (found.launches[1], found.launch_steps[1]) == ([1, 4, 7], [0, 1, 2])


def test_joined_steps_show_the_largest_number_and_its_launch(opened: Open) -> None:
    program = Program().launch("k0", ["x"], ["buf0"])
    log = ValueLog(program)
    for step in range(10):
        log.call(program, step, buf0=of_size(50.0 if step == 5 else 1.0))
    trace = opened(log.end())
    found = magnitude_map(trace, 0, "outputs", "largest", most_columns=4)
    assert (found.steps, found.last_steps, found.joined_steps) == ([0, 3, 6, 9], [2, 5, 8, 9], [3, 3, 3, 1])
    assert found.numbers == [[1.0, 50.0, 1.0, 1.0]]
    assert (found.launches[0][1], found.launch_steps[0][1]) == (5, 5)
    window = magnitude_map(trace, 0, "outputs", "largest", first_step=4, last_step=6)
    assert (window.steps, window.numbers, window.total_steps) == ([4, 5, 6], [[1.0, 50.0, 1.0]], 10)


def test_a_window_of_rows_has_the_row_that_the_address_names_in_its_middle(opened: Open) -> None:
    program = Program()
    for number in range(20):
        program.launch(f"k{number}", ["x"], [f"buf{number}"])
    trace = opened(called(program))
    sites = [row.site for row in magnitude_map(trace, 0, "outputs", "largest").rows]
    asked = Request({}, {"log": "0", "site": str(sites[12]), "argument": "1"})
    page = magnitudes_page(trace, asked, most_rows=6)
    assert (page.map.first_row, page.chosen) == (9, 3)
    assert page.map.rows[3].buffer == "buf12"
    assert place_of(trace, 0, sites[12], 7) is None


def test_tensors_are_parameters_or_gradients_as_the_program_names_them(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Program().launch("k0", ["primals_2", "x"], ["buf0"]).launch("k1", ["primals_1", "primals_3"], ["buf1"])
    backward = Program(1, "backward").launch("k2", ["buf1"], ["buf2"]).launch("k3", ["buf1"], ["buf3"])
    names = {
        "primals_1": ProgramName("self.b.bias", "parameter"),
        "primals_2": ProgramName("self.a.weight", "parameter"),
        "primals_3": ProgramName("self.a.bias", "parameter"),
        "x": ProgramName("x", "input"),
        "buf2": ProgramName("gradient of self.b.bias", "gradient"),
        "buf3": ProgramName("gradient of self.a.weight", "gradient"),
    }
    monkeypatch.setattr(magnitudes, "program_names", lambda _trace, _graph: names)
    trace = opened(called(forward, backward))
    rows = {kind: [row.name for row in magnitude_map(trace, 0, kind, "l2").rows] for kind in magnitudes.KINDS}
    assert rows["parameters"] == ["self.a.weight", "self.a.bias", "self.b.bias"], "one module after the other"
    assert rows["gradients"] == ["self.a.weight", "self.b.bias"], "in the order of the parameters"
    assert [name.rpartition(" ")[2] for name in rows["outputs"]] == ["buf0", "buf1"], "an input is no output"


def test_a_finding_about_growth_leads_to_the_map_of_its_tensor(opened: Open) -> None:
    program = Program().launch("extern_kernels.mm", ["x"], ["buf0"], aten=["aten.mm"])
    log = ValueLog(program)
    for step in range(8):
        log.call(program, 10 + step, x=FINE, buf0=of_size(10.0**step))
    trace = opened(log.end())
    (finding,) = [one for one in all_findings(trace) if one.kind == "exploding_values"]
    (link,) = [one for one in finding.links if one.page.startswith("/magnitudes?")]
    query = dict(part.split("=") for part in urlsplit(link.page).query.split("&"))
    page = magnitudes_page(trace, Request({}, query))
    assert page.chosen is not None
    assert page.map.rows[page.chosen].buffer == "buf0"
    assert page.chosen_step == finding.step


def test_the_map_is_saved_as_csv(opened: Open) -> None:
    program = Program().launch("k0", ["x"], ["buf0"])
    trace = opened(called(program, buf0=of_size(3.0)))
    content = magnitudes_csv(trace, Request({}, {"log": "0"})).content
    assert isinstance(content, bytes)
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert [(row["first_step"], row["largest"], row["worst"], row["launch"]) for row in rows] == [
        ("0", "3.0", "finite", "0")
    ]


@pytest.mark.parametrize("query", [{"of": "weights"}, {"statistic": "median"}, {"log": "9"}])
def test_an_unknown_map_is_not_there(opened: Open, query: dict[str, str]) -> None:
    program = Program().launch("k0", ["x"], ["buf0"])
    trace = opened(called(program))
    with pytest.raises(NotThere):
        magnitudes_page(trace, Request({}, query))


def test_without_a_log_the_first_one_with_values_is_shown(tmp_path: Path) -> None:
    program = Program().launch("k0", ["x"], ["buf0"])
    synthetic.recorded().write(tmp_path / "a.log")
    called(program).write(tmp_path / "b.log")
    with open_trace(tmp_path) as trace:
        assert [magnitudes_page(trace, Request({}, {})).map.log, values_page(trace, Request({}, {})).heat.log] == [1, 1]
