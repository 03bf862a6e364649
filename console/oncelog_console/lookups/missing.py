"""Collects unavailable values, which the page lists; the rest is shown."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from oncelog.cli.running import describe
from oncelog.errors import ConnectionFailed, KafkaError

T = TypeVar("T")

Missing = dict[str, str]
"""Description -> reason."""


async def had(missing: Missing, what: str, asked: Awaitable[T], otherwise: T) -> T:
    """Raises ConnectionFailed: without a cluster nothing can be shown."""
    try:
        return await asked
    except ConnectionFailed:
        raise
    except KafkaError as error:
        missing[what] = describe(error, "the cluster")
        return otherwise
