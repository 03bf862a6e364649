"""All pages, and parts of pages, that are made of the code: `python -m docs_site.reference` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from docs_site.reference import (
    apis,
    commands,
    configuration,
    faults,
    lifecycle,
    python_api,
    rights,
    rules,
    spark_options,
    tools,
    typed_options,
)
from docs_site.reference.markdown import with_section
from oncelog_broker.web.document import document as metrics

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "metrics.md": metrics,
    "reference/apis.md": apis.document,
    "reference/broker-configuration.md": configuration.of_brokers,
    "reference/client-configuration.md": configuration.of_clients,
    "reference/commands.md": commands.document,
    "reference/python.md": python_api.document,
    "reference/rules.md": rules.document,
    "reference/spark-options.md": spark_options.document,
    "reference/tools.md": tools.document,
    "reference/topic-configuration.md": configuration.of_topics,
}
MODULES: Final[Mapping[str, Callable[[], str]]] = {
    "client/oncelog/typed_options.py": typed_options.document,
    "docs/images/connection.svg": lifecycle.diagram,
}
"""Modules and images that are generated, by their path in the checkout."""
SECTIONS: Final[Mapping[tuple[str, str], Callable[[], str]]] = {
    ("authorizations.md", "table"): rights.rights,
    ("design/connection.md", "events"): lifecycle.events,
    ("design/connection.md", "holds"): lifecycle.holds,
    ("design/connection.md", "states"): lifecycle.states,
    ("testing.md", "kinds"): faults.kinds,
    ("testing.md", "points"): faults.points,
}
"""Generated parts of pages that people write: the page, and the name in the marks around the part."""


def names() -> list[str]:
    """The pages in docs/ that are made of the code, wholly or in part."""
    return sorted({*PAGES, *(page for page, _ in SECTIONS)})


def written(page: str) -> str:
    """The intended content of this file in docs/."""
    if page in PAGES:
        return PAGES[page]()
    text = (DOCS / page).read_text()
    for name, make in _sections_of(page):
        text = with_section(text, name, make())
    return text


def _sections_of(page: str) -> Iterator[tuple[str, Callable[[], str]]]:
    return ((name, make) for (of_page, name), make in SECTIONS.items() if of_page == page)
