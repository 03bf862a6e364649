"""The fast lane of Produce: serves requests with one batch for one partition to which the connection has written
before.

The lane compares all bytes before the records (client id, transactional id, acks, timeout, topic and partition) with
earlier requests; a connection may write to several partitions alternately. The fast lane makes every check that the
handler of Produce makes before an append. If a check fails, the lane declines, and the handler serves the request. The
lane and the handler both append with `Partition.append`; code of the handler builds the lane's error responses. With
acks=all and several replicas, or with flush.messages=1, the response waits in the partition's purgatory, and the
connection's next request is handled meanwhile.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import Final, NoReturn

from oncelog.fail_points.point import fail_point
from oncelog_broker.coordinator.transaction.verification import refused_by_coordinator
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.answers import then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.quotas.client_limits import ClientLimits
from oncelog_broker.server.dispatch.routes import TIMED_MASK, Route
from oncelog_broker.server.lanes.produce_destination import Destination, answer_to
from oncelog_broker.server.lanes.produce_waits import Appended, ProduceWays, respond
from oncelog_broker.server.lanes.repeated import Attempts, RightsNeeded, note_time
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.frame_reader import SIZE
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_broker.server.net.lane import UsualWay
from oncelog_broker.server.records import produce
from oncelog_broker.server.records.services import RecordContext, RecordServices
from oncelog_protocol.codec import DECODING_ERRORS, codec
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.quotas import QuotaKey
from oncelog_protocol.records.batch import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LAST_OFFSET_DELTA_AT,
    PRODUCER,
    PRODUCER_AT,
    TRANSACTIONAL_BIT,
)
from oncelog_protocol.templates import NoTemplate, around_records, records_reader

MIN_VERSION: Final = 7
"""Older versions of Produce are not served, because they have other rules about compression, and other responses."""
MAX_DESTINATIONS: Final = 64
"""The maximum number of destinations that a lane remembers; a destination is a combination of partition, acks and
transactional id.
"""
MAX_HEAD_BYTES: Final = 2048
"""The maximum number of bytes of a head (the bytes before the records) that a lane remembers. The limit is needed
because a transactional id may have 32 kB, and a connection may use many transactional ids.
"""
MAX_LENGTHS: Final = 4
"""The maximum number of different head lengths that a lane remembers; heads differ in length because topic names do."""


def _not_appended() -> NoReturn:
    raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)


@fail_point("append", dropped=_not_appended)
def _append_in_transaction(
    partition: Partition, records: memoryview, required_acks: int, transaction_version: int, ends: int
) -> tuple[int, int]:
    """Append a batch of a transaction that is open in the partition or was just verified. `ends`: the value of
    `VerificationGuards.ends` when this was checked. A fail point may delay this step until the transaction has ended;
    the batch must then not open it again (E3).
    """
    if partition.guards.ends != ends:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return partition.append(
        records, required_acks=required_acks, transaction_version=transaction_version, records_checked=True
    )


class ProduceLane:
    """The fast lane of one connection for one version of Produce."""

    __slots__ = (
        "_attempts",
        "_is_known",
        "_known",
        "_lengths",
        "_read_records",
        "_ways",
    )

    def __init__(
        self,
        route: Route,
        version: int,
        services: RecordServices,
        usual: UsualWay,
        monotonic: Callable[[], float],
    ) -> None:
        """`monotonic` returns the monotonic time in seconds."""
        self._ways = ProduceWays(route, version, services, usual, monotonic)
        self._read_records = records_reader(ProduceRequest, version)
        self._known: dict[bytes, Destination] = {}
        """Destinations by their heads: the bytes between the correlation id and the length of the records."""
        self._lengths: tuple[int, ...] = ()
        """Positions in a frame at which a head may end."""
        self._is_known = False
        """Whether `_known` has the destination of the present request. If so, and if the lane declines the request, the
        lane remembers nothing from this request.
        """
        self._attempts = Attempts()

    def serve(self, connection: BrokerConnection, frame: memoryview, correlation_id: int, /) -> bool:
        """Serve the request if the lane can. Returns False if the handler must serve the request; the lane has then
        changed nothing."""
        self._is_known = False
        for position in self._lengths:
            head = bytes(frame[PREFIX.size : position])
            known = self._known.get(head)
            if known is not None:
                break
        else:
            return False
        self._is_known = True
        try:
            records, position = self._read_records(frame, position, len(frame))
        except DECODING_ERRORS:
            return False
        if records is None or len(records) < HEADER_SIZE or frame[position:] != known.request_tail:
            return False

        ways, partition = self._ways, known.partition
        services = ways.services
        authorizer = services.authorizer
        if authorizer is not None:
            rights = connection.rights
            if rights is None or rights.epoch is not authorizer.epoch:
                return False
            for right in known.rights:
                if right not in rights.allowed:
                    return False
        if partition.is_resigned:
            self._is_known = False
            del self._known[head]  # decline, because a new topic of the same name may exist
            return False
        log = partition.log
        if (
            log.walks_records
            or services.refused_batches.lowest
            or records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT != known.transactional
        ):
            return False
        registers = False
        if known.transactional:
            producer_id, epoch = PRODUCER.unpack_from(records, PRODUCER_AT)
            if not log.producer_state.has_open_transaction(producer_id, epoch):
                # The first batch of the transaction in this partition: V1 verifies that the transaction has the
                # partition, V2 adds the partition (`register`, below the other checks).
                transactions, last_epoch = known.transactions, log.producer_state.coordinator_epoch(producer_id)
                if transactions is None or services.transactions.refused_sequences.lowest:
                    return False
                registers = known.transaction_version >= TRANSACTIONS_V2
                if not registers and not transactions.has_open(producer_id, epoch, known.where, last_epoch):
                    return False

        limits, throttling = None, ways.usual.throttling
        if throttling is not None:
            limits = throttling.known_limits(connection, known.client_id)
            if limits is None or limits.request is not None:
                return False
            if limits.produce is not None and QuotaKey.PRODUCER_BYTE_RATE not in limits.charged:
                return False  # decline: with a quota that connections share, it may have to wait

        route, started = ways.route, 0.0
        if route.times is not None and (route.requests + 1) & TIMED_MASK == 1:
            started = ways.monotonic()
        if registers and transactions is not None:
            code = transactions.register(producer_id, epoch, known.where, last_epoch)
            if code is None:
                return False
            if code is not ErrorCode.NONE:
                route.requests += 1
                producer = ProducerIdAndEpoch(producer_id, epoch)
                refused = refused_by_coordinator(producer, list(known.where), code, registers=True)
                if not self._refuse(connection, frame, correlation_id, known, limits, refused, started):
                    note_time(route, started, ways.monotonic)
                return True
        route.requests += 1
        try:
            if not known.transactional:
                base_offset, append_time = partition.append(
                    records, required_acks=known.required_acks, records_checked=True
                )
            else:
                base_offset, append_time = _append_in_transaction(
                    partition, records, known.required_acks, known.transaction_version, partition.guards.ends
                )
        except KafkaError as error:
            if self._refuse(connection, frame, correlation_id, known, limits, error, started):
                return True
        else:
            if partition.waits_for_disk or (known.required_acks == produce.ACKS_ALL and not partition.is_alone):
                (last_offset_delta,) = LAST_OFFSET_DELTA.unpack_from(records, LAST_OFFSET_DELTA_AT)
                appended = Appended(
                    ways, connection, correlation_id, known, limits, len(frame) + SIZE.size,
                    (base_offset, append_time, log.state.log_start_offset),
                )  # fmt: skip
                if appended.wait(base_offset + last_offset_delta + 1, started):
                    return True
            else:
                throttle_ms = 0
                if limits is not None and limits.produce is not None:
                    throttle_ms = throttling.charge_produce(connection, limits, len(frame) + SIZE.size)
                answer = known.answer(
                    known.answer_size,
                    correlation_id,
                    known.answer_head,
                    base_offset,
                    append_time,
                    log.state.log_start_offset,
                    known.answer_middle,
                    throttle_ms,
                    known.answer_tail,
                )
                respond(connection, [answer])
        if started and route.times is not None:
            route.times.total.append(ways.monotonic() - started)
        return True

    def _refuse(
        self,
        connection: BrokerConnection,
        frame: memoryview,
        correlation_id: int,
        known: Destination,
        limits: ClientLimits | None,
        error: KafkaError,
        started: float,
    ) -> bool:
        """Respond to a batch that was not appended, with the same response as the handler of Produce. Returns whether
        the response must wait, because the batch is already in the log (S12). `started`: the monotonic time, in
        seconds, at which serving the request began; 0 means that the request is not timed.
        """
        ways, request_bytes = self._ways, len(frame) + SIZE.size
        header, position = ways.route.header.decode_from(frame)
        request = ways.route.decode(frame, position)
        context = ways.context(connection, correlation_id, header.client_id)

        def charged(response: ProduceResponse | None) -> ProduceResponse | None:
            if response is not None:
                response.throttle_time_ms = ways.charge(connection, limits, request_bytes)
            return response

        answer = then(produce.refused(request, context, known.partition, error), charged)
        if isinstance(answer, Future):
            ways.usual.wait(answer, ways.route, context, started)
            return True
        ways.usual.respond(answer, ways.route, context)
        return False

    def learn(
        self, frame: memoryview, request: ProduceRequest, response: ProduceResponse | None, context: RecordContext, /
    ) -> None:
        """Remember a request that its handler has just served, so that the lane can serve similar requests later."""
        if self._is_known or len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        if request.acks == 0:
            return  # the client expects no response, and the lane sends one
        topic = request.topic_data[0]
        data = topic.partition_data[0]
        is_refused = response is not None and response.responses[0].partition_responses[0].error_code
        if is_refused or self._ways.version < MIN_VERSION:
            return
        if not self._attempts.may_begin():
            return
        if len(self._known) == MAX_DESTINATIONS and not self._forget_gone():
            return
        try:
            partition = produce.leader(topic, data.index, context)
            request_codec = codec(ProduceRequest, self._ways.version)
            body = around_records(request_codec, request, data.records)
            answer = answer_to(topic, data, self._ways.version, flexible=self._ways.route.flexible_response)
        except KafkaError:
            return
        except NoTemplate:
            self._attempts.failed()
            return
        header = bytes(frame[PREFIX.size : PREFIX.size + len(context.connection.cached_header.tail)])
        head = header + body.head
        position = PREFIX.size + len(head)
        if len(head) > MAX_HEAD_BYTES:
            self._attempts.failed()
            return
        if frame[PREFIX.size : position] != head or frame[len(frame) - len(body.tail) :] != body.tail:
            self._attempts.failed()
            return  # stop: the client encodes requests differently from our encoder, so templates do not fit
        if position not in self._lengths:
            if len(self._lengths) == MAX_LENGTHS:
                self._attempts.failed()
                return  # the client must not pay for an attempt at each request with another head length
            self._lengths = (*self._lengths, position)
        self._attempts.succeeded()
        rights: RightsNeeded = ((rules.PRODUCE.kind, partition.topic),)
        transactions = None
        if request.transactional_id is not None:
            rights = ((rules.PRODUCE_TRANSACTION.kind, request.transactional_id), *rights)
            transactions = context.services.transactions.usual_transactions(request.transactional_id)
        self._known[head] = Destination(
            partition, request, self._ways.version, rights, body.tail, answer, context.client_id, transactions
        )

    def _forget_gone(self) -> bool:
        """Forget destinations whose partition was deleted or is led by another broker; returns whether there is room
        for a new destination.
        """
        gone = [head for head, known in self._known.items() if known.partition.is_resigned]
        for head in gone:
            del self._known[head]
        return bool(gone)


make_lane = ProduceLane
"""The constructor of the fast lane. `server/served.py` loads it by this name."""
