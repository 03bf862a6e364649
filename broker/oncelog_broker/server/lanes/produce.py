"""The fast lane of Produce: one batch for one partition, which the connection has written to before.

Everything in front of the records, the client's id, transactional id, acks, timeout, topic and partition, is compared
as bytes with the requests before; a connection may write to some partitions in turn. What the usual way asks before it
appends is asked here, too, and any other answer than the usual one makes the lane decline. The append itself is
`Partition.append` in both ways, and its errors are answered by the usual way.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from oncelog_broker.replication.partition import Partition
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.dispatch.routes import TIMED_MASK, Route
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_broker.server.records import produce
from oncelog_broker.server.records.services import RecordContext, RecordServices
from oncelog_broker.server.records.transactional_append import FIRST_TRANSACTIONS_V2_VERSION
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.codec import DECODING_ERRORS, codec
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.records.batch import ATTRIBUTES_AT, HEADER_SIZE, PRODUCER, PRODUCER_AT, TRANSACTIONAL_BIT
from oncelog_protocol.templates import NoTemplate, around_int64s, around_records, records_reader

MIN_VERSION: Final = 7
"""Older versions of Produce have other rules about compression, and other responses."""
MAX_DESTINATIONS: Final = 64
"""How many destinations a lane remembers: combinations of partition, acks and transactional id."""
MAX_HEAD_BYTES: Final = 2048
"""The longest head (the bytes before the records) that a lane remembers. A transactional id alone may have 32 kB, and
each connection may have many."""
MAX_LENGTHS: Final = 4
"""How many different lengths of the bytes before the records a lane remembers: topic names differ in length."""
ANSWER_FIELDS: Final = ("base_offset", "log_append_time_ms", "log_start_offset")

Rights = tuple[tuple[int, str | None], ...]
Respond = Callable[[Any, Route, Any], Any]


class _Destination:
    """Where requests with the same bytes in front of their records go, and how they are answered."""

    __slots__ = (
        "answer",
        "answer_head",
        "answer_size",
        "answer_tail",
        "partition",
        "request_tail",
        "required_acks",
        "rights",
        "transaction_version",
        "transactional",
    )

    def __init__(
        self,
        partition: Partition,
        request: ProduceRequest,
        version: int,
        rights: Rights,
        request_tail: bytes,
        answer_head: bytes,
        answer_tail: bytes,
    ) -> None:
        self.partition = partition
        self.required_acks = request.acks
        self.rights = rights
        """What the principal must be allowed: the kinds and names of rules."""
        self.transactional = 0 if request.transactional_id is None else TRANSACTIONAL_BIT
        self.transaction_version = 0 if version < FIRST_TRANSACTIONS_V2_VERSION else TRANSACTIONS_V2
        self.request_tail = request_tail
        self.answer_head, self.answer_tail = answer_head, answer_tail
        answer = Struct(f">ii{len(answer_head)}sqqq{len(answer_tail)}s")
        self.answer = answer.pack
        self.answer_size = answer.size - 4


class ProduceLane:
    """The fast lane of one connection for one version of Produce."""

    __slots__ = (
        "_is_known",
        "_known",
        "_lengths",
        "_monotonic",
        "_read_records",
        "_respond",
        "_route",
        "_services",
        "_version",
        "_will_learn",
    )

    def __init__(
        self,
        route: Route,
        version: int,
        services: RecordServices,
        respond: Respond,
        monotonic: Callable[[], float],
    ) -> None:
        """`respond` is the usual way's, for answers that the lane does not know. `monotonic`: seconds."""
        self._route = route
        self._version = version
        self._services = services
        self._respond = respond
        self._monotonic = monotonic
        self._read_records = records_reader(ProduceRequest, version)
        self._known: dict[bytes, _Destination] = {}
        """Destinations by the bytes between the correlation id and the length of the records."""
        self._lengths: tuple[int, ...] = ()
        """Positions in a frame at which those bytes may end."""
        self._is_known = False
        """Whether the destination of the present request is in `_known`. If the lane then declines, it learns nothing
        from the request."""
        self._will_learn = False
        """Whether the connection has sent a request that the lane could learn: the lane learns from the second one
        on."""

    def serve(self, connection: BrokerConnection, frame: memoryview, correlation_id: int, /) -> bool:
        """See `Lane`."""
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

        services, partition = self._services, known.partition
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
            del self._known[head]  # there may be another one of that name
            return False
        log = partition.log
        if (
            log.walks_records
            or services.refused_batches
            or records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT != known.transactional
            or (known.required_acks == produce.ACKS_ALL and not partition.is_alone)
        ):
            return False
        if known.transactional and not log.has_open_transaction(*PRODUCER.unpack_from(records, PRODUCER_AT)):
            return False  # to be verified

        route, started = self._route, 0.0
        route.requests += 1
        if route.times is not None and route.requests & TIMED_MASK == 1:
            started = self._monotonic()
        try:
            base_offset, append_time = partition.append(
                records,
                required_acks=known.required_acks,
                transaction_version=known.transaction_version,
                records_checked=True,
            )
        except KafkaError as error:
            self._refuse(connection, frame, correlation_id, partition, error)
        else:
            connection.respond(
                [
                    known.answer(
                        known.answer_size,
                        correlation_id,
                        known.answer_head,
                        base_offset,
                        append_time,
                        log.state.log_start_offset,
                        known.answer_tail,
                    )
                ]
            )
        if started and route.times is not None:
            route.times.total.append(self._monotonic() - started)
        return True

    def _refuse(
        self,
        connection: BrokerConnection,
        frame: memoryview,
        correlation_id: int,
        partition: Partition,
        error: KafkaError,
    ) -> None:
        """Answer as the usual way does when `partition` has not appended the batch."""
        header, position = self._route.header.decode_from(frame)
        request = self._route.decode(frame, position)
        context: Any = RequestContext(
            self._services,
            connection,
            header.request_api_key,
            self._version,
            correlation_id,
            header.client_id,
        )
        self._respond(produce.refused(request, context, partition, error), self._route, context)

    def learn(
        self, frame: memoryview, request: ProduceRequest, response: ProduceResponse, context: RecordContext, /
    ) -> None:
        """See `Lane`."""
        if self._is_known or len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        topic, answered = request.topic_data[0], response.responses[0].partition_responses[0]
        data = topic.partition_data[0]
        if answered.error_code or self._version < MIN_VERSION:
            return
        if not self._will_learn:
            self._will_learn = True
            return
        if len(self._known) == MAX_DESTINATIONS and not self._forget_gone():
            return
        try:
            partition = produce.leader(topic, data.index, context)
            request_codec = codec(ProduceRequest, self._version)
            body = around_records(request_codec, request, data.records)
            answer = around_int64s(codec(ProduceResponse, self._version), response, answered, ANSWER_FIELDS)
        except (KafkaError, NoTemplate):
            return
        header = bytes(frame[PREFIX.size : PREFIX.size + len(context.connection.cached_header.tail)])
        head = header + body.head
        position = PREFIX.size + len(head)
        if len(head) > MAX_HEAD_BYTES:
            return
        if frame[PREFIX.size : position] != head or frame[len(frame) - len(body.tail) :] != body.tail:
            return  # encoded in another way than ours: not for templates
        if position not in self._lengths:
            if len(self._lengths) == MAX_LENGTHS:
                return
            self._lengths = (*self._lengths, position)
        rights: Rights = ((rules.PRODUCE.kind, partition.topic),)
        if request.transactional_id is not None:
            rights = ((rules.PRODUCE_TRANSACTION.kind, request.transactional_id), *rights)
        answer_header = b"\0" if self._route.flexible_response else b""
        self._known[head] = _Destination(
            partition, request, self._version, rights, body.tail, answer_header + answer.head, answer.tail
        )

    def _forget_gone(self) -> bool:
        """Whether there is room again: partitions that are deleted, or led by another broker, are not written to."""
        gone = [head for head, known in self._known.items() if known.partition.is_resigned]
        for head in gone:
            del self._known[head]
        return bool(gone)


make_lane = ProduceLane
"""What `served` loads."""
