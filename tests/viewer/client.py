"""Asks the dashboard without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import httpx

from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.app import create_app
from stepscope.viewer.web.follow import Current


class Client:
    def __init__(self, trace: Trace | Current) -> None:
        self._app = create_app(trace)

    def get(
        self,
        path: str,
        *,
        method: str = "GET",
        host: str = "127.0.0.1:8686",
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8686") as client:
                return await client.request(method, path, headers={**headers, "host": host})

        # In a thread of its own: where a browser test ran before, this one has a running event loop.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(ask())).result()
