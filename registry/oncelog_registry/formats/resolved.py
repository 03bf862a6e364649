"""Defines the value type for a schema together with the schemas that it refers to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncelog_registry.schemas import Schema


class Resolved(NamedTuple):
    """A schema with the schemas that it refers to, by the names that it uses for them; each schema comes after its own
    references.
    """

    schema: Schema
    referred: Sequence[tuple[str, Schema]] = ()
