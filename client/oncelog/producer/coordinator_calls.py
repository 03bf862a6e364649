"""Sends requests to the coordinators of a transactional producer, with retries until a final response."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import NamedTuple, TypeVar

from oncelog.backoff import backoff_s
from oncelog.cluster import NO_NODE
from oncelog.config import ProducerConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.connection.transport import BrokerConnection
from oncelog.errors import (
    AbortableError,
    ErrorCode,
    KafkaError,
    ProducerFenced,
    UnsupportedVersion,
    error_for,
    fatal,
)
from oncelog.metadata.coordinators import find_coordinator
from oncelog.producer.transaction_errors import Meaning, meaning_of
from oncelog.producer.transaction_requests import CONCURRENT_BACKOFF_MS, HIGHEST_BEFORE_V2, codes_of, worst
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.schema import Request

R = TypeVar("R")

logger = logging.getLogger(__name__)


class CoordinatorKey(NamedTuple):
    """Key and key type of a FindCoordinator request (S30)."""

    key: str
    key_type: CoordinatorType


class CoordinatorCalls:
    """Sends requests to the coordinators of one producer. `ask` returns a successful response; retriable errors are
    retried without limit.

    `has_unanswered` says that a request got no response, so a copy of the request may still reach the coordinator (E1,
    E2).
    """

    def __init__(self, pool: ConnectionPool, config: ProducerConfig, rng: random.Random) -> None:
        self._pool = pool
        self._config = config
        self._rng = rng
        self._nodes: dict[CoordinatorKey, int] = {}
        self.has_unanswered = False

    async def ask(self, coordinator: CoordinatorKey, request: Request[R], *, is_v2: bool, at_least: int = 0) -> R:
        """Send the request in version `at_least` or higher, and return the response. Raises KafkaError: ProducerFenced,
        FatalError, AbortableError, UnsupportedVersion, and errors of the look-up of the coordinator.
        """
        name = type(request).__name__.removesuffix("Request")
        failures = 0
        while True:
            connection = await self.connection(coordinator, elsewhere=failures > 0)
            _check_version(connection, request, at_least)
            try:
                response = await self._send(connection, request, is_v2=is_v2)
            except KafkaError as error:
                if not error.retriable:
                    raise
                meaning, reason = Meaning.MOVED, error.message
            else:
                code = worst(codes_of(response))
                meaning, reason = meaning_of(code), code.meaning
                if meaning is Meaning.DONE:
                    return response
                if meaning in (Meaning.ABORTABLE, Meaning.FENCED, Meaning.FATAL):
                    raise _error(meaning, error_for(code, f"{name}: {reason}"))
            if meaning is Meaning.MOVED:
                self._nodes.pop(coordinator, None)
            failures += 1
            logger.debug("%s of %s (attempt %d): %s", name, coordinator.key, failures, reason)
            await self._back_off(failures, is_short=meaning is Meaning.CONCURRENT)

    async def connection(self, coordinator: CoordinatorKey, *, elsewhere: bool = False) -> BrokerConnection:
        """Return a connection to the coordinator; the look-up is repeated until it succeeds. With `elsewhere`, the
        look-up goes to a different broker than before.

        Raises KafkaErrors that are not retriable.
        """
        failures = 0
        while True:
            try:
                return await self._connect(coordinator, elsewhere=elsewhere or failures > 0)
            except KafkaError as error:
                if not error.retriable:
                    raise
                failures += 1
                logger.debug("no coordinator of %s (attempt %d): %s", coordinator.key, failures, error)
            self._nodes.pop(coordinator, None)
            await self._back_off(failures)

    def transaction_version(self, coordinator: CoordinatorKey) -> int | None:
        """Return the cluster's transaction.version as the coordinator reported it; None without a connection."""
        connection = self._pool.ready(self._nodes.get(coordinator, NO_NODE))
        if connection is None:
            return None
        assert connection.versions is not None
        return connection.versions.transaction_version

    async def _connect(self, coordinator: CoordinatorKey, *, elsewhere: bool) -> BrokerConnection:
        """Connect to the known coordinator; after a lost connection, look up the coordinator again."""
        connection = self._pool.ready(self._nodes.get(coordinator, NO_NODE))
        if connection is None:
            found = await find_coordinator(self._pool, coordinator.key, coordinator.key_type, elsewhere=elsewhere)
            self._nodes[coordinator] = found.node_id
            connection = await self._pool.connection(found.node_id)
        return connection

    async def _send(self, connection: BrokerConnection, request: Request[R], *, is_v2: bool) -> R:
        pending = connection.start(request, None if is_v2 else _version_before_v2(connection, request))
        try:
            return await pending
        except BaseException:
            self.has_unanswered = True
            raise

    async def _back_off(self, failures: int, *, is_short: bool = False) -> None:
        config = self._config
        first_ms = min(config.retry_backoff_ms, CONCURRENT_BACKOFF_MS) if is_short else config.retry_backoff_ms
        await asyncio.sleep(backoff_s(failures, first_ms, config.retry_backoff_max_ms, self._rng))


def _version_before_v2(connection: BrokerConnection, request: Request[R]) -> int | None:
    """Return the highest version of this request that may be used with transactions V1; None means that any version may
    be used.
    """
    highest = HIGHEST_BEFORE_V2.get(type(request))
    assert connection.versions is not None
    return None if highest is None else connection.versions.choose_at_most(type(request), highest)


def _check_version(connection: BrokerConnection, request: Request[R], at_least: int) -> None:
    """Raise UnsupportedVersion if the coordinator does not have version `at_least` of this request; 0 allows any
    version.
    """
    assert connection.versions is not None
    if at_least and (known := connection.versions.choose(type(request))) < at_least:
        name = type(request).__name__.removesuffix("Request")
        raise UnsupportedVersion(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the coordinator has {name} up to version {known}, not {at_least}",
        )


def _error(meaning: Meaning, error: KafkaError) -> KafkaError:
    if meaning is Meaning.FENCED:
        return error if isinstance(error, ProducerFenced) else ProducerFenced(error.code, error.message)
    if meaning is Meaning.ABORTABLE:
        return error if isinstance(error, AbortableError) else AbortableError(error.code, error.message)
    return fatal(error)
