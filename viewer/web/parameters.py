"""The parameters of addresses, in paths and queries, and their descriptions for OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AddressParameter:
    """A parameter in the path or the query of an address."""

    name: str
    description: str
    schema: Mapping[str, Any]
    required: bool = False


def number(name: str, description: str, least: int | None = 0, *, required: bool = False) -> AddressParameter:
    schema = {"type": "integer"} if least is None else {"type": "integer", "minimum": least}
    return AddressParameter(name, description, schema, required)


def text(name: str, description: str) -> AddressParameter:
    return AddressParameter(name, description, {"type": "string"})


def one_of(name: str, values: Sequence[str], description: str) -> AddressParameter:
    return AddressParameter(name, description, {"type": "string", "enum": [*values]})


def matching(name: str, pattern: str, description: str) -> AddressParameter:
    return AddressParameter(name, description, {"type": "string", "pattern": f"^{pattern}$"})


ARGUMENT = number("argument", "The argument of a launch site, counted from 0.", required=True)
BUFFER = text("buffer", "The name of the buffer, with ~ in place of % where it is encoded.")
COMPILE_ID = text("compile_id", "A compile; a path has _ in place of /, as in 0_0.")
DEVICE = text("device", "Only storages of this device.")
END_NS = number("end_ns", "The end of the window.", None)
FIRST_STEP = number("first_step", "The first step of the window.")
GRAPH = number("graph", "A graph by its id in the index.")
KERNEL = text("kernel", "The name of the kernel, with ~ in place of % where it is encoded.")
LAST_STEP = number("last_step", "The last step of the window.")
LAUNCH = number("launch", "A launch by its id in the index.")
LOG = number("log", "A log by its number in the trace, counted from 0.")
OFFSET = number("offset", "The number of rows to pass over.")
RECORD = number("record", "A record by its id in the index.")
RECORD_KIND = text("kind", "Only records of this event, or of this artifact name.")
SITE = number("site", "A launch site by its id in the index.")
START_NS = number("start_ns", "The beginning of the window.", None)
STEP = number("step", "A step by its number in the log, counted from 0.")
TEXT = text("text", "Only rows that hold this text.")
WIDTH = number("width", "The number of bins in the answer: about one for each pixel.", 1)
