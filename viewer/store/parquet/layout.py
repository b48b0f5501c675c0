"""Reads and writes the parts of a STORE, a folder of Parquet files created by `stepscope ingest`.

    stepscope-store.json          the logs that it should contain
    units/000007/manifest.json    written last: it completes the log's tables and names the folder that counts
    units/000007/ab12cd34/        one try at a log: `begun`, and a file for each table that has rows

Every file is reached through fsspec, so a STORE can be a local folder, a shared file system or object storage.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from glob import escape
from typing import Any

import orjson

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.log_files import LogFile, resolve
from stepscope.viewer.store.index import SCHEMA
from stepscope.viewer.store.parquet.store_marker import MARK

MANIFEST = "manifest.json"
BEGUN = "begun"
STORE_FORMAT = "stepscope-store/1"
UNIT_FORMAT = "stepscope-unit/1"
TABLES = tuple(re.findall(r"^CREATE TABLE (\w+)", SCHEMA, re.MULTILINE))
MOST_UNITS = 1 << 17
ID_BITS = 36
"""Ids of a log's rows begin at its number shifted left by these bits; all are below 2**53, as JSON needs."""
_FOLDER = re.compile(r"[0-9a-f]{8}")
_SCHEMA_DIGEST = hashlib.sha256(SCHEMA.encode()).hexdigest()


@dataclass(frozen=True)
class TableFile:
    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The complete tables of one log."""

    number: int
    """Number of the log in the STORE."""
    log: LogFile
    key: str
    """Version of the code that read the log."""
    folder: str
    tables: Mapping[str, TableFile]
    plain_bytes: int
    """Uncompressed size of the log."""
    is_packed: bool = False
    was_read: bool = True
    """False if the log could not be opened, which its tables report."""
    schema: str = _SCHEMA_DIGEST


@dataclass(frozen=True)
class Store:
    """The contents of a STORE."""

    root: Root
    manifests: list[Manifest]
    """Complete manifests by number."""
    damaged: list[str] = field(default_factory=list)
    """Folders whose manifest cannot be read or does not match the files."""
    logs: list[str] = field(default_factory=list)
    """Addresses of the logs that it should contain."""

    @property
    def size_bytes(self) -> int:
        return sum(table.size_bytes for manifest in self.manifests for table in manifest.tables.values())


class Root:
    """The folder of a STORE, on its file system."""

    def __init__(self, address: str) -> None:
        self.fs, self.path = resolve(address)
        self.address = address

    def log_folder(self, number: int) -> str:
        return f"{self.path}/units/{number:06d}"

    def table(self, manifest: Manifest, table: str) -> str:
        return f"{self.log_folder(manifest.number)}/{manifest.folder}/{table}.parquet"

    def begin(self, number: int, folder: str) -> None:
        """Mark the beginning of a try at a log, so that the next try can count one that died."""
        path = f"{self.log_folder(number)}/{folder}"
        self.fs.makedirs(path, exist_ok=True)
        self.fs.pipe_file(f"{path}/{BEGUN}", b"")

    def tries(self, number: int) -> list[str]:
        """Return the folders of a log, including those of tries that were never finished."""
        try:
            self.fs.invalidate_cache()
            found = self.fs.ls(self.log_folder(number), detail=False)
        except FileNotFoundError:
            return []
        names = [path.rstrip("/").rpartition("/")[2] for path in found]
        return [name for name in names if _FOLDER.fullmatch(name)]

    def remove_tries(self, number: int, folders: Sequence[str]) -> None:
        for folder in folders:
            self.fs.rm(f"{self.log_folder(number)}/{folder}", recursive=True)

    def write_whole(self, path: str, data: bytes, part: str) -> None:
        """Write under the name `part`, then rename the file, so that it is never seen half written."""
        self.fs.pipe_file(part, data)
        self.fs.mv(part, path)


def is_store(address: str) -> bool:
    """Return whether there is a STORE at `address`."""
    if address == "-":
        return False
    fs, path = resolve(address)
    try:
        return bool(fs.isfile(f"{path}/{MARK}"))
    except OSError:
        return False


def begin_store(root: Root, logs: Sequence[str]) -> None:
    """Make the folder a STORE that should contain `logs`."""
    root.fs.makedirs(root.path, exist_ok=True)
    mark = orjson.dumps({"format": STORE_FORMAT, "logs": list(logs)}, option=orjson.OPT_INDENT_2)
    root.write_whole(f"{root.path}/{MARK}", mark, f"{root.path}/.{MARK}.part")


def read_store(address: str) -> Store:
    """Read the STORE at `address`. Raises StepscopeError if there is none or it has another format."""
    root = Root(address)
    fs = root.fs
    try:
        fs.invalidate_cache()
        mark = orjson.loads(fs.cat_file(f"{root.path}/{MARK}"))
        sizes = {path: int(info["size"]) for path, info in fs.find(f"{root.path}/units", detail=True).items()}
        names = [path for path in sizes if path.count("/") == root.path.count("/") + 3 and path.endswith(MANIFEST)]
        # `cat` takes a path with a wildcard for a pattern.
        texts: Mapping[str, Any] = fs.cat([*map(escape, names)], on_error="return") if names else {}
    except (OSError, ValueError) as error:
        raise StepscopeError(f"{address} cannot be read as a STORE: {error}.") from None
    if not isinstance(mark, dict) or mark.get("format") != STORE_FORMAT:
        raise StepscopeError(f"{address} is not a STORE that this stepscope reads: make one with `stepscope ingest`.")
    manifests, damaged = [], []
    for path in sorted(names):
        number = path.split("/")[-2]
        manifest = _manifest(texts.get(path), number)
        if manifest is not None and all(
            sizes.get(root.table(manifest, table)) == file.size_bytes for table, file in manifest.tables.items()
        ):
            manifests.append(manifest)
        else:
            damaged.append(number)
    logs = mark.get("logs")
    return Store(root, manifests, damaged, [str(log) for log in logs] if isinstance(logs, list) else [])


def check_schema(store: Store) -> None:
    """Raise StepscopeError if the logs have other tables than this version of stepscope reads."""
    old = sum(manifest.schema != _SCHEMA_DIGEST for manifest in store.manifests)
    if old:
        raise StepscopeError(
            f"{old} of {len(store.manifests)} logs in {store.root.address} were read by another version of stepscope: "
            "run `stepscope ingest` again."
        )


def read_manifest(root: Root, number: int) -> Manifest | None:
    """Return the manifest of a log, or None if it is missing or cannot be read."""
    try:
        return _manifest(root.fs.cat_file(f"{root.log_folder(number)}/{MANIFEST}"), f"{number:06d}")
    except OSError:
        return None


def write_manifest(root: Root, manifest: Manifest) -> None:
    """Write the manifest, which completes the tables of a log."""
    folder = root.log_folder(manifest.number)
    text = orjson.dumps({"format": UNIT_FORMAT, **asdict(manifest)}, option=orjson.OPT_INDENT_2)
    root.write_whole(f"{folder}/{MANIFEST}", text, f"{folder}/{manifest.folder}/{MANIFEST}")


def _manifest(text: Any, number: str) -> Manifest | None:
    """Return the manifest in `text`, or None if it is invalid: a STORE, and the names in it, may come from anywhere."""
    try:
        value = orjson.loads(text)
        if value.pop("format") != UNIT_FORMAT:
            return None
        tables = {str(name): TableFile(**file) for name, file in value.pop("tables").items()}
        manifest = Manifest(log=LogFile(**value.pop("log")), tables=tables, **value)
        ints = [manifest.number, manifest.log.size_bytes, *(n for t in tables.values() for n in (t.rows, t.size_bytes))]
        ints.append(manifest.plain_bytes)
        sound = (
            all(type(one) is int and one >= 0 for one in ints)
            and f"{manifest.number:06d}" == number
            and manifest.number < MOST_UNITS
            and isinstance(manifest.log.address, str)
            and _FOLDER.fullmatch(manifest.folder)
            and all(re.fullmatch(r"\w{1,100}", name) for name in tables)
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return manifest if sound else None
