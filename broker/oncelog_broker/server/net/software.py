"""The name and version of the client software, which ApiVersions requests contain from version 3 on (KIP-511)."""

from __future__ import annotations

from typing import Final

from oncelog_protocol.light_classes import NamedTuple

MAX_CHARS: Final = 256
"""Longer names and versions are cut, because each connection keeps them."""


class Software(NamedTuple):
    """The client software of a connection."""

    name: str
    version: str

    def cut(self) -> Software:
        """Return this software with its name and version cut to at most MAX_CHARS + 1 characters."""
        return Software(self.name[: MAX_CHARS + 1], self.version[: MAX_CHARS + 1])


UNKNOWN: Final = Software("unknown", "unknown")
"""The name and version that Kafka uses for a client that has not sent its software."""
