"""Where a broker is. A module of its own: a broker that talks to others needs it, and nothing else of our settings."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
