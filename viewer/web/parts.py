"""Parts of pages and answers that fail alone: the rest stands, and says what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from stepscope.viewer.errors import StepscopeError, reason_of
from stepscope.viewer.web.addresses import Elsewhere, NotThere

P = ParamSpec("P")
T = TypeVar("T")
_FAILED: ContextVar[list[str] | None] = ContextVar("failed", default=None)


@contextmanager
def failures() -> Iterator[list[str]]:
    """Sentences about the parts that fail inside."""
    found: list[str] = []
    token = _FAILED.set(found)
    try:
        yield found
    finally:
        _FAILED.reset(token)


def tell(text: str) -> None:
    """Say beside the page what is missing of it."""
    found = _FAILED.get()
    if found is not None:
        found.append(text)


def part(what: str, otherwise: T, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `ask` answers; where it fails, `otherwise`, and a sentence that says so."""
    try:
        return ask(*args, **kwargs)
    except (Elsewhere, NotThere, StepscopeError):
        raise
    except Exception as error:
        found = _FAILED.get()
        if found is None:
            raise
        found.append(f"{what} could not be shown ({reason_of(error)}).")
        return otherwise
