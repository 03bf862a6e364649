"""A schema with the schemas that it refers to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncelog_registry.schemas import Schema


class Resolved(NamedTuple):
    """A schema with those that it refers to, by the names it uses for them; each stands behind what it uses itself."""

    schema: Schema
    referred: Sequence[tuple[str, Schema]] = ()
