"""Links of a page, which are right in a checkout and on a code host, as the site needs them.

The site has the files of docs/, some pages from other directories of the repository (`PAGES`), a copy, as text, of each
other file that a page links to, and a list of each linked directory. So a reader without a network gets everywhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = "docs"
SOURCES: Final = "source"
LISTING: Final = "index.md"
PAGES: Final[Mapping[str, str]] = {
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/vulnerabilities.md",
    "examples/README.md": "project/examples.md",
    "bench/README.md": "project/benchmarks.md",
    "bench/HOSTILE.md": "project/hostile-clients.md",
}
"""Files of the repository, and where the site has them."""
_FENCED: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\((?![a-z][a-z0-9+.-]*:|#|/)([^)\s#]+)(#[^)\s]*)?\)")
"""A link to another file: no other scheme, no place in the same page."""
_CODE_OR_LINK: Final = re.compile(rf"{_FENCED.pattern}|{_LINK.pattern}", re.MULTILINE | re.DOTALL)


def in_repository(page: str) -> str:
    """The path of a page of the site in the repository."""
    if page.startswith(f"{SOURCES}/"):
        return page.removeprefix(f"{SOURCES}/")
    return next((file for file, uri in PAGES.items() if uri == page), f"{DOCS}/{page}")


def in_site(file: str) -> str:
    """Where the site has a file, or directory, of the repository."""
    if (ROOT / file).is_dir():
        if not (ROOT / file / "README.md").exists():
            return f"{SOURCES}/{file}/{LISTING}"
        file = posixpath.join(file, "README.md")
    if file in PAGES:
        return PAGES[file]
    if file.startswith(f"{DOCS}/"):
        return file.removeprefix(f"{DOCS}/")
    return f"{SOURCES}/{file}.txt"


def listing(directory: str) -> str:
    """A page that lists a directory of the repository."""
    names = sorted(path.name for path in (ROOT / directory).iterdir() if not path.name.startswith(("_", ".")))
    return "\n".join([f"# {directory}", "", *(f"- [{name}]({name})" for name in names), ""])


def linked(page: str, markdown: str) -> Iterator[str]:
    """The files and directories of the repository that a page of the site links to."""
    home = posixpath.dirname(in_repository(page))
    for match in _CODE_OR_LINK.finditer(markdown):
        if match[2]:
            yield posixpath.normpath(posixpath.join(home, match[2]))


def missing(page: str, markdown: str) -> list[str]:
    """Targets of links of a page that do not exist."""
    return [file for file in linked(page, markdown) if not (ROOT / file).exists()]


def for_site(page: str, markdown: str) -> str:
    """The text of a page with its links as the site needs them."""
    home = posixpath.dirname(in_repository(page))

    def moved(match: re.Match[str]) -> str:
        if not match[2]:
            return match[0]
        target = in_site(posixpath.normpath(posixpath.join(home, match[2])))
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{match[3] or ''})"

    return _CODE_OR_LINK.sub(moved, markdown)
