"""Extracts the code blocks of a documentation page, for tests that follow the page's instructions."""

from __future__ import annotations

import re
from typing import NamedTuple

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    title: str
    """The title that the site shows above the block; code hosts such as GitHub omit it."""
    text: str


def blocks(page: str) -> list[Block]:
    """Return the code blocks of the page in order. Raises ValueError for a malformed block."""
    found = [Block(*match.groups(default="")) for match in _BLOCK.finditer(page)]
    if 2 * len(found) != len(re.findall("^```", page, re.MULTILINE)):
        raise ValueError("the page has blocks that nobody understands")
    return found
