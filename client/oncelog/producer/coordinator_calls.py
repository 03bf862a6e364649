"""Requests to the coordinators of a transactional producer, sent until they are answered for good."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, replace
from typing import Final, Generic, NamedTuple, TypeVar

from oncelog.backoff import backoff_s
from oncelog.cluster import NO_NODE
from oncelog.config import ProducerConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.connection.transport import BrokerConnection
from oncelog.coordinators import find_coordinator
from oncelog.errors import AbortableError, FatalError, KafkaError, ProducerFenced, error_for
from oncelog.producer.transaction_requests import HIGHEST_BEFORE_V2, Meaning, codes_of, meaning_of, worst
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.schema import Request

R = TypeVar("R")

logger = logging.getLogger(__name__)

CONCURRENT_BACKOFF_MS: Final = 1
"""The first wait for the transaction before to be completed: that takes about a millisecond, not retry.backoff.ms."""


class CoordinatorKey(NamedTuple):
    """Whose coordinator: FindCoordinator's key and type (S30)."""

    key: str
    key_type: CoordinatorType


@dataclass(slots=True)
class Answer(Generic[R]):
    """`is_uncertain`: an earlier try was not answered; a copy of the request may still be on its way (E1)."""

    response: R
    is_uncertain: bool


class CoordinatorCalls:
    """`ask` returns the answer of a request that was done; whatever may pass by itself is tried again without end."""

    def __init__(self, pool: ConnectionPool, config: ProducerConfig, rng: random.Random) -> None:
        self._pool = pool
        self._config = config
        self._rng = rng
        self._nodes: dict[CoordinatorKey, int] = {}

    async def ask(self, coordinator: CoordinatorKey, request: Request[R], *, is_v2: bool) -> Answer[R]:
        """Raises KafkaError: ProducerFenced, FatalError, or an AbortableError; ClientClosed."""
        failures = 0
        is_uncertain = False
        while True:
            is_sent = False
            try:
                connection = await self.connection(coordinator)
                pending = connection.start(request, None if is_v2 else _version_before_v2(connection, request))
                is_sent = True
                response = await pending
            except KafkaError as error:
                if not error.retriable:
                    raise
                is_uncertain = is_uncertain or is_sent
                self._nodes.pop(coordinator, None)
                code, meaning, reason = error.code, Meaning.AGAIN, error.message
            else:
                code = worst(codes_of(response))
                meaning, reason = meaning_of(code), code.meaning
                if meaning is Meaning.DONE:
                    return Answer(response, is_uncertain)
            name = type(request).__name__.removesuffix("Request")
            if meaning in (Meaning.ABORTABLE, Meaning.FENCED, Meaning.FATAL):
                raise _error(meaning, error_for(code, f"{name}: {reason}"))
            if meaning is Meaning.MOVED:
                self._nodes.pop(coordinator, None)
            failures += 1
            logger.debug("%s of %s (attempt %d): %s", name, coordinator.key, failures, reason)
            first_ms = self._config.retry_backoff_ms
            if meaning is Meaning.CONCURRENT:
                first_ms = min(first_ms, CONCURRENT_BACKOFF_MS)
            await asyncio.sleep(backoff_s(failures, first_ms, self._config.retry_backoff_max_ms, self._rng))

    async def connection(self, coordinator: CoordinatorKey) -> BrokerConnection:
        """To the broker that coordinates, looked for where it is not known. Raises KafkaError."""
        node_id = self._nodes.get(coordinator, NO_NODE)
        if node_id == NO_NODE or node_id not in self._pool.cluster.brokers:
            found = await find_coordinator(self._pool, coordinator.key, coordinator.key_type)
            cluster = self._pool.cluster
            self._pool.cluster = replace(cluster, brokers={**cluster.brokers, found.node_id: found})
            node_id = self._nodes[coordinator] = found.node_id
        return self._pool.ready(node_id) or await self._pool.connection(node_id)


def _version_before_v2(connection: BrokerConnection, request: Request[R]) -> int | None:
    """None: the highest that both know."""
    highest = HIGHEST_BEFORE_V2.get(type(request))
    assert connection.versions is not None
    return None if highest is None else connection.versions.choose_at_most(type(request), highest)


def _error(meaning: Meaning, error: KafkaError) -> KafkaError:
    if meaning is Meaning.FENCED:
        return error if isinstance(error, ProducerFenced) else ProducerFenced(error.code, error.message)
    if meaning is Meaning.ABORTABLE:
        return error if isinstance(error, AbortableError) else AbortableError(error.code, error.message)
    return error if isinstance(error, FatalError) else FatalError(error.code, error.message)
