"""Requests the producer id of an idempotent producer from any broker, with retries (S20)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from oncelog.backoff import backoff_s
from oncelog.config import MAX_INT32, ClientConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import FatalError, KafkaError, error_for, fatal
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch

logger = logging.getLogger(__name__)

NO_TIMEOUT_MS: Final = MAX_INT32
"""The transaction timeout in InitProducerId, which has no effect without transactions."""


class ProducerIds:
    """Call `want` to request an id; `on_identity` or `on_fatal` is called with the result."""

    def __init__(
        self,
        pool: ConnectionPool,
        metadata: Metadata,
        config: ClientConfig,
        rng: random.Random,
        *,
        on_identity: Callable[[ProducerIdAndEpoch], None],
        on_fatal: Callable[[FatalError], None],
    ) -> None:
        self._pool = pool
        self._metadata = metadata
        self._config = config
        self._rng = rng
        self._on_identity = on_identity
        self._on_fatal = on_fatal
        self._asking: asyncio.Task[None] | None = None

    def want(self) -> None:
        """Request an id, unless a request is outstanding."""
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> None:
        failures = 0
        while True:
            try:
                identity = await self._ask_once()
            except KafkaError as error:
                if not error.retriable:
                    self._asking = None
                    self._on_fatal(fatal(error))
                    return
                failures += 1
                logger.info("no producer id yet (attempt %d): %s", failures, error)
                self._metadata.request_refresh()
                config = self._config
                await asyncio.sleep(
                    backoff_s(failures, config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng)
                )
            else:
                self._asking = None
                self._on_identity(identity)
                return

    async def _ask_once(self) -> ProducerIdAndEpoch:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT_MS)
        response = await self._pool.ask_any(request)
        if response.error_code:
            raise error_for(response.error_code, "no producer id")
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
