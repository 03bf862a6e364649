"""Checks whether a built site works without a network: everything that its pages load must be in it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

_LOADING: Final = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
    "embed": "src",
}
_LINKS_THAT_LOAD: Final = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "manifest", "modulepreload"}
_ELSEWHERE: Final = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_OF_STYLES: Final = re.compile(r"(?:url\(|@import)\s*['\"]?\s*((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)


class _Loaded(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.from_elsewhere: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        address = values.get(_LOADING.get(tag, ""))
        if tag == "link" and _LINKS_THAT_LOAD & set((values.get("rel") or "").split()):
            address = values.get("href")
        if address and _ELSEWHERE.match(address):
            self.from_elsewhere.append(f"<{tag}> {address}")


def loaded_from_elsewhere(html: str) -> list[str]:
    """The URLs that a browser would fetch from another host to show this page."""
    page = _Loaded()
    page.feed(html)
    return page.from_elsewhere


def fetched_from_elsewhere(site: Path) -> list[str]:
    """One line for each URL that a page or a style sheet of the site loads from another host."""
    found = []
    for path in sorted(site.rglob("*.html")):
        found += [f"{path.relative_to(site)}: {what}" for what in loaded_from_elsewhere(path.read_text())]
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site)}: {address}" for address in _OF_STYLES.findall(path.read_text())]
    return found
