"""The settings of Inductor that are tried where its layer computes something else."""

from __future__ import annotations

import pytest
from torch._inductor import config

from stepscope.tracer.inductor import numeric_settings


def names() -> list[str]:
    return [name for name, _ in numeric_settings.untried()]


def test_settings_with_another_value_are_tried() -> None:
    assert {"emulate_precision_casts", "deterministic", "max_fusion_size"} <= set(names())
    with numeric_settings.changed("max_fusion_size", 1):
        assert "max_fusion_size" not in names()


@pytest.mark.skipif(not hasattr(config, "numerics"), reason="torch before 2.15 has no setting `numerics`")
def test_a_setting_that_another_one_implies_is_not_tried() -> None:
    assert ("numerics", "strict") in numeric_settings.untried()
    with numeric_settings.changed("numerics", "strict"):
        assert not {"numerics", "emulate_precision_casts", "eager_numerics.division_rounding"} & set(names())
