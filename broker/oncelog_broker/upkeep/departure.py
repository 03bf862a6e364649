"""A broker that is told to stop first sees to it that nobody misses it: others lead what it leads (ControlledShutdown).

Until then it serves on. Where nobody else is in sync it waits for somebody who is, for some time. What is left then is
without a leader until it comes back, or another one does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import NO_CONTROLLER, ClusterImage
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

logger = logging.getLogger(__name__)

SHOWN_SECONDS: Final = 5.0
"""How long the image may take to show who leads now: until then clients would not be sent there."""

Ask = Callable[["ControlledShutdownRequest"], Awaitable["ControlledShutdownResponse"]]
"""Asks the controller, wherever it is. Raises PeerUnavailable."""
Place = tuple[str, int]
"""Topic and partition."""


class Patience(NamedTuple):
    """controlled.shutdown.max.retries and controlled.shutdown.retry.backoff.ms, in seconds."""

    attempts: int
    backoff_seconds: float


class Departure:
    """Of one broker."""

    def __init__(self, broker_id: int, metadata: MetadataCache, ask: Ask, patience: Patience) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._ask = ask
        self._patience = patience

    async def prepare(self) -> bool:
        """Have others lead; whether they do. Cancelled, the broker may stop all the same."""
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
                logger.info("others cannot lead yet what this broker leads", extra={"count": len(remaining)})
            await self._wait_for(
                partial(is_worth_asking, asked_in, self._broker_id, remaining),
                self._patience.backoff_seconds,
            )
        logger.warning("stopping though nobody else can lead what this broker leads")
        return False

    async def _attempt(self, image: ClusterImage) -> Collection[Place] | None:
        """What is still led; None where the controller did not say."""
        from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest

        me = image.brokers.get(self._broker_id)
        request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=-1 if me is None else me.epoch)
        try:
            response = await self._ask(request)
        except PeerUnavailable as error:
            logger.warning("the controller does not answer", extra={"reason": error})
            return None
        if response.error_code:
            error_name = ErrorCode.of(response.error_code).name
            logger.warning("the controller moves no leaders", extra={"error": error_name})
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
    """Whether there is a controller, or nobody left to ask for."""
    return image.controller_id != NO_CONTROLLER or not has_others(image, broker_id)


def leads_only(image: ClusterImage, broker_id: int, remaining: Collection[Place]) -> bool:
    """Whether the broker leads nothing with other replicas but what is `remaining`."""
    left = frozenset(remaining)
    return not any(
        state.leader == broker_id and len(state.replicas) > 1 and (topic.name, index) not in left
        for topic, index, state in image.partitions_on(broker_id)
    )


def is_worth_asking(
    before: ClusterImage, broker_id: int, remaining: Collection[Place] | None, image: ClusterImage
) -> bool:
    """Whether the controller may have another answer by now than it had (`remaining`; None: it had no answer) at the
    image `before`: it is another one, others are in sync that were not, or there is nobody left to ask for."""
    if image.controller_id not in (NO_CONTROLLER, before.controller_id) or not has_others(image, broker_id):
        return True
    for place in remaining or ():
        now, then = image.partition(*place), before.partition(*place)
        if now is not None and then is not None and len(now.isr) > 1 and now.isr != then.isr:
            return True
    return False
