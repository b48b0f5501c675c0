"""Decides whether launch sites write -inf intentionally, as masks: many sites at once, and equal ones only once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.mask_sites import NamedSite, kernel_sources, named_sites

MINUS_INFINITY = re.compile(r"-\s*(?:std::numeric_limits<[^<>]*>::infinity\(\)|INFINITY|inf\b)|float\(['\"]-inf")
_MASK_MAKERS = re.compile(
    r"(?:^|[._:/])(?:where|masked_fill|masked_scatter|masked|full|full_like|new_full|scalar_tensor|fill|triu|tril"
    r"|constant_pad|constant_pad_nd|pad|\w*attention\w*|max_pool\w*)_?"
    r"(?:$|[._\d])"
)
_LEAVES_MEMORY = re.compile(r"(?:^|[._:/])(?:empty|empty_like|empty_strided|new_empty)(?:$|[._\d])")


_MOST_AT_ONCE = 10_000
"""Launch sites that are read at once."""


class Masks:
    """The launch sites of a trace that write masks."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.leave_memory: set[int] = set()
        """Launch sites that leave memory as it was, among those that were read."""
        self.make_minus: set[int] = set()
        """Launch sites that write -inf intentionally, among those that were read."""
        self._read: set[int] = set()
        self._by_names: dict[tuple[str | None, ...], tuple[bool, bool]] = {}
        self._by_kernel: dict[int, dict[str, bool]] = {}

    def read(self, sites: Iterable[int]) -> None:
        """Decide about all of these sites."""
        unread = sorted({*sites} - self._read)
        self._read.update(unread)
        for begin in range(0, len(unread), _MOST_AT_ONCE):
            for site in named_sites(self.trace, unread[begin : begin + _MOST_AT_ONCE]):
                self._decide(site)

    def makes(self, site: int, *, positive: bool) -> bool:
        """Return whether a launch writes -inf intentionally and no other infinity, or leaves memory unchanged.
        `positive` tells whether it wrote +inf."""
        self.read([site])
        return site in self.leave_memory or (not positive and site in self.make_minus)

    def _decide(self, site: NamedSite) -> None:
        key = site[1:6]
        if key not in self._by_names:
            names = site.names
            self._by_names[key] = any(map(_LEAVES_MEMORY.search, names)), any(map(_MASK_MAKERS.search, names))
        leaves_memory, is_maker = self._by_names[key]
        if leaves_memory:
            self.leave_memory.add(site.site)
        if is_maker and self._may_have_minus_infinity(site):
            self.make_minus.add(site.site)

    def _may_have_minus_infinity(self, site: NamedSite) -> bool:
        """Return whether the source of a kernel has -inf, or is not known."""
        if site.code is None:
            return True
        if site.code not in self._by_kernel:
            sources = kernel_sources(self.trace, site.code)
            self._by_kernel[site.code] = {name: bool(MINUS_INFINITY.search(text)) for name, text in sources.items()}
        return self._by_kernel[site.code].get(site.kernel, True)
