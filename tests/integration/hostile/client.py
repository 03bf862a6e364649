"""The definition of a hostile client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostile.scene import Scene


@dataclass(frozen=True)
class HostileClient:
    """A hostile client; `strike(scene, prepared, size)` attacks the broker and returns a short description of the
    result.

    `prepare(scene, size)` runs before the attack, and is not measured. `size` is the amount of work for `make hostile`,
    `small` the amount for `make test`; `small` is None if even a small amount takes long. `peak_mb` is by how many MB
    the broker's memory may grow during the attack, and `left_mb` how many of them may remain after the client has
    disconnected; `open_files` is the broker's limit of descriptors.
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
