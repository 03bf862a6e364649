"""Waits until the cluster image shows a change, before the response to an admin request is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.replication.replicas import Replicas
from oncelog_protocol.errors import ErrorCode, KafkaError

MAX_WAIT_SECONDS: Final = 60.0
"""The maximum number of seconds that a request waits for metadata, even if its timeout is longer."""


async def wait_until_shown(cache: MetadataCache, shows: Callable[[ClusterImage], bool], timeout_ms: int) -> None:
    """Wait until `shows` returns True for the cluster image, that is, until the image has the change of the request.
    Raises KafkaError REQUEST_TIMED_OUT if this takes longer than `timeout_ms`; the change was made nevertheless.
    """
    await _within(timeout_ms, cache.wait_for(shows))


async def wait_until_usable(
    cache: MetadataCache, replicas: Replicas, topic: str, partitions: int, timeout_ms: int
) -> None:
    """Wait until the cluster image shows the topic with `partitions` partitions, and this broker has opened the logs
    of the partitions that it leads.

    Raises KafkaError REQUEST_TIMED_OUT if the topic was created but cannot be used in time.
    """

    async def usable() -> None:
        await cache.wait_for(shows_topic(topic, partitions))
        await replicas.until_opened(topic)

    await _within(timeout_ms, usable())


async def _within(timeout_ms: int, change: Awaitable[object]) -> None:
    try:
        await asyncio.wait_for(change, min(max(timeout_ms, 1) / 1000, MAX_WAIT_SECONDS))
    except TimeoutError:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, "The change is made, but was not in effect within the request's timeout."
        ) from None


def shows_topic(name: str, partitions: int) -> Callable[[ClusterImage], bool]:
    """Return a predicate: whether the cluster image has the topic with `partitions` partitions, each with a leader."""

    def shows(image: ClusterImage) -> bool:
        topic = image.topic(name)
        return (
            topic is not None
            and len(topic.partitions) >= partitions
            and all(partition.leader_epoch >= 0 for partition in topic.partitions.values())
        )

    return shows


def lacks_topic(name: str, topic_id: bytes | None) -> Callable[[ClusterImage], bool]:
    """Return a predicate: whether the topic is deleted; another topic with the same name does not count."""

    def shows(image: ClusterImage) -> bool:
        topic = image.topic(name)
        return topic is None or (topic_id is not None and topic.topic_id != topic_id)

    return shows
