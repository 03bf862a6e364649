"""Keeps the consumer of a reading task for the next task of the same process, which need not connect again.

A consumer is used by one task at a time. After its task it has no partition, so it fetches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog import Consumer, TopicPartition
from oncelog_pipeline.opening import opened

MAX_IDLE: Final = 4
"""Maximum number of consumers that are kept, each for other servers or settings."""
FETCH_MAX_WAIT_MS: Final = 20
"""The default of fetch.max.wait.ms, in milliseconds. The records of a range exist when its task begins, so a broker
need not wait for them. While a broker waits for records behind the range, it does not answer the next task.
"""


class KeptConsumers:
    """The idle consumers of a process."""

    def __init__(self) -> None:
        self._idle: dict[str, Consumer] = {}
        """Servers and settings, as text -> consumer; the consumer that was used last is the last one."""

    async def take(
        self,
        bootstrap_servers: str,
        settings: Mapping[str, Any],
        partition: TopicPartition,
        offset: int,
        patience_seconds: float,
    ) -> Consumer:
        """Return a consumer that reads the partition from this offset. If a new consumer reaches no broker, retry for
        `patience_seconds`. Raises KafkaError.
        """
        consumer = self._idle.pop(_key(bootstrap_servers, settings), None)
        if consumer is not None:
            _point(consumer, partition, offset)
            return consumer

        def make() -> Consumer:
            options = {"fetch_max_wait_ms": FETCH_MAX_WAIT_MS} | dict(settings)
            made = Consumer(bootstrap_servers, **options, auto_offset_reset="none", enable_auto_commit=False)
            # Assign the partition before `start` is called, so that the first metadata request includes the topic; a
            # second request would have to wait for the backoff.
            _point(made, partition, offset)
            return made

        return await opened(make, patience_seconds)

    async def give_back(self, bootstrap_servers: str, settings: Mapping[str, Any], consumer: Consumer) -> None:
        """Keep a consumer that works for the next task, and close the consumer that was idle for longest if there are
        too many.
        """
        consumer.assign([])
        key = _key(bootstrap_servers, settings)
        replaced = self._idle.pop(key, None)
        self._idle[key] = consumer
        if replaced is None and len(self._idle) > MAX_IDLE:
            replaced = self._idle.pop(next(iter(self._idle)))
        if replaced is not None:
            await replaced.close()

    async def close(self) -> None:
        """Close all idle consumers."""
        while self._idle:
            await self._idle.popitem()[1].close()


def _point(consumer: Consumer, partition: TopicPartition, offset: int) -> None:
    consumer.assign([partition])
    consumer.seek(partition, offset)


def _key(bootstrap_servers: str, settings: Mapping[str, Any]) -> str:
    return repr((bootstrap_servers, sorted(settings.items())))
