"""Finds the coordinator of a group or transactional id for the admin client and sends requests to the coordinator, even
after the coordinator has moved to another broker.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from oncelog.admin.calls import Calls
from oncelog.admin.items import settled
from oncelog.backoff import backoff_s
from oncelog.errors import ConnectionFailed, ErrorCode, KafkaError, RequestTimedOut
from oncelog_protocol.messages.find_coordinator import CoordinatorType

logger = logging.getLogger(__name__)

R = TypeVar("R")

MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Errors after which the request is sent again, to another broker, or to the same broker after a pause."""


class Coordinators:
    """Sends requests to coordinators of groups or transactional ids; retries if a coordinator has moved, or is still
    loading its state.
    """

    def __init__(self, calls: Calls, key_type: CoordinatorType) -> None:
        self._calls = calls
        self._key_type = key_type
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret

    async def each(
        self,
        keys: Iterable[str],
        ask: Callable[[str, int], Awaitable[R]],
        passing: frozenset[ErrorCode] = MOVED,
    ) -> dict[str, R]:
        """Return the results of `ask(key, node id of its coordinator)` by key. Raises KafkaError, PartialFailure."""
        results: dict[str, R] = {}
        errors: dict[str, KafkaError] = {}

        async def one(key: str) -> None:
            is_again = False

            async def attempt() -> R:
                nonlocal is_again
                elsewhere, is_again = is_again, True
                return await ask(key, await self._calls.coordinator(key, self._key_type, elsewhere=elsewhere))

            try:
                results[key] = await self.until_answered(attempt, passing)
            except KafkaError as error:
                errors[key] = error

        await asyncio.gather(*(one(key) for key in dict.fromkeys(keys)))
        return settled(results, errors)

    async def of_all_brokers(self, ask: Callable[[int], Awaitable[R]]) -> dict[int, R]:
        """Return the results of `ask(node id)` for each broker; the calls run concurrently. If one broker does not
        respond, all live brokers are queried again, because the groups and transactional ids of a stopped broker move
        to other brokers. Raises KafkaError.
        """

        async def attempt() -> dict[int, R]:
            nodes = [broker.node_id for broker in await self._calls.brokers()]
            return dict(zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True))

        return await self.until_answered(attempt)

    async def until_answered(self, attempt: Callable[[], Awaitable[R]], passing: frozenset[ErrorCode] = MOVED) -> R:
        """Call `attempt` again while it raises one of the `passing` (temporary) errors. Raises the last error when the
        timeout has
        expired.
        """
        config = self._calls.config
        loop = asyncio.get_running_loop()
        deadline = loop.time() + config.default_api_timeout_ms / 1000
        attempts = 0
        while True:
            attempts += 1
            try:
                return await attempt()
            except KafkaError as error:
                may_pass = error.code in passing or isinstance(error, (ConnectionFailed, RequestTimedOut))
                delay_s = backoff_s(attempts, config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng)
                if not may_pass or loop.time() + delay_s > deadline:
                    raise
                logger.info("retrying at a coordinator after %s", error)
            await asyncio.sleep(delay_s)
