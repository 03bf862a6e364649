"""What could not be had is said on the page; the rest of it is shown."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from oncelog.cli.running import describe
from oncelog.errors import ConnectionFailed, KafkaError

T = TypeVar("T")

Missing = dict[str, str]
"""What, and why."""


async def had(missing: Missing, what: str, asked: Awaitable[T], otherwise: T) -> T:
    """Raises ConnectionFailed: without a cluster there is nothing to show."""
    try:
        return await asked
    except ConnectionFailed:
        raise
    except KafkaError as error:
        missing[what] = describe(error, "the cluster")
        return otherwise
