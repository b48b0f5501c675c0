"""Renders a comparison as one HTML file without scripts that asks the network for nothing."""

from __future__ import annotations

from markupsafe import Markup

from stepscope.viewer.compare.rows import Comparison
from stepscope.viewer.web import assets, render

_SHEETS = (
    "core/colours",
    "core/page",
    "core/tables",
    "overview/findings",
    "values/values",
    "report/report",
    "compare/compare",
)


def render_html(found: Comparison) -> str:
    """Return the text of the file."""
    css = Markup(assets.compact_sheets(_SHEETS))
    return render.environment(root="#").get_template("compare/file.html").render(found=found, css=css)
