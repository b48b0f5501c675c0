"""Build hook: a wheel carries the pages' templates, styles and scripts inside the `viewer` package."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = {
    "templates": "viewer/templates",
    "static/css": "viewer/static/css",
    "static/js": "viewer/static/js",
    "static/package.json": "viewer/static/package.json",
}


class CustomBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable install reads them where they are; copies would go stale.
        if self.target_name != "wheel" or version != "standard":
            return
        for source, target in FILES.items():
            if (Path(self.root) / source).exists():
                build_data["force_include"][source] = target
