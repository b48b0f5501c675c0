"""From an address to the context of the pages of compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewer.addresses import NotThere, Page, Request
from viewer.contexts import CompilePage, CompilesPage

if TYPE_CHECKING:
    from viewer.store.open import Trace


def compiles_page(trace: Trace, request: Request) -> CompilesPage:
    from viewer.queries.compiles import list_compiles

    return CompilesPage(list_compiles(trace))


def compile_page(trace: Trace, request: Request) -> CompilePage:
    from viewer.queries.compiles import compile_detail

    compile_id = request.path["compile_id"].replace("_", "/")
    log = request.number("log", 0) or 0
    detail = compile_detail(trace, log, compile_id)
    if detail is None:
        raise NotThere(f"Log {log} of this trace holds no compile {compile_id}.")
    return CompilePage(detail)


PAGES = (
    Page("/compile", "compiles.html", "Compile", CompilesPage, compiles_page),
    Page("/compile/{compile_id}", "compile.html", "Compile", CompilePage, compile_page, ("log",)),
)
