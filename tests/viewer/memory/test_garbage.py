"""Storages that wait for the garbage collector."""

from __future__ import annotations

from stepscope.viewer.memory.queries.garbage import usual_holders


def test_a_variable_that_holds_only_the_newest_storage_is_no_part_of_the_cycle() -> None:
    images = "attribute images of Sample"
    assert usual_holders([["fake of __main__", images], [images], [images]]) == [images]
    assert usual_holders([["fake of __main__", images]]) == ["fake of __main__", images]
    assert usual_holders([[], []]) == []
