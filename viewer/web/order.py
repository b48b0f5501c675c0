"""The order of the rows of a list whose pages hold only some of them: the server sorts them all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from stepscope.viewer.web.addresses import NotThere, Request
from stepscope.viewer.web.parameters import AddressParameter, one_of

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Order:
    sort: str | None
    """The column by which rows are sorted; None for the order in which the list is made."""
    reverse: bool

    @property
    def query(self) -> dict[str, str | None]:
        """Return the parameters that name this order in an address."""
        return {"sort": self.sort, "order": "down" if self.reverse else None}


def order_of(request: Request, sorts: Collection[str], rows: str) -> Order:
    """Return the order that an address names. Raises NotThere if `rows` have none of this name."""
    sort = request.text("sort")
    if sort is not None and sort not in sorts:
        raise NotThere(f"{rows} cannot be sorted by “{sort[:40]}”; use one of {', '.join(sorts)}.")
    return Order(sort, sort is not None and request.text("order") == "down")


def in_order(rows: Iterable[_Row], keys: Mapping[str, Callable[[_Row], Any]], order: Order) -> list[_Row]:
    """Return rows in an order; those whose key is None come last in both directions."""
    if order.sort is None:
        return [*rows]
    keyed = [(keys[order.sort](row), row) for row in rows]
    known = sorted((one for one in keyed if one[0] is not None), key=lambda one: one[0], reverse=order.reverse)
    return [row for _, row in known] + [row for key, row in keyed if key is None]


def order_parameters(sorts: Collection[str]) -> tuple[AddressParameter, AddressParameter]:
    """Return the parameters of an address that sort a list."""
    return (
        one_of("sort", [*sorts], "The column by which the rows are sorted."),
        one_of("order", ["down"], "Reverse the order of the rows."),
    )
