"""What a hostile client is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostile.scene import Scene


@dataclass(frozen=True)
class HostileClient:
    """`strike(scene, prepared, size)` does the deed and returns a few words about what came of it.

    `prepare(scene, size)` is what goes before, not measured. `size` is how much of it `make hostile` does, `small` how
    much `make test` does, None where even a little takes long. `peak_mb` and `left_mb` are how much more memory than
    before the broker may hold meanwhile, and once the client has gone; `open_files` its limit of descriptors.
    """

    name: str
    strike: Callable[[Scene, Any, int], str]
    size: int
    small: int | None = None
    prepare: Callable[[Scene, int], Any] = lambda scene, size: None
    settings: Mapping[str, str] = field(default_factory=dict)
    peak_mb: int = 64
    left_mb: int = 32
    open_files: int | None = None
