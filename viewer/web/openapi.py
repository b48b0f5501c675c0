"""Builds /openapi.json, which describes the JSON twins of all pages from the types of their contexts.

FastAPI is imported only here, on the first request of the description, because importing it is slow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from fastapi import FastAPI, Response

from stepscope.tracer._version import __version__
from stepscope.viewer.web import registry
from stepscope.viewer.web.addresses import Twin


@dataclass(frozen=True)
class Refusal:
    """An answer that reports an error."""

    ok: Literal[False]
    error: str
    """Sentence that describes the error."""


_REFUSALS: dict[int | str, dict[str, Any]] = {
    404: {"model": Refusal, "description": "The trace contains nothing of that name or number, or a value is invalid."},
    422: {"model": Refusal, "description": "A log cannot be read any more."},
    500: {"model": Refusal, "description": "The answer could not be created."},
}


@cache
def description() -> dict[str, Any]:
    """Return the OpenAPI description of every twin."""
    api = FastAPI(
        title="stepscope",
        version=__version__,
        description="What a trace shows, page by page. Sizes in bytes, times in ns, unknown is null.",
    )
    for twin in registry.twins():
        api.add_api_route(
            twin.path,
            _answered_elsewhere,
            name=twin.path,
            response_model=None,
            response_class=Response,
            responses={200: {"model": twin.context}, **_REFUSALS},
            openapi_extra={"parameters": _parameters(twin)},
        )
    return api.openapi()


def _answered_elsewhere() -> Response:
    raise NotImplementedError


def _parameters(twin: Twin) -> list[dict[str, Any]]:
    in_path = re.findall(r"\{(\w+)\}", twin.path)
    return [
        {
            "name": parameter.name,
            "in": "path" if parameter.name in in_path else "query",
            "required": parameter.required or parameter.name in in_path,
            "schema": parameter.schema,
            "description": parameter.description,
        }
        for parameter in twin.parameters
    ]
