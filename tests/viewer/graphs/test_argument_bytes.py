"""Bytes of the tensor arguments of a launch."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.viewer.graphs.queries.argument_bytes import argument_bytes, tensor_bytes
from stepscope.viewer.graphs.rows import ArgumentRow


def tensor(size: Any, stride: Any = None, dtype: str | None = "float32") -> dict[str, Any]:
    return {"size": size, "stride": stride, "dtype": dtype}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (tensor([4, 8], [8, 1]), 128),
        (tensor([4, 8], [0, 1]), 32),  # an expanded tensor has one row
        (tensor([], []), 4),
        (tensor([0, 8], [8, 1]), 0),
        (tensor([3], [1], "bfloat16"), 6),
        (tensor([3], [1], "bool"), 3),
        (tensor([4], None), 16),
        (tensor(None), None),
        (tensor(["s0", 8], [8, 1]), None),
        (tensor([4], [1], None), None),
    ],
)
def test_bytes_of_the_distinct_elements(found: dict[str, Any], expected: int | None) -> None:
    assert tensor_bytes(found) == expected


def test_what_is_updated_is_read_and_written() -> None:
    rows = [
        ArgumentRow(index, "x", role, None, None, [tensor([size], [1])])
        for index, (role, size) in enumerate([("in", 1), ("inout", 10), ("out", 100)])
    ]
    assert argument_bytes(rows) == (44, 440)
    unseen = ArgumentRow(3, "y", "in", None, None, [])
    assert argument_bytes([*rows, unseen]) == (None, 440)
    assert argument_bytes([]) == (0, 0)
