"""The fast lane of AddPartitionsToTxn below version 4. A producer that begins one transaction after the other in the
same partitions repeats the same bytes after the correlation id, and the lane serves these repetitions.

The coordinator checks that the owner begins a transaction, or adds partitions that its open transaction does not have
yet (`coordinator/transaction/usual_transactions.py`), and logs the state. Every other request goes to the handler. If
the record must wait for in-sync replicas, the response waits for them, too, as in the handler.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import Final

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.coordinator.transaction.usual_transactions import UsualTransactions
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.dispatch.routes import TIMED_MASK, Route
from oncelog_broker.server.lanes.repeated import Attempts, ConstantAnswer, RightsNeeded, may_serve, note_time
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_broker.server.net.lane import UsualWay
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.transactions.add_partitions_to_txn import (
    CLOSED_TO_CLIENTS,
    FIRST_BATCHED_VERSION,
    response_to,
)
from oncelog_broker.server.transactions.services import TransactionContext, TransactionServices
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

MAX_KNOWN: Final = 64
"""The maximum number of requests that a lane remembers, one for each set of partitions and producer epoch. When there
is no room, the lane forgets the oldest request if its producer no longer owns the transactional id; otherwise the lane
does not remember the new request, because a client that chooses other partitions for each transaction would make the
lane remember requests that never come again.
"""
MAX_REQUEST_BYTES: Final = 1024
"""The maximum size in bytes of a request that a lane remembers."""
MAX_PARTITIONS: Final = 32
"""The maximum number of partitions in a request that a lane remembers; each takes some 200 bytes of memory."""


class Remembered:
    """A request that the handler has served, and everything that the lane needs to serve its repetitions."""

    __slots__ = ("answer", "client_id", "indexes", "partitions", "producer", "request", "rights", "transactions")

    def __init__(
        self,
        request: AddPartitionsToTxnRequest,
        transactions: UsualTransactions,
        answer: ConstantAnswer,
        client_id: str | None,
    ) -> None:
        topics = request.v3_and_below_topics
        self.request = request
        self.transactions = transactions
        self.answer = answer
        self.client_id = client_id
        self.producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        self.indexes = tuple((topic.name, frozenset(topic.partitions)) for topic in topics)
        """The indexes of the added partitions, by topic name."""
        self.partitions = frozenset(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)
        self.rights: RightsNeeded = (
            (rules.ADD_PARTITIONS.kind, request.v3_and_below_transactional_id),
            *((rules.ADD_PARTITIONS_TOPIC.kind, topic.name) for topic in topics),
        )


class AddPartitionsToTxnLane:
    """The fast lane of one connection for one version of AddPartitionsToTxn."""

    __slots__ = ("_attempts", "_is_known", "_known", "_monotonic", "_route", "_services", "_usual", "_version")

    def __init__(
        self, route: Route, version: int, services: TransactionServices, usual: UsualWay, monotonic: Callable[[], float]
    ) -> None:
        """`monotonic` returns the monotonic time in seconds."""
        self._route = route
        self._version = version
        self._services = services
        self._usual = usual
        self._monotonic = monotonic
        self._known: dict[bytes, Remembered] = {}
        """The bytes of a request after its correlation id -> the request."""
        self._is_known = False
        """Whether the present request is remembered already, so that `learn` has nothing to do."""
        self._attempts = Attempts()

    def serve(self, connection: BrokerConnection, frame: memoryview, correlation_id: int, /) -> bool:
        """Serve the request if the lane can. Returns False if the handler must serve the request; the lane has then
        changed nothing."""
        known = self._known.get(bytes(frame[PREFIX.size :]))
        self._is_known = known is not None
        if known is None:
            return False
        services, route = self._services, self._route
        if not may_serve(connection, services.authorizer, self._usual, known.client_id, known.rights):
            return False
        topics = services.image.topics
        for name, indexes in known.indexes:
            topic = topics.get(name)
            if topic is None or not indexes <= topic.partitions.keys():
                return False
        started = 0.0
        if route.times is not None and (route.requests + 1) & TIMED_MASK == 1:
            started = self._monotonic()
        answer = known.transactions.add(*known.producer, known.partitions)
        if answer is None:
            # `learn` replaces a remembered request whose transactional id another partition may store now.
            self._is_known = not known.transactions.is_stored_elsewhere
            return False
        route.requests += 1
        if answer is ErrorCode.NONE:
            connection.respond([known.answer.of(correlation_id)])
            note_time(route, started, self._monotonic)
            return True
        self._respond(connection, correlation_id, known, answer, started)
        return True

    def _respond(
        self,
        connection: BrokerConnection,
        correlation_id: int,
        known: Remembered,
        answer: Answer[ErrorCode],
        started: float,
    ) -> None:
        """Respond with an error now, or with any response when the answer of the coordinator comes later."""
        context: TransactionContext = RequestContext(
            self._services, connection, ApiKey.ADD_PARTITIONS_TO_TXN, self._version, correlation_id, known.client_id
        )
        response = then(answer, partial(response_to, known.request, context))
        if isinstance(response, Future):
            self._usual.wait(response, self._route, context, started)
        else:
            self._usual.respond(response, self._route, context)
            note_time(self._route, started, self._monotonic)

    def learn(
        self,
        frame: memoryview,
        request: AddPartitionsToTxnRequest,
        response: AddPartitionsToTxnResponse | None,
        context: TransactionContext,
        /,
    ) -> None:
        """Remember a request that its handler has just served, so that the lane can serve its repetitions. `response`
        is None if it comes later. It may then have an error, which does no harm: the lane repeats all checks of the
        handler.
        """
        if self._is_known or self._version >= FIRST_BATCHED_VERSION or len(frame) > MAX_REQUEST_BYTES:
            return
        topics, transactional_id = request.v3_and_below_topics, request.v3_and_below_transactional_id
        if not topics or not transactional_id or any(topic.name in CLOSED_TO_CLIENTS for topic in topics):
            return
        if sum(len(topic.partitions) for topic in topics) > MAX_PARTITIONS:
            return
        if response is not None and (response.throttle_time_ms or _has_error(response)):
            return
        if not self._attempts.may_begin():
            return
        kept = bytes(frame[PREFIX.size :])
        transactions = self._services.transactions.usual_transactions(transactional_id)
        if transactions is None or (
            len(self._known) == MAX_KNOWN and kept not in self._known and not self._forget_oldest()
        ):
            return
        answer = ConstantAnswer(self._route, self._version, response_to(request, context, ErrorCode.NONE))
        self._known[kept] = Remembered(request, transactions, answer, context.client_id)

    def _forget_oldest(self) -> bool:
        """Forget the oldest request if its producer no longer owns the transactional id. Returns whether there is room
        now.
        """
        kept, oldest = next(iter(self._known.items()))
        if oldest.transactions.is_owner(*oldest.producer):
            return False
        del self._known[kept]
        return True


def _has_error(response: AddPartitionsToTxnResponse) -> bool:
    return any(
        partition.partition_error_code != ErrorCode.NONE
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    )


make_lane = AddPartitionsToTxnLane
"""The constructor of the fast lane. `server/served.py` loads it by this name."""
