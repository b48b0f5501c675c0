"""Build hooks: where stepscope's own modules go, and the description that a package index shows."""

import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)[^)]*\)")


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the modules of stepscope itself into a wheel; an editable install gets a folder of links instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        links = runpy.run_path(str(Path(self.root) / "static" / "links.py"))
        if version == "editable":
            # Copies: torch and pytest load them, and must find them after the checkout was moved or cleaned.
            links["make_links"](Path(self.root))
            for name in links["ENTRY_POINTS"]:
                build_data["force_include_editable"][f"{links['MODULES']}/{name}"] = name
        else:
            build_data["force_include"].update(links["modules_of_the_package"](Path(self.root)))


class CustomMetadataHook(MetadataHookInterface):
    """Makes the description of README.md."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_files(text)}


def without_files(markdown: str) -> str:
    """The text without what leads to other files of the checkout: a package index has none of them, and would show a
    broken picture. Of a link its words stay."""
    shown = _LINK.sub(lambda link: "" if link[1] else link[2], markdown)
    return re.sub(r"\n{3,}", "\n\n", shown)
