"""Addresses that open a line of model source in an editor or in a repository."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from stepscope.viewer.errors import StepscopeError

EDITOR = "vscode://file{path}:{line}"
"""The template of a dashboard without the option `--source-link`."""
_TEMPLATE = re.compile(
    r"(https?|vscode|vscode-insiders|vscodium|cursor|windsurf|zed|idea|pycharm|jetbrains)://[^\s\"'<>\\^`]+", re.I
)
_BEGINNING = re.compile(r"https?://[^/{}]+/|(?!http)[\w-]+://[^{}]", re.I)
"""What must come before `{path}`, which must not be a part of the host."""
_NOT_OF_THE_PROGRAM = re.compile(r"(^<|/(site|dist)-packages/|/lib/python\d|/torchinductor_)")


@dataclass(frozen=True)
class SourceLinks:
    """A template with `{path}` and `{line}`, and the common folder of the program's files."""

    template: str
    folder: str | None = None

    @property
    def is_repository(self) -> bool:
        """Return whether the template is for a web site rather than an editor, which opens any file."""
        return self.template.lower().startswith("http")

    def href(self, file: str | None, line: int | None) -> str | None:
        """Return the address of a line, or None if the file is in no place that the template reaches."""
        path = (file or "").replace("\\", "/")
        if not _is_absolute(path) or line is None:
            return None
        if self.is_repository:
            if self.folder is None or not path.startswith(self.folder):
                return None
            path = path[len(self.folder) :]
        before = self.template.partition("{path}")[0]
        path = path.lstrip("/") if before.endswith("/") else f"/{path}" if path[1:2] == ":" else path
        return self.template.replace("{path}", quote(path, safe="/:")).replace("{line}", str(int(line)))


def is_of_program(path: str) -> bool:
    """Return whether a file is neither of an installed package nor generated."""
    return _NOT_OF_THE_PROGRAM.search(path.replace("\\", "/")) is None


def checked(template: str) -> str:
    """Return a template that the user gave; raise StepscopeError if it is none."""
    for name in ("{path}", "{line}"):
        if name not in template:
            raise StepscopeError(
                f"--source-link must contain {name}, as in https://host/repository/{{path}}#L{{line}}."
            )
    if re.search(r"[{}]", template.replace("{path}", "").replace("{line}", "")):
        raise StepscopeError("--source-link may contain no braces besides {path} and {line}.")
    if not _TEMPLATE.fullmatch(template) or not _BEGINNING.match(template):
        raise StepscopeError(
            "--source-link must be an address that starts with https://, http:// or that of an editor, such as vscode://."
        )
    return template


def common_folder(files: Iterable[str | None]) -> str | None:
    """Return the folder, with a slash at its end, that holds all files that are of no installed package."""
    paths = {file.replace("\\", "/") for file in files if file}
    own = [PurePosixPath(path).parent.parts for path in paths if _is_absolute(path) and is_of_program(path)]
    if not own:
        return None
    shared = []
    for parts in zip(*own, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return str(PurePosixPath(*shared)).rstrip("/") + "/"


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or bool(re.match(r"[A-Za-z]:/", path))
