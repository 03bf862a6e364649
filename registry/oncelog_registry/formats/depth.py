"""Limits the depth of a JSON document, before a recursive parser walks it."""

from __future__ import annotations

from typing import Any

from oncelog_registry.limits import MAX_SCHEMA_DEPTH


def check_depth(document: Any) -> None:
    """Check the nesting of a document. Raises ValueError if it exceeds MAX_SCHEMA_DEPTH."""
    level = [document]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = [inside for each in level for inside in _inside(each)]
        if not level:
            return
    raise ValueError(f"the document nests deeper than {MAX_SCHEMA_DEPTH} levels")


def _inside(document: Any) -> list[Any]:
    if isinstance(document, dict):
        return list(document.values())
    return document if isinstance(document, list) else []
