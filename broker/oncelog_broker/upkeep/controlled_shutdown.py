"""Controlled shutdown: before this broker stops, other brokers become leaders of the partitions that this broker leads
(ControlledShutdown).

During the controlled shutdown, this broker continues to serve requests. If a partition has no other in-sync replica,
this broker waits a limited time for another replica to get in sync. If this broker still leads a partition when it
stops, that partition has no leader until this broker or another in-sync replica is available.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import NO_CONTROLLER, ClusterImage
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.light_classes import NamedTuple

if TYPE_CHECKING:
    from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

logger = logging.getLogger(__name__)

SHOWN_SECONDS: Final = 5.0
"""Seconds to wait until the cluster image shows the new leaders, so that clients are directed to them."""

Ask = Callable[["ControlledShutdownRequest"], Awaitable["ControlledShutdownResponse"]]
"""Type of an async function that sends a ControlledShutdown request to the controller. The function raises
PeerUnavailable.
"""
Place = tuple[str, int]
"""Type of a key: topic and partition."""


class Patience(NamedTuple):
    """The value of controlled.shutdown.max.retries, and the value of controlled.shutdown.retry.backoff.ms in
    seconds.
    """

    attempts: int
    backoff_seconds: float


class ControlledShutdown:
    """Runs the controlled shutdown of one broker."""

    def __init__(self, broker_id: int, metadata: MetadataCache, ask: Ask, patience: Patience) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._ask = ask
        self._patience = patience

    async def prepare(self) -> bool:
        """Move the leadership of all partitions to other brokers. Returns whether all leadership was moved. The caller
        may cancel this call, and stop the broker without waiting for other leaders.
        """
        for attempt in range(1, self._patience.attempts + 1):
            await self._wait_for(lambda image: can_be_asked(image, self._broker_id), self._patience.backoff_seconds)
            asked_in = self._metadata.image
            if not has_others(asked_in, self._broker_id):
                return False
            remaining = await self._attempt(asked_in)
            if remaining is not None:
                await self._shown(remaining)
            if remaining is not None and not remaining:
                return True
            if attempt == self._patience.attempts:
                break
            if remaining:
                logger.info(
                    "waiting for in-sync replicas to take over the partitions led here", extra={"count": len(remaining)}
                )
            await self._wait_for(
                partial(is_worth_asking, asked_in, self._broker_id, remaining),
                self._patience.backoff_seconds,
            )
        logger.warning(
            "stopping although this broker has the only in-sync replica of some partitions: these partitions "
            "have no leader until this broker is back"
        )
        return False

    async def _attempt(self, image: ClusterImage) -> Collection[Place] | None:
        """Return the partitions that this broker still leads; None if the controller did not respond."""
        from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest

        me = image.brokers.get(self._broker_id)
        request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=-1 if me is None else me.epoch)
        try:
            response = await self._ask(request)
        except PeerUnavailable as error:
            logger.warning("the controller does not respond to ControlledShutdown", extra={"reason": error})
            return None
        if response.error_code:
            error_name = ErrorCode.of(response.error_code).name
            logger.warning("the controller refuses ControlledShutdown", extra={"error": error_name})
            return None
        return [(each.topic_name, each.partition_index) for each in response.remaining_partitions]

    async def _shown(self, remaining: Collection[Place]) -> None:
        await self._wait_for(lambda image: leads_only(image, self._broker_id, remaining), SHOWN_SECONDS)

    async def _wait_for(self, shows: Callable[[ClusterImage], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._metadata.wait_for(shows)
        except TimeoutError:
            pass


def has_others(image: ClusterImage, broker_id: int) -> bool:
    """Whether any other broker is registered."""
    return any(other != broker_id for other in image.brokers)


def can_be_asked(image: ClusterImage, broker_id: int) -> bool:
    """Whether the next request may be sent: a controller exists, or no other broker is left to become controller."""
    return image.controller_id != NO_CONTROLLER or not has_others(image, broker_id)


def leads_only(image: ClusterImage, broker_id: int, remaining: Collection[Place]) -> bool:
    """Whether this broker leads no partition that has other replicas, except the partitions in `remaining`."""
    left = frozenset(remaining)
    return not any(
        state.leader == broker_id and len(state.replicas) > 1 and (topic.name, index) not in left
        for topic, index, state in image.partitions_on(broker_id)
    )


def is_worth_asking(
    before: ClusterImage, broker_id: int, remaining: Collection[Place] | None, image: ClusterImage
) -> bool:
    """Whether to send ControlledShutdown again. `before` is the cluster image at the time when the last request was
    sent; `remaining` are the partitions in its response, None without a response. Returns True if there is a new
    controller, if a remaining partition has a changed ISR with more than one replica, or if no other broker is
    registered.
    """
    if image.controller_id not in (NO_CONTROLLER, before.controller_id) or not has_others(image, broker_id):
        return True
    for place in remaining or ():
        now, then = image.partition(*place), before.partition(*place)
        if now is not None and then is not None and len(now.isr) > 1 and now.isr != then.isr:
            return True
    return False
