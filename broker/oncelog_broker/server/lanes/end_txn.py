"""The fast lane of EndTxn: serves the requests with which a producer ends one transaction after the other.

The lane recognises a request that differs from an earlier request only in the correlation id and the producer id and
epoch. The coordinator checks that the owner ends its open transaction for the first time
(`coordinator/transaction/usual_transactions.py`), and logs the decision. Every other request goes to the handler. If
the decision must wait for in-sync replicas, the response waits for them, too, as in the handler.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final

from oncelog.fail_points.point import fail_point
from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.transaction.usual_transactions import UsualTransactions
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.dispatch.routes import TIMED_MASK, Route
from oncelog_broker.server.lanes.repeated import HEAD, Attempts, RightsNeeded, may_serve, note_time
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_broker.server.net.lane import UsualWay
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.transactions.end_txn import FIRST_TRANSACTIONS_V2_VERSION, response_to
from oncelog_broker.server.transactions.services import TransactionContext, TransactionServices
from oncelog_protocol.api import ApiKey
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1, TRANSACTIONS_V2
from oncelog_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.templates import NoTemplate, changing

MAX_KNOWN: Final = 64
"""The maximum number of requests that a lane remembers, one for each transactional id and outcome. A lane with this
number learns nothing more, so a client that uses many transactional ids in turn costs no more than without a lane.
"""
MAX_REQUEST_BYTES: Final = 1024
"""The maximum size in bytes of a request that a lane remembers."""
NUMBERS: Final = ("producer_id", "producer_epoch")
"""The fields that differ from one transaction to the next."""

respond = fail_point("reply-sent", dropped=lambda: None)(BrokerConnection.respond)
"""Function that sends a response on a connection. The function has the same fail point as the handler."""


class Remembered:
    """A request that the handler has served, and everything that the lane needs to serve similar requests."""

    __slots__ = ("client", "client_id", "commits", "rights", "transactions")

    def __init__(
        self, request: EndTxnRequest, transactions: UsualTransactions, client_id: str | None, client: Client
    ) -> None:
        self.commits = request.committed
        self.transactions = transactions
        self.client_id = client_id
        self.client = client
        self.rights: RightsNeeded = ((rules.END_TXN.kind, request.transactional_id),)


class EndTxnLane:
    """The fast lane of one connection for one version of EndTxn."""

    __slots__ = (
        "_attempts", "_is_known", "_known", "_layouts", "_monotonic", "_route", "_services", "_success",
        "_transaction_version", "_usual", "_version",
    )  # fmt: skip

    def __init__(
        self, route: Route, version: int, services: TransactionServices, usual: UsualWay, monotonic: Callable[[], float]
    ) -> None:
        """`monotonic` returns the monotonic time in seconds."""
        self._route = route
        self._version = version
        self._services = services
        self._usual = usual
        self._monotonic = monotonic
        self._transaction_version = TRANSACTIONS_V2 if version >= FIRST_TRANSACTIONS_V2_VERSION else TRANSACTIONS_V1
        self._success = _success(route, version)
        self._layouts: dict[int, Struct] = {}
        """Size of a frame -> layout of the request: the bytes that the lane compares, and the numbers between them."""
        self._known: dict[tuple[bytes, ...], Remembered] = {}
        """The bytes around the numbers of a request -> the request."""
        self._is_known = False
        """Whether the lane remembers a request that equals the present request except for its numbers."""
        self._attempts = Attempts()

    def serve(self, connection: BrokerConnection, frame: memoryview, correlation_id: int, /) -> bool:
        """Serve the request if the lane can. Returns False if the handler must serve the request; the lane has then
        changed nothing."""
        layout = self._layouts.get(len(frame))
        fields = () if layout is None else layout.unpack_from(frame, PREFIX.size)
        known = self._known.get(fields[::2])
        self._is_known = known is not None
        if known is None:
            return False
        services, route = self._services, self._route
        if not may_serve(connection, services.authorizer, self._usual, known.client_id, known.rights):
            return False
        started = 0.0
        if route.times is not None and (route.requests + 1) & TIMED_MASK == 1:
            started = self._monotonic()
        _, producer_id, _, producer_epoch, _ = fields
        answer = known.transactions.end(producer_id, producer_epoch, known.commits, self._transaction_version)
        if answer is None:
            # `learn` replaces a remembered request whose transactional id another partition may store now.
            self._is_known = not known.transactions.is_stored_elsewhere
            return False
        route.requests += 1
        if type(answer) is ProducerIdAndEpoch:
            services.transactions.last_clients.note(known.transactions.transactional_id, known.client)
            respond(connection, [self._success(correlation_id, answer)])
            note_time(route, started, self._monotonic)
            return True
        self._respond(connection, correlation_id, known, answer, started)
        return True

    def _respond(
        self,
        connection: BrokerConnection,
        correlation_id: int,
        known: Remembered,
        answer: Answer[ProducerIdAndEpoch | KafkaError],
        started: float,
    ) -> None:
        """Respond with an error now, or with any response when the answer of the coordinator comes later."""
        context: TransactionContext = RequestContext(
            self._services, connection, ApiKey.END_TXN, self._version, correlation_id, known.client_id
        )
        response = then(answer, partial(response_to, known.transactions.transactional_id, context))
        if isinstance(response, Future):
            self._usual.wait(response, self._route, context, started)
        else:
            self._usual.respond(response, self._route, context)
            note_time(self._route, started, self._monotonic)

    # --- methods that remember requests that the handler has served ---------------------------------------------------

    def learn(
        self, frame: memoryview, request: EndTxnRequest, response: EndTxnResponse | None, context: TransactionContext, /
    ) -> None:
        """Remember a request that its handler has just served, so that the lane can serve similar requests. `response`
        is None if it comes later. It may then have an error, which does no harm: the lane repeats all checks of the
        handler.
        """
        if self._is_known or not request.transactional_id or len(frame) > MAX_REQUEST_BYTES:
            return
        if response is not None and (response.error_code != ErrorCode.NONE or response.throttle_time_ms):
            return
        if not self._attempts.may_begin():
            return
        transactions = self._services.transactions.usual_transactions(request.transactional_id)
        if transactions is None or len(self._known) == MAX_KNOWN:
            return
        kept = self._kept(frame, request, context)
        if kept is None:
            return
        self._known[kept] = Remembered(request, transactions, context.client_id, context.client)

    def _kept(self, frame: memoryview, request: EndTxnRequest, context: TransactionContext) -> tuple[bytes, ...] | None:
        """Return the bytes around the numbers of the request; None if the lane cannot recognise such requests."""
        encode = codec(EndTxnRequest, self._version).encode
        pattern = changing(lambda: encode(request), *((request, name) for name in NUMBERS))
        pattern = pattern.behind(bytes(frame[PREFIX.size : PREFIX.size + len(context.connection.cached_header.tail)]))
        layout = Struct(">" + pattern.format)
        if layout.size != len(frame) - PREFIX.size or layout.unpack_from(frame, PREFIX.size)[::2] != pattern.kept:
            self._attempts.failed()
            return None  # the client encodes this request in another way than our encoder
        if self._layouts.setdefault(len(frame), layout).format != layout.format:
            self._attempts.failed()
            return None  # a remembered request of the same size has its numbers at other positions
        self._attempts.succeeded()
        return pattern.kept


def _success(route: Route, version: int) -> Callable[[int, ProducerIdAndEpoch], bytes]:
    """Return a function that returns the response without an error, for a correlation id and the producer id and epoch
    that the producer must use next."""
    response = EndTxnResponse(error_code=ErrorCode.NONE, producer_id=0, producer_epoch=0)
    encode = codec(EndTxnResponse, version).encode
    head = b"\0" if route.flexible_response else b""
    try:
        pattern = changing(lambda: encode(response), *((response, name) for name in NUMBERS)).behind(head)
    except NoTemplate:  # before v5, the response has neither the producer id nor the epoch
        body = head + encode(response)
        size = HEAD.size - 4 + len(body)
        return lambda correlation_id, _: HEAD.pack(size, correlation_id) + body
    before, between, after = pattern.kept
    layout = Struct(f">ii{pattern.format}")
    return lambda correlation_id, after_it: layout.pack(
        layout.size - 4, correlation_id, before, after_it.producer_id, between, after_it.epoch, after
    )


make_lane = EndTxnLane
"""The constructor of the fast lane. `server/served.py` loads it by this name."""
