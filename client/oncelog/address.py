"""The address of a broker. The class has a module of its own, so that the broker can import it without importing the
client's settings.
"""

from __future__ import annotations

from oncelog_protocol.light_classes import NamedTuple


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
