"""Builds HTTP answers and sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from stepscope.viewer.web import assets

if TYPE_CHECKING:
    from starlette.types import Send

    from stepscope.viewer.web.addresses import File

Headers = Sequence[tuple[bytes, bytes]]
NOT_MODIFIED = 304
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Answer:
    body: bytes | IO[bytes]
    """Bytes, or a file that is sent in pieces and closed."""
    content_type: str
    status: int = 200
    headers: Headers = ()
    is_whole: bool = True
    """False if a part of it failed, which may not fail again."""

    async def send(self, send: Send) -> None:
        headers = [(b"content-type", self.content_type.encode())] if self.content_type else []
        if isinstance(self.body, bytes) and self.status != NOT_MODIFIED:
            headers.append((b"content-length", str(len(self.body)).encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": [*headers, *self.headers]})
        if isinstance(self.body, bytes):
            await send({"type": "http.response.body", "body": self.body})
            return
        with self.body as file:
            while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def html(text: str, status: int = 200, failed: Sequence[str] = ()) -> Answer:
    return Answer(text.encode(), "text/html; charset=utf-8", status, is_whole=not failed)


def tagged(answer: Answer) -> Answer:
    """Return an answer with the version of its content, by which a browser asks whether what it has is current."""
    assert isinstance(answer.body, bytes)
    return replace(answer, headers=[*answer.headers, (b"etag", f'"{assets.version(answer.body)}"'.encode())])


def unless_known(answer: Answer, known_versions: bytes) -> Answer:
    """Return an answer without its body if the browser has that version."""
    tag = next((value for name, value in answer.headers if name == b"etag"), None)
    if tag is None or tag not in known_versions:
        return answer
    return replace(answer, body=b"", status=NOT_MODIFIED)


def data(value: Any, status: int = 200, failed: Sequence[str] = ()) -> Answer:
    """Return a JSON answer; sentences in `failed` about missing parts are added under `not_shown`."""
    body = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    if failed and body.endswith(b"}"):
        body = b'%s%s"not_shown":%s}' % (body[:-1], b"," if len(body) > 2 else b"", orjson.dumps([*failed]))
    return Answer(body, "application/json", status, is_whole=not failed)


def redirect(address: str, status: int = 303) -> Answer:
    return Answer(b"", "", status, [(b"location", quote(address, safe=":/%#?=@[]!$&'()*+,;").encode())])


def download(file: File) -> Answer:
    charset = "; charset=utf-8" if file.content_type.startswith("text/") else ""
    headers = [(name.encode(), value.encode()) for name, value in file.headers.items()]
    headers.append((b"content-disposition", f'attachment; filename="{file.name}"'.encode()))
    return Answer(file.content, file.content_type + charset, file.status, headers)


def asset(name: str, asked_version: str | None) -> Answer | None:
    """Return a script or a style sheet, or None if there is no such file.

    A browser may cache it for good if the address has the version of its content, and must revalidate it otherwise."""
    try:
        content = assets.content(name)
    except KeyError:
        return None
    version = assets.version(content)
    kept = b"public, max-age=31536000, immutable" if asked_version == version else b"no-cache"
    headers = [(b"cache-control", kept), (b"etag", f'"{version}"'.encode())]
    content_type = assets.CONTENT_TYPES[PurePosixPath(name).suffix]
    return Answer(content, content_type, headers=headers)
