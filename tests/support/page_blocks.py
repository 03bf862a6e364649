"""The blocks of code of a page, for tests that do what a page says."""

from __future__ import annotations

import re
from typing import NamedTuple

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    title: str
    """What stands above it in the site; code hosts leave it out."""
    text: str


def blocks(page: str) -> list[Block]:
    """In their order. Raises ValueError for a block that is not as these are written."""
    found = [Block(*match.groups(default="")) for match in _BLOCK.finditer(page)]
    if 2 * len(found) != len(re.findall("^```", page, re.MULTILINE)):
        raise ValueError("the page has blocks that nobody understands")
    return found
