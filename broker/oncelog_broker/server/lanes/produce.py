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

from asyncio import Future, get_running_loop
from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from typing import Final, NoReturn

from oncelog.fail_points.point import fail_point
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.quotas.client_limits import ClientLimits
from oncelog_broker.server.dispatch.routes import TIMED_MASK, Route
from oncelog_broker.server.net.answer_queue import Slot
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.frame_reader import SIZE
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_broker.server.net.lane import UsualWay
from oncelog_broker.server.records import produce
from oncelog_broker.server.records.services import RecordContext, RecordServices
from oncelog_broker.server.records.transactional_append import FIRST_TRANSACTIONS_V2_VERSION
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.api import ApiKey
from oncelog_protocol.codec import DECODING_ERRORS, codec
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
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
from oncelog_protocol.templates import NoTemplate, Pattern, around_records, changing, records_reader

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
MAX_TOGETHER: Final = 16
"""The maximum number of requests of one connection in a group. One sync of the log ends the wait of all requests of a
group, and their responses are sent together. One iteration of the event loop may respond to 32 groups
(`purgatory.WOKEN_PER_TURN`).
"""
TOGETHER_SECONDS: Final = 0.1
"""The number of seconds for which further requests may join a group of requests that wait for one sync. A group has the
time limit of its first request.
"""
ANSWER_FIELDS: Final = ("base_offset", "log_append_time_ms", "log_start_offset")
"""The fields that change from one response to the next; they are adjacent."""

TopicData = ProduceRequest.TopicProduceData
PartitionData = TopicData.PartitionProduceData
TopicResponse = ProduceResponse.TopicProduceResponse

Rights = tuple[tuple[int, str | None], ...]


respond = fail_point("acknowledge", dropped=lambda: None)(BrokerConnection.respond)
"""Function that sends a response on a connection; its arguments are the connection, the frame and optionally a slot.
The function has the same fail point as the handler.
"""


def _not_appended() -> NoReturn:
    raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)


@fail_point("append", dropped=_not_appended)
def _append_in_transaction(
    partition: Partition, records: memoryview, required_acks: int, transaction_version: int
) -> tuple[int, int]:
    """Append a batch of a transaction that is already open in the partition, so that the coordinator need not verify
    the transaction.
    """
    return partition.append(
        records, required_acks=required_acks, transaction_version=transaction_version, records_checked=True
    )


class _Destination:
    """The destination of requests with the same head, and the template of their responses."""

    __slots__ = (
        "answer",
        "answer_head",
        "answer_middle",
        "answer_size",
        "answer_tail",
        "client_id",
        "partition",
        "request",
        "request_tail",
        "required_acks",
        "rights",
        "timeout_seconds",
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
        answer: Pattern,
        client_id: str | None,
    ) -> None:
        """`answer`: the response after its size and correlation id; only ANSWER_FIELDS and the throttle time differ
        from one response to the next.
        """
        self.partition = partition
        self.client_id = client_id
        topic = request.topic_data[0]
        destination = TopicData(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_data=[PartitionData(index=topic.partition_data[0].index, records=None)],
        )
        self.request = replace(request, topic_data=[destination])
        """The request that created this destination, without its records."""
        self.required_acks = request.acks
        self.timeout_seconds = max(0, request.timeout_ms) / 1000
        self.rights = rights
        """The rights that the principal needs for this destination; each right is the kind and name of an ACL rule."""
        self.transactional = 0 if request.transactional_id is None else TRANSACTIONAL_BIT
        self.transaction_version = 0 if version < FIRST_TRANSACTIONS_V2_VERSION else TRANSACTIONS_V2
        self.request_tail = request_tail
        self.answer_head, *_, self.answer_middle, self.answer_tail = answer.kept
        layout = Struct(f">ii{len(self.answer_head)}sqqq{len(self.answer_middle)}si{len(self.answer_tail)}s")
        self.answer = layout.pack
        self.answer_size = layout.size - 4


class ProduceLane:
    """The fast lane of one connection for one version of Produce."""

    __slots__ = (
        "_is_known",
        "_known",
        "_lengths",
        "_read_records",
        "_unsynced",
        "_version",
        "_will_learn",
        "monotonic",
        "route",
        "services",
        "usual",
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
        self.route = route
        self._version = version
        self.services = services
        self.usual = usual
        self.monotonic = monotonic
        self._read_records = records_reader(ProduceRequest, version)
        self._known: dict[bytes, _Destination] = {}
        """Destinations by their heads: the bytes between the correlation id and the length of the records."""
        self._unsynced: _SyncedTogether | None = None
        """The newest group of requests that wait only for the disk, not for replicas; None before the first group."""
        self._lengths: tuple[int, ...] = ()
        """Positions in a frame at which a head may end."""
        self._is_known = False
        """Whether `_known` has the destination of the present request. If so, and if the lane declines the request, the
        lane remembers nothing from this request.
        """
        self._will_learn = False
        """Whether the connection has sent a request that the lane could remember: the lane remembers requests from the
        second request on.
        """

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

        services, partition = self.services, known.partition
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
        if known.transactional and not log.has_open_transaction(*PRODUCER.unpack_from(records, PRODUCER_AT)):
            return False  # decline, because the transaction must be verified

        limits, throttling = None, self.usual.throttling
        if throttling is not None:
            limits = throttling.known_limits(connection, known.client_id)
            if limits is None or limits.request is not None:
                return False
            if limits.produce is not None and QuotaKey.PRODUCER_BYTE_RATE not in limits.charged:
                return False  # decline: with a quota that connections share, it may have to wait

        route, started = self.route, 0.0
        route.requests += 1
        if route.times is not None and route.requests & TIMED_MASK == 1:
            started = self.monotonic()
        try:
            if not known.transactional:
                base_offset, append_time = partition.append(
                    records, required_acks=known.required_acks, records_checked=True
                )
            else:
                base_offset, append_time = _append_in_transaction(
                    partition, records, known.required_acks, known.transaction_version
                )
        except KafkaError as error:
            self._refuse(connection, frame, correlation_id, known, limits, error)
        else:
            if partition.waits_for_disk or (known.required_acks == produce.ACKS_ALL and not partition.is_alone):
                (last_offset_delta,) = LAST_OFFSET_DELTA.unpack_from(records, LAST_OFFSET_DELTA_AT)
                appended = _Appended(
                    self, connection, correlation_id, known, limits, len(frame) + SIZE.size,
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
            route.times.total.append(self.monotonic() - started)
        return True

    def context(self, connection: BrokerConnection, correlation_id: int, client_id: str | None) -> RecordContext:
        """Return the request context for code of the Produce handler that responds to this request."""
        return RequestContext(self.services, connection, ApiKey.PRODUCE, self._version, correlation_id, client_id)

    def _refuse(
        self,
        connection: BrokerConnection,
        frame: memoryview,
        correlation_id: int,
        known: _Destination,
        limits: ClientLimits | None,
        error: KafkaError,
    ) -> None:
        """Respond to a batch that was not appended, with the same response as the handler of Produce."""
        header, position = self.route.header.decode_from(frame)
        request = self.route.decode(frame, position)
        context = self.context(connection, correlation_id, header.client_id)
        response = produce.refused(request, context, known.partition, error)
        if response is not None:
            response.throttle_time_ms = self.charge(connection, limits, len(frame) + SIZE.size)
        self.usual.respond(response, self.route, context)

    def wait_for_sync(self, appended: _Appended, connection: BrokerConnection, known: _Destination) -> Slot:
        """Let a request wait for the next sync of its partition's log; returns the slot of its response."""
        together = self._unsynced
        if together is None or not together.takes(known):
            together = self._unsynced = _SyncedTogether(self, connection, known)
        return together.add(appended)

    def charge(self, connection: BrokerConnection, limits: ClientLimits | None, request_bytes: int) -> int:
        """Charge a request that gets its response now to the client's quota. Returns the throttle time in ms."""
        throttling = self.usual.throttling
        if limits is None or throttling is None:
            return 0
        throttle_ms: int = throttling.charge_produce(connection, limits, request_bytes)
        return throttle_ms

    def learn(
        self, frame: memoryview, request: ProduceRequest, response: ProduceResponse | None, context: RecordContext, /
    ) -> None:
        """Remember a request that its handler has just served, so that the lane can serve similar requests later."""
        if self._is_known or len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        topic = request.topic_data[0]
        data = topic.partition_data[0]
        is_refused = response is not None and response.responses[0].partition_responses[0].error_code
        if is_refused or self._version < MIN_VERSION:
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
            answer = self._answer_to(topic, data)
        except (KafkaError, NoTemplate):
            return
        header = bytes(frame[PREFIX.size : PREFIX.size + len(context.connection.cached_header.tail)])
        head = header + body.head
        position = PREFIX.size + len(head)
        if len(head) > MAX_HEAD_BYTES:
            return
        if frame[PREFIX.size : position] != head or frame[len(frame) - len(body.tail) :] != body.tail:
            return  # stop: the client encodes requests differently from our encoder, so templates do not fit
        if position not in self._lengths:
            if len(self._lengths) == MAX_LENGTHS:
                return
            self._lengths = (*self._lengths, position)
        rights: Rights = ((rules.PRODUCE.kind, partition.topic),)
        if request.transactional_id is not None:
            rights = ((rules.PRODUCE_TRANSACTION.kind, request.transactional_id), *rights)
        self._known[head] = _Destination(
            partition, request, self._version, rights, body.tail, answer, context.client_id
        )

    def _answer_to(self, topic: TopicData, data: PartitionData) -> Pattern:
        """Return the template of the response to requests with this head. The template does not contain the response's
        size and correlation id.
        """
        answered = TopicResponse.PartitionProduceResponse(index=data.index, error_code=0, base_offset=0)
        response = ProduceResponse(
            responses=[TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answered])]
        )
        encode = codec(ProduceResponse, self._version).encode
        places = [*((answered, name) for name in ANSWER_FIELDS), (response, "throttle_time_ms")]
        pattern = changing(lambda: encode(response), *places)
        return pattern.behind(b"\0" if self.route.flexible_response else b"")

    def _forget_gone(self) -> bool:
        """Forget destinations whose partition was deleted or is led by another broker; returns whether there is room
        for a new destination.
        """
        gone = [head for head, known in self._known.items() if known.partition.is_resigned]
        for head in gone:
            del self._known[head]
        return bool(gone)


class _Appended:
    """A batch that was appended and whose response waits for replicas or for the disk."""

    __slots__ = (
        "_connection", "_correlation_id", "_known", "_lane", "_limits", "_next_offset", "_offsets", "_request_bytes",
        "_slot", "_started", "_waiting_since",
    )  # fmt: skip

    def __init__(
        self,
        lane: ProduceLane,
        connection: BrokerConnection,
        correlation_id: int,
        known: _Destination,
        limits: ClientLimits | None,
        request_bytes: int,
        offsets: tuple[int, int, int],
    ) -> None:
        """`offsets`: base offset, log append time in ms and log start offset."""
        self._lane = lane
        self._connection = connection
        self._correlation_id = correlation_id
        self._known = known
        self._limits = limits
        self._request_bytes = request_bytes
        self._offsets = offsets
        self._slot: Slot | None = None
        """The request's slot in the connection's answer queue while the request waits."""
        self._started = self._waiting_since = 0.0
        self._next_offset = 0

    def wait(self, next_offset: int, started: float) -> bool:
        """Respond when the records below `next_offset` may be acknowledged. Returns whether the response must wait.
        `started`: the monotonic time, in seconds, at which serving the request began; 0 means that it is not timed."""
        lane, known = self._lane, self._known
        partition, times = known.partition, lane.route.times
        if partition.waits_for_disk and partition.waits_only_for_sync(next_offset, known.required_acks):
            self._started, self._next_offset = started, next_offset
            if times is not None:
                times.waited += 1
                self._waiting_since = lane.monotonic()
            self._slot = lane.wait_for_sync(self, self._connection, known)
            return True
        committed = (
            partition.committed(next_offset)
            if known.required_acks == produce.ACKS_ALL
            else partition.acknowledged(next_offset, known.required_acks)
        )
        if not isinstance(committed, Future):
            if committed is ErrorCode.NONE:
                self._succeed()
            else:
                response, context = self._failure(committed)
                lane.usual.respond(response, lane.route, context)
            return False
        no_longer_than(known.timeout_seconds, committed, lane.services.deadlines)
        self._started = started
        if times is not None:
            times.waited += 1
            self._waiting_since = lane.monotonic()
        self._slot = self._connection.wait_for(committed, reads_frame=False, holds_back=False)
        committed.add_done_callback(self._committed)
        return True

    def _committed(self, committed: Future[ErrorCode]) -> None:
        """Respond to the request: its records may be acknowledged now, or its timeout has passed."""
        connection, slot = self._connection, self._slot
        assert slot is not None
        if committed.cancelled():
            connection.cancelled(slot)
        elif slot.waits_for is not None:  # None if the connection has ended
            if committed.result() is not ErrorCode.NONE:
                self.fail(committed.result())
                return
            answered = self._lane.monotonic() if self._started else 0.0
            self._succeed()
            connection.finish(slot)
            if self._started:
                self.note_answered(answered)

    def wait_for_replicas(self) -> None:
        """Let a request whose records are synced to disk wait for in-sync replicas, then respond. During the sync, the
        partition has got other replicas, and these may be in sync without having the records.
        """
        slot, known = self._slot, self._known
        if slot is None or slot.waits_for is None:
            return
        committed = known.partition.acknowledged(self._next_offset, known.required_acks)
        if isinstance(committed, Future):
            slot.waits_for = committed
            no_longer_than(known.timeout_seconds, committed, self._lane.services.deadlines)
        else:
            code, committed = committed, get_running_loop().create_future()
            committed.set_result(code)
        committed.add_done_callback(self._committed)

    def succeed(self) -> Slot | None:
        """Put the response into the request's slot, which the caller must finish; None if the connection has ended."""
        slot = self._slot
        if slot is None or slot.waits_for is None:
            return None
        self._succeed()
        return slot

    def fail(self, code: ErrorCode) -> None:
        """Respond with the error `code` to a request that has waited, unless the connection has ended."""
        lane, slot = self._lane, self._slot
        if slot is None or slot.waits_for is None:
            return
        response, context = self._failure(code)
        late = get_running_loop().create_future()
        late.set_result(response)
        lane.usual.wait(late, lane.route, context, self._started, slot, self._waiting_since)

    def note_answered(self, answered: float) -> None:
        """Record how long the request has waited, if the request is timed. `answered` is the monotonic time, in
        seconds, when the wait ended.
        """
        lane = self._lane
        if self._started and lane.route.times is not None:
            lane.route.times.note_waited(self._started, self._waiting_since, answered, lane.monotonic())

    def _succeed(self) -> None:
        known = self._known
        throttle_ms = self._lane.charge(self._connection, self._limits, self._request_bytes)
        answer = known.answer(
            known.answer_size,
            self._correlation_id,
            known.answer_head,
            *self._offsets,
            known.answer_middle,
            throttle_ms,
            known.answer_tail,
        )
        respond(self._connection, [answer], self._slot)

    def _failure(self, code: ErrorCode) -> tuple[ProduceResponse | None, RecordContext]:
        """Return the response with error `code`, and the request context."""
        known = self._known
        context = self._lane.context(self._connection, self._correlation_id, known.client_id)
        response = produce.not_replicated(known.request, context, known.partition, self._offsets, code)
        if response is not None:
            response.throttle_time_ms = self._lane.charge(self._connection, self._limits, self._request_bytes)
        return response, context


class _SyncedTogether:
    """The requests of one connection that wait for the same sync of one log. Their responses are written together."""

    __slots__ = ("_answer", "_began", "_connection", "_lane", "_partition", "_round", "_timeout_seconds", "_waiting")

    def __init__(self, lane: ProduceLane, connection: BrokerConnection, known: _Destination) -> None:
        self._lane = lane
        self._began = lane.monotonic()
        self._connection = connection
        self._partition = partition = known.partition
        self._timeout_seconds = max(known.timeout_seconds, produce.SYNC_SECONDS)
        self._waiting: list[tuple[_Appended, Slot]] = []
        answer = partition.synced()
        assert isinstance(answer, Future)
        self._answer = answer
        self._round = partition.purgatory.unsynced
        """The log's list of appends that wait for its next sync. When that sync begins, the log starts another list, so
        a later request finds a different list.
        """
        no_longer_than(self._timeout_seconds, answer, lane.services.deadlines)
        answer.add_done_callback(self._synced)

    def takes(self, known: _Destination) -> bool:
        """Whether a request that is appended to this destination now may join this group: the request would wait for
        the same sync, with the same time limit.
        """
        return (
            known.partition is self._partition
            and self._partition.purgatory.unsynced is self._round
            and max(known.timeout_seconds, produce.SYNC_SECONDS) == self._timeout_seconds
            and len(self._waiting) < MAX_TOGETHER
            and not self._answer.done()
            and self._lane.monotonic() - self._began < TOGETHER_SECONDS
        )

    def add(self, appended: _Appended) -> Slot:
        """Let the request wait; returns the slot of its response."""
        slot = self._connection.wait_for(self._answer, reads_frame=False, holds_back=False)
        self._waiting.append((appended, slot))
        return slot

    def _synced(self, answer: Future[ErrorCode]) -> None:
        """Respond to all requests: their records are on the disk, or the wait has ended with an error."""
        waiting, self._waiting = self._waiting, []
        if answer.cancelled():
            for _, slot in waiting:
                self._connection.cancelled(slot)
        elif answer.result() is not ErrorCode.NONE:
            for appended, _ in waiting:
                appended.fail(answer.result())
        elif not self._partition.is_alone:
            for appended, _ in waiting:
                appended.wait_for_replicas()
        else:
            answered = self._lane.monotonic()
            ready = [slot for slot in (appended.succeed() for appended, _ in waiting) if slot is not None]
            self._connection.finish_all(ready)
            for appended, _ in waiting:
                appended.note_answered(answered)


make_lane = ProduceLane
"""The constructor of the fast lane. `server/served.py` loads it by this name."""
