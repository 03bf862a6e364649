"""Version ranges, written as in Kafka's message definitions: "3+", "0-12", "4"."""

from __future__ import annotations

from functools import cache
from typing import Final

from oncelog_protocol.light_classes import NamedTuple

MAX_VERSION: Final = 32767
"""The highest version of an open range such as "3+", because versions are int16 on the wire."""


class VersionRange(NamedTuple):
    """The versions from low to high, both included; the range is empty if low > high."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __str__(self) -> str:
        if self.low > self.high:
            return "none"
        if self.high == MAX_VERSION:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


NO_VERSIONS: Final = VersionRange(0, -1)


@cache
def version_range(text: str | None) -> VersionRange:
    """Parse "3+", "0-12" or "4"; None and "none" give the empty range."""
    if text is None or text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), MAX_VERSION)
    low, dash, high = text.partition("-")
    return VersionRange(int(low), int(high) if dash else int(low))
