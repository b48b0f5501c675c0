"""The JSON twin of every page, as a FastAPI application that describes itself at /openapi.json.

A twin is made from the same typed context as its page. FastAPI is imported here and nowhere else: that takes
longer than opening a log may, so the first page does not wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fastapi import FastAPI, Request, Response

from stepscope.tracer._version import __version__
from stepscope.viewer.web import pages
from stepscope.viewer.web.addresses import Twin
from stepscope.viewer.web.parameters import parameters

if TYPE_CHECKING:
    from stepscope.viewer.web.dashboard import Dashboard


@dataclass(frozen=True)
class Refusal:
    """Why there is no answer."""

    ok: Literal[False]
    error: str
    """One sentence."""


_REFUSALS: dict[int | str, dict[str, Any]] = {
    404: {"model": Refusal, "description": "The trace holds nothing of that name or number, or a value cannot be."},
    422: {"model": Refusal, "description": "A log cannot be read any more."},
    500: {"model": Refusal, "description": "The answer could not be made."},
}


def create_api(dashboard: Dashboard) -> FastAPI:
    """The twins of `dashboard`'s pages."""
    api = FastAPI(
        title="stepscope",
        version=__version__,
        description="What a trace shows, page by page. Sizes in bytes, times in ns, unknown is null.",
        docs_url=None,
        redoc_url=None,
        exception_handlers=dashboard.exception_handlers(),
    )
    for twin in pages.TWINS:
        _add(api, dashboard, twin)
    return api


def _add(api: FastAPI, dashboard: Dashboard, twin: Twin) -> None:
    def endpoint(request: Request) -> Response:
        return dashboard.twin(twin.build, request)

    api.add_api_route(
        twin.path,
        endpoint,
        name=twin.path,
        response_model=None,
        response_class=Response,
        responses={200: {"model": twin.context}, **_REFUSALS},
        openapi_extra={"parameters": parameters(twin)},
    )
