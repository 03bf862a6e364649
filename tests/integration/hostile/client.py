"""The definition of a hostile client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostile.scene import Scene


@dataclass(frozen=True)
class HostileClient:
    """`strike(scene, prepared, size)` does the attack and returns a few words about its result.

    `prepare(scene, size)` runs before, and is not measured. `size` is the amount for `make hostile`, `small` the amount
    for `make test`, None if even a little takes long. `peak_mb` and `left_mb` are how much more memory than before the
    broker may have during the attack, and once the client has gone; `open_files` its limit of descriptors.
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
