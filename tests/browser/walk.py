"""Walks through the dashboard as a reader does, and counts the clicks."""

from __future__ import annotations

import re

from tests.browser.conftest import Visit

MOST_LINKS = 12
"""Links of findings that are tried at most."""
LINKS = ".finding-title a[href], .finding-links a[href], .finding .evidence > a[href]"


def is_shown(visit: Visit, text: str, where: str) -> bool:
    """Return whether a visible element names `text`, such as the place ``model.py:12``, but not ``model.py:120``."""
    name = re.compile(rf"(?<![\w/.]){re.escape(text)}(?!\w)")
    return visit.page.locator(where).get_by_text(name).locator("visible=true").count() > 0


def clicks_to(visit: Visit, root: str, text: str) -> int | None:
    """Return how many clicks lead from the overview to a text.

    It is none if a finding shows the text, one if the page behind a link of a finding does, else None."""
    page = visit.page
    page.goto(root)
    visit.settle()
    if is_shown(visit, text, ".finding"):
        return 0
    links = page.locator(LINKS).all()[:MOST_LINKS]
    for address in dict.fromkeys(link.get_attribute("href") or "" for link in links):
        page.goto(root)
        page.locator(f'.finding a[href="{address}"]').first.click()
        page.wait_for_url(root + address)
        visit.settle()
        if is_shown(visit, text, "main, #panel"):
            return 1
    return None
