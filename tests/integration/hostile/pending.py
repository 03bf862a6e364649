"""The hostile clients that are known to hurt today, and how. A client that hurts nobody any more leaves this list."""

from __future__ import annotations

from collections.abc import Mapping

PENDING: Mapping[str, str] = {}
"""By name: what is seen."""
