"""Renders pages with Jinja2 and filters for numbers, source text and JSON; everything else is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
from markupsafe import Markup, escape

from stepscope.viewer.ingest.sources import cache_dir
from stepscope.viewer.text import formats
from stepscope.viewer.text.formats import format_bytes, format_count, format_ns, to_json
from stepscope.viewer.text.glossary import TERMS
from stepscope.viewer.text.highlight import Language, highlight
from stepscope.viewer.text.source_links import SourceLinks
from stepscope.viewer.web import assets, registry
from stepscope.viewer.web.addresses import compile_slug, query_text, slug
from stepscope.viewer.web.frame import rank_of, run_name

if TYPE_CHECKING:
    from jinja2 import Environment

    from stepscope.viewer.web.follow import Reading


_SOURCE_LINKS: ContextVar[SourceLinks | None] = ContextVar("source_links", default=None)
"""How the page that is being rendered links to lines of model source; None if it does not."""
_SHOWN = Markup('<span title="{}" data-{}="{}">{}</span>')
"""An amount with its exact value, also for scripts that sort, add and copy tables."""


def or_unknown(shown: Callable[[Any], Markup]) -> Callable[..., Markup]:
    """Return a filter that shows a value with `shown`, and a dash with the reason for a value that is unknown."""

    def html(value: Any, reason: str = "not recorded") -> Markup:
        if value is None or value == "":
            return Markup('<span class="unknown" title="{}" aria-label="unknown: {}">–</span>').format(reason, reason)
        return shown(value)

    return html


bytes_html = or_unknown(lambda value: _SHOWN.format(f"{value:,} bytes", "bytes", value, format_bytes(value)))
ns_html = or_unknown(lambda value: _SHOWN.format(f"{value:,} ns", "ns", value, format_ns(value)))
value_html = or_unknown(lambda value: _SHOWN.format(repr(value), "value", repr(value), formats.format_value(value)))
"""Filter for an element of a tensor, with its exact value on hover."""
count_html = or_unknown(lambda value: escape(format_count(value)))
known_html = or_unknown(escape)


def pretty(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()


def code_html(text: str, language: Language, id_prefix: str = "L", first: int = 1) -> Markup:
    """Return numbered lines with anchors, built without a template because a loop over the pieces is too slow."""
    prefix = escape(id_prefix)
    out = []
    for number, line in enumerate(highlight(text, language), first):
        pieces = [f'<i class="{name}">{escape(value)}</i>' if name else str(escape(value)) for name, value in line]
        out.append(
            f'<span class="line" id="{prefix}{number}"><a class="number" href="#{prefix}{number}">{number}</a>'
            f"<code>{''.join(pieces)}\n</code></span>"
        )
    return Markup('<pre class="code" tabindex="0">{}</pre>').format(Markup("".join(out)))


@contextmanager
def linking_source(links: SourceLinks | None) -> Iterator[None]:
    """Let templates that are rendered meanwhile link to lines of model source."""
    token = _SOURCE_LINKS.set(links)
    try:
        yield
    finally:
        _SOURCE_LINKS.reset(token)


def source_href(file: str | None, line: int | None) -> str | None:
    links = _SOURCE_LINKS.get()
    return links.href(file, line) if links else None


@cache
def environment(root: str = "", redacted: bool = False) -> Environment:
    """Return the environment; `root` precedes every path: "" for served pages, "#" for fragments of a report."""
    from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined, pass_context

    env = Environment(
        loader=FileSystemLoader(assets.folder("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        # Without it, compiling templates delays the first page by 0.2 s.
        bytecode_cache=FileSystemBytecodeCache(str(cache_dir())),
        trim_blocks=True,
        lstrip_blocks=True,
    )

    @pass_context
    def address_of_asset(context: Any, name: str) -> str:
        """Return the address; it takes the context so that cached templates do not contain an outdated address."""
        return assets.address(name)

    env.policies["json.dumps_function"] = to_json
    env.policies["json.dumps_kwargs"] = {}
    env.filters.update(
        ns=ns_html,
        bytes=bytes_html,
        count=count_html,
        known=known_html,
        value=value_html,
        slug=slug,
        compile_slug=compile_slug,
        rank_of=rank_of,
        run_name=run_name,
        code=code_html,
        asset=address_of_asset,
        basename=formats.basename,
        plural=formats.plural,
        plural_of=lambda values, noun: formats.plural(len(values), noun),
        ns_text=format_ns,
        launch=formats.launch_text,
        long_time=formats.format_long,
        shape=formats.shape_text,
        query=query_text,
        pretty=pretty,
    )
    env.globals.update(
        root=root,
        redacted=redacted,
        navigation=registry.navigation(),
        glossary=TERMS,
        source_links=_SOURCE_LINKS.get,
        source_href=source_href,
    )
    for module in registry.filters():
        env.filters.update(module.FILTERS)
        env.globals.update(module.GLOBALS)
    return env


def context_of(page: Any) -> dict[str, Any]:
    """Return the fields of a page by name, for its template."""
    return {field.name: getattr(page, field.name) for field in fields(page)}


def page(
    reading: Reading,
    template: str,
    section: str,
    context: dict[str, Any],
    import_map: str,
    links: SourceLinks | None = None,
) -> str:
    """Return the HTML of a served page within its frame."""
    with linking_source(links):
        return (
            environment()
            .get_template(template)
            .render(
                **context,
                context={name: value for name, value in context.items() if name != "not_shown"},
                frame=reading.frame,
                notices=reading.trace.notices,
                section=section,
                import_map=Markup(import_map),
            )
        )
