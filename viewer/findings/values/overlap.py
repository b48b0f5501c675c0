"""Decides whether two views of the same memory share bytes."""

from __future__ import annotations

from math import prod

from stepscope.viewer.graphs.queries.argument_facts import View
from stepscope.viewer.kernel_source.access_bounds import item_bytes

_MOST_ELEMENTS = 1 << 20


def do_overlap(a: View, b: View, *, if_unknown: bool = True) -> bool:
    """Return whether two views overlap, or `if_unknown` if one was never seen at run time, or if views that leave gaps
    have other dtypes or more than a million elements."""
    spans = []
    for view in (a, b):
        if view.dtype is None or view.size is None or view.stride is None or view.offset is None:
            return if_unknown
        if len(view.size) != len(view.stride):
            return if_unknown
        if prod(view.size) == 0:
            return False
        spans.append(_span(view.size, view.stride, view.offset, item_bytes(view.dtype)))
    (first_a, last_a), (first_b, last_b) = spans
    if last_a <= first_b or last_b <= first_a:
        return False
    sizes = [prod(view.size or []) for view in (a, b)]
    widths = [item_bytes(view.dtype or "") for view in (a, b)]
    are_dense = [last - first for first, last in spans] == [n * width for n, width in zip(sizes, widths, strict=True)]
    if a.form == b.form or are_dense:
        return True
    if a.dtype != b.dtype or max(sizes) > _MOST_ELEMENTS:
        return if_unknown
    return _share_elements(a, b)


def _span(size: list[int], stride: list[int], offset: int, width: int) -> tuple[int, int]:
    low = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True) if s < 0)
    high = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True) if s > 0)
    return low * width, (high + 1) * width


def _share_elements(a: View, b: View) -> bool:
    import numpy as np  # not needed by most traces

    def elements(view: View) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        found = np.array([view.offset or 0], dtype=np.int64)
        for length, stride in zip(view.size or [], view.stride or [], strict=True):
            found = np.unique(np.add.outer(found, np.arange(length) * stride))
        return found

    return bool(np.intersect1d(elements(a), elements(b), assume_unique=True).size)
