"""Isolates failures of parts of pages and answers, so that the rest is shown with a note of what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from stepscope.viewer.errors import StepscopeError, reason_of
from stepscope.viewer.web.addresses import MovedTo, NotThere

P = ParamSpec("P")
T = TypeVar("T")
_FAILED: ContextVar[list[str] | None] = ContextVar("failed", default=None)


@contextmanager
def failures() -> Iterator[list[str]]:
    """Collect sentences about the parts that fail inside this context."""
    found: list[str] = []
    token = _FAILED.set(found)
    try:
        yield found
    finally:
        _FAILED.reset(token)


def tell(text: str) -> None:
    """Add a sentence about what is missing from the page."""
    found = _FAILED.get()
    if found is not None:
        found.append(text)


def part(what: str, otherwise: T, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `ask`; if it fails, return `otherwise` and add a sentence that says so."""
    try:
        return ask(*args, **kwargs)
    except (MovedTo, NotThere, StepscopeError):
        raise
    except Exception as error:
        found = _FAILED.get()
        if found is None:
            raise
        found.append(f"{what} could not be shown ({reason_of(error)}).")
        return otherwise
