"""What lies where in a STORE, a folder of Parquet files made by `stepscope ingest`.

    stepscope-store.json          which logs it is meant to hold
    units/000007/manifest.json    written last: what makes a unit whole, and which of its folders counts
    units/000007/ab12cd34/        one try at a unit: `begun`, and a file for each table that has rows

Every file is reached through fsspec, so a STORE can be a local folder, a shared file system or object storage.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.log_files import LogFile, resolve
from stepscope.viewer.store.index import SCHEMA
from stepscope.viewer.store.parquet.mark import MARK

MANIFEST = "manifest.json"
BEGUN = "begun"
STORE_FORMAT = "stepscope-store/1"
UNIT_FORMAT = "stepscope-unit/1"
TABLES = tuple(re.findall(r"^CREATE TABLE (\w+)", SCHEMA, re.MULTILINE))
MOST_UNITS = 1 << 17
ID_BITS = 36
"""A unit's ids begin at its number shifted by so much; with `MOST_UNITS` all stay below 2**53, as JSON needs."""
_FOLDER = re.compile(r"[0-9a-f]{8}")
_SCHEMA_DIGEST = hashlib.sha256(SCHEMA.encode()).hexdigest()


@dataclass(frozen=True)
class TableFile:
    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """One whole unit: the tables of one log."""

    number: int
    """Of the log in the STORE."""
    log: LogFile
    key: str
    """Of the code that read the log."""
    folder: str
    tables: Mapping[str, TableFile]
    plain_bytes: int
    """Of the log without its packing."""
    is_packed: bool = False
    was_read: bool = True
    """False: the log could not be opened, and its tables say so."""
    schema: str = _SCHEMA_DIGEST


@dataclass(frozen=True)
class Store:
    """What a STORE holds."""

    root: Root
    units: list[Manifest]
    """Whole ones, by number."""
    damaged: list[str] = field(default_factory=list)
    """Folders whose manifest cannot be read, or names files that are not there as it says."""
    logs: list[str] = field(default_factory=list)
    """Addresses of the logs it is meant to hold."""

    @property
    def size_bytes(self) -> int:
        return sum(table.size_bytes for unit in self.units for table in unit.tables.values())


class Root:
    """The folder of a STORE, on its file system."""

    def __init__(self, address: str) -> None:
        self.fs, self.path = resolve(address)
        self.address = address

    def unit(self, number: int) -> str:
        return f"{self.path}/units/{number:06d}"

    def table(self, unit: Manifest, table: str) -> str:
        return f"{self.unit(unit.number)}/{unit.folder}/{table}.parquet"

    def begin(self, number: int, folder: str) -> None:
        """Leave a trace of a try at a unit: one that dies is counted by the next."""
        path = f"{self.unit(number)}/{folder}"
        self.fs.makedirs(path, exist_ok=True)
        self.fs.pipe_file(f"{path}/{BEGUN}", b"")

    def tries(self, number: int) -> list[str]:
        """Folders of a unit, also of tries that were never finished."""
        try:
            self.fs.invalidate_cache()
            found = self.fs.ls(self.unit(number), detail=False)
        except FileNotFoundError:
            return []
        names = [path.rstrip("/").rpartition("/")[2] for path in found]
        return [name for name in names if _FOLDER.fullmatch(name)]

    def remove_tries(self, number: int, folders: Sequence[str]) -> None:
        for folder in folders:
            self.fs.rm(f"{self.unit(number)}/{folder}", recursive=True)

    def write_whole(self, path: str, data: bytes, part: str) -> None:
        """Write under the name `part`, then give the file its name: it is never seen half written."""
        self.fs.pipe_file(part, data)
        self.fs.mv(part, path)


def is_store(address: str) -> bool:
    """Whether a STORE lies at `address`."""
    if address == "-":
        return False
    fs, path = resolve(address)
    try:
        return bool(fs.isfile(f"{path}/{MARK}"))
    except OSError:
        return False


def begin_store(root: Root, logs: Sequence[str]) -> None:
    """Make the folder a STORE that is meant to hold `logs`."""
    root.fs.makedirs(root.path, exist_ok=True)
    mark = orjson.dumps({"format": STORE_FORMAT, "logs": list(logs)}, option=orjson.OPT_INDENT_2)
    root.write_whole(f"{root.path}/{MARK}", mark, f"{root.path}/.{MARK}.part")


def read_store(address: str) -> Store:
    """The units of the STORE at `address`. Raises StepscopeError when there is none, or one of another format."""
    root = Root(address)
    fs = root.fs
    try:
        fs.invalidate_cache()
        mark = orjson.loads(fs.cat_file(f"{root.path}/{MARK}"))
        sizes = {path: int(info["size"]) for path, info in fs.find(f"{root.path}/units", detail=True).items()}
        names = [path for path in sizes if path.count("/") == root.path.count("/") + 3 and path.endswith(MANIFEST)]
        texts: Mapping[str, Any] = fs.cat(names, on_error="return") if names else {}
    except (OSError, ValueError) as error:
        raise StepscopeError(f"{address} cannot be read as a STORE: {error}.") from None
    if not isinstance(mark, dict) or mark.get("format") != STORE_FORMAT:
        raise StepscopeError(f"{address} is no STORE that this stepscope reads: make one with `stepscope ingest`.")
    units, damaged = [], []
    for path in sorted(names):
        number = path.split("/")[-2]
        unit = _manifest(texts[path], number)
        if unit is not None and all(
            sizes.get(root.table(unit, table)) == file.size_bytes for table, file in unit.tables.items()
        ):
            units.append(unit)
        else:
            damaged.append(number)
    logs = mark.get("logs")
    return Store(root, units, damaged, [str(log) for log in logs] if isinstance(logs, list) else [])


def check_schema(store: Store) -> None:
    """Raises StepscopeError when units have other tables than this stepscope reads."""
    old = sum(unit.schema != _SCHEMA_DIGEST for unit in store.units)
    if old:
        raise StepscopeError(
            f"{old} of {len(store.units)} logs in {store.root.address} were read by another version of stepscope: "
            "run `stepscope ingest` again."
        )


def read_manifest(root: Root, number: int) -> Manifest | None:
    """The manifest of a unit; None when there is none, or one that cannot be read."""
    try:
        return _manifest(root.fs.cat_file(f"{root.unit(number)}/{MANIFEST}"), f"{number:06d}")
    except OSError:
        return None


def write_manifest(root: Root, unit: Manifest) -> None:
    """What makes the unit whole."""
    folder = root.unit(unit.number)
    text = orjson.dumps({"format": UNIT_FORMAT, **asdict(unit)}, option=orjson.OPT_INDENT_2)
    root.write_whole(f"{folder}/{MANIFEST}", text, f"{folder}/{unit.folder}/{MANIFEST}")


def _manifest(text: Any, number: str) -> Manifest | None:
    """The manifest in `text`, None when it is none. A STORE may come from anywhere: names in it are checked."""
    try:
        value = orjson.loads(text)
        if value.pop("format") != UNIT_FORMAT:
            return None
        tables = {str(name): TableFile(**file) for name, file in value.pop("tables").items()}
        unit = Manifest(log=LogFile(**value.pop("log")), tables=tables, **value)
        ints = [unit.number, unit.log.size_bytes, *(n for t in tables.values() for n in (t.rows, t.size_bytes))]
        ints.append(unit.plain_bytes)
        sound = (
            all(type(one) is int and one >= 0 for one in ints)
            and f"{unit.number:06d}" == number
            and unit.number < MOST_UNITS
            and isinstance(unit.log.address, str)
            and _FOLDER.fullmatch(unit.folder)
            and all(re.fullmatch(r"\w{1,100}", name) for name in tables)
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return unit if sound else None
