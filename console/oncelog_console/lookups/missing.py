"""Collects the values that are unavailable; the page lists the unavailable values, and shows the available values."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from oncelog.cli.running import describe
from oncelog.errors import ConnectionFailed, KafkaError

T = TypeVar("T")

Missing = dict[str, str]
"""Maps a description of an unavailable value to the reason."""


async def had(missing: Missing, what: str, asked: Awaitable[T], otherwise: T) -> T:
    """Return the awaited value, or `otherwise` if it is unavailable. Raises ConnectionFailed, because no page can be
    shown if no broker can be reached.
    """
    try:
        return await asked
    except ConnectionFailed:
        raise
    except KafkaError as error:
        missing[what] = describe(error, "the cluster")
        return otherwise
