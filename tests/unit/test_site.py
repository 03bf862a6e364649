"""The documents as a site: links have targets, and pages load nothing from other servers.

`make docs` builds the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from docs_site import links, offline
from tests.support.page_blocks import Block, blocks

PAGES = [
    *sorted(path.relative_to(links.ROOT).as_posix() for path in (links.ROOT / "docs").rglob("*.md")),
    *links.PAGES,
    "README.md",
]
LINK = re.compile(r"\]\((?![a-z][a-z0-9+.-]*:)([^)\s#]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+?)$", re.MULTILINE)


def uri_of(page: str) -> str:
    """Return the path of a page on the site. The site does not contain the README; its path serves only to resolve
    links.
    """
    return links.in_site(page) if page != "README.md" else "../README.md"


def anchors_of(text: str) -> set[str]:
    """Return the anchors that code hosts and the site derive from headings."""
    headings = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading) for heading in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_link_targets_of_a_page_exist(page: str) -> None:
    assert links.missing(uri_of(page), (links.ROOT / page).read_text()) == []


@pytest.mark.parametrize("page", PAGES)
def test_linked_anchors_exist(page: str) -> None:
    for target, anchor in LINK.findall((links.ROOT / page).read_text()):
        file = links.ROOT / posixpath.join(posixpath.dirname(page), target) if target else links.ROOT / page
        if file.suffix == ".md":
            assert unquote(anchor) in anchors_of(file.read_text()), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_code_end(page: str) -> None:
    assert len(re.findall(r"^(?:```|~~~)", (links.ROOT / page).read_text(), re.MULTILINE)) % 2 == 0


def test_every_page_is_in_the_menu() -> None:
    menu = (links.ROOT / "mkdocs.yml").read_text()
    in_site = {path.relative_to(links.ROOT / "docs").as_posix() for path in (links.ROOT / "docs").rglob("*.md")}
    assert set(re.findall(r"\S+\.md\b", menu.partition("\nnav:")[2])) == in_site | set(links.PAGES.values())


@pytest.mark.parametrize(
    ("page", "link", "in_site"),
    [
        ("exactly-once.md", "reference/rules.md#s8", "reference/rules.md#s8"),
        (
            "reference/rules.md",
            "../../broker/oncelog_broker/broker.py",
            "../source/broker/oncelog_broker/broker.py.txt",
        ),
        ("reference/index.md", "../../bench/README.md", "../project/benchmarks.md"),
        ("reference/index.md", "../../bench/", "../project/benchmarks.md"),
        ("testing.md", "../examples/tested_application/", "source/examples/tested_application/index.md"),
        ("project/changelog.md", "docs/soak.md", "../soak.md"),
        ("source/deploy/index.md", "Dockerfile", "Dockerfile.txt"),
        ("soak.md", "#a-place", "#a-place"),
        ("soak.md", "https://kafka.apache.org", "https://kafka.apache.org"),
    ],
)
def test_links_are_sent_to_where_the_site_has_their_targets(page: str, link: str, in_site: str) -> None:
    assert links.for_site(page, f"see [it]({link}).") == f"see [it]({in_site})."


def test_link_syntax_in_code_stays() -> None:
    code = "```python\nfound[0](other.py)\n```\n"
    assert links.for_site("soak.md", code) == code
    assert list(links.linked("soak.md", code)) == []


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/a.css">',
        '<link href="HTTPS://fonts.example" rel="preconnect">',
        '<img src=" http://example/a.png">',
    ],
)
def test_resources_fetched_from_elsewhere_are_found(html: str) -> None:
    assert len(offline.loaded_from_elsewhere(html)) == 1


def test_local_and_merely_linked_resources_are_accepted() -> None:
    html = (
        '<script src="a.js"></script><a href="https://example">there</a><link rel="canonical" href="https://example">'
    )
    assert offline.loaded_from_elsewhere(html) == []


def test_a_whole_site_is_checked(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "index.html").write_text('<img src="https://example/a.png">')
    (tmp_path / "a.css").write_text(
        "@import 'https://example/b.css'; p { background: url(//example/c.png) url(d.png) }"
    )
    found = offline.fetched_from_elsewhere(tmp_path)
    assert [line.partition(":")[0] for line in found] == ["deep/index.html", "a.css", "a.css"]


def test_the_code_blocks_of_a_page_are_found() -> None:
    assert blocks('```sh title="one"\na\n```\n\n```python\nb\n```\n') == [
        Block("sh", "one", "a\n"),
        Block("python", "", "b\n"),
    ]
    with pytest.raises(ValueError, match="nobody understands"):
        blocks("```sh {.odd}\na\n```\n")
