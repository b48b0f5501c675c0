"""Build hook: puts the modules of stepscope itself into a wheel; an editable install gets a folder of links instead."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        links = runpy.run_path(str(Path(self.root) / "static" / "links.py"))
        if version == "editable":
            # A copy: torch loads it, and must find it after the checkout was moved or cleaned.
            links["make_links"](Path(self.root))
            build_data["force_include_editable"][f"{links['MODULES']}/{links['ENTRY_POINT']}"] = links["ENTRY_POINT"]
        else:
            build_data["force_include"].update(links["modules_of_the_package"](Path(self.root)))
