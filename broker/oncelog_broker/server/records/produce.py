"""Produce (0), v3-13: append one batch to each partition.

Behaviour: batches are opaque bytes; they are patched and written directly from the receive buffer. All partitions of a
request are appended before the response. With acks=all the request waits in the partition's purgatory
(`replication/purgatory.py`) until the in-sync replicas have the records: REQUEST_TIMED_OUT after timeout_ms,
NOT_ENOUGH_REPLICAS_AFTER_APPEND if too few replicas stay in sync. With flush.messages=1, requests with acks=1 or
acks=all also wait there until the records are synced to disk (`replication/group_commit.py`; a request that waits for
nothing else waits at least SYNC_SECONDS, whatever its timeout_ms); if the disk fails, the error is KAFKA_STORAGE_ERROR.
The next request of the connection is handled during this wait. A request with acks=0 gets no response. If such a
request fails, the broker closes the connection (T17), because the client cannot learn of the error in another way.
Clients may not write to internal topics. Versions: v7 allows zstd, v8 adds error messages and lists invalid records
(KIP-467), v9 is flexible, v10 names the leader with NOT_LEADER_OR_FOLLOWER (KIP-951), v13 has topic ids instead of
names. Order of the steps for a batch (S59): check topic -> CRC and size -> format -> duplicate, sequence and epoch;
then assign offsets -> append -> update the producer state -> respond. For a batch that is already in the log, the
response has the error code NONE and the batch's offset, or DUPLICATE_SEQUENCE_NUMBER if the offset is no longer known
(S8, S12). A fenced producer gets INVALID_PRODUCER_EPOCH in every version (T8).
"""

from __future__ import annotations

import logging
from asyncio import Future
from functools import partial
from typing import Final

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.record_validation import RecordsRefused
from oncelog_broker.metadata.topic_names import INTERNAL_TOPICS
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.runtime.tasks import detached
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.kept.refused_batches import Destination
from oncelog_broker.server.records.services import RecordContext
from oncelog_broker.server.records.transactional_append import (
    FIRST_TRANSACTIONS_V2_VERSION,
    Appended,
    Verification,
    append_in_transaction,
)
from oncelog_broker.server.request.leader_hints import FIRST_PRODUCE_VERSION, LeaderHints
from oncelog_broker.server.request.transactional_errors import code_for
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.batch import (
    ATTRIBUTES_LOW_BYTE_AT,
    BASE_SEQUENCE,
    BASE_SEQUENCE_AT,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LAST_OFFSET_DELTA_AT,
    PRODUCER,
    PRODUCER_AT,
    TRANSACTIONAL_BIT,
)
from oncelog_protocol.records.compression import Compression

logger = logging.getLogger(__name__)

TopicData = ProduceRequest.TopicProduceData
PartitionData = TopicData.PartitionProduceData
TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = TopicResponse.PartitionProduceResponse

ACKS_ALL: Final = -1
ACKS_ALLOWED: Final = (ACKS_ALL, 0, 1)
FIRST_ZSTD_VERSION: Final = 7
FIRST_TOPIC_ID_VERSION: Final = 13
SYNC_SECONDS: Final = 30.0
"""The least seconds for which a request waits for this broker's disk (group commit), even if its timeout is 0: its
records are in the log, and Kafka, which syncs within the append, does not count this time.
"""
PARTITIONS_PER_STEP: Final = 20
"""The number of partitions whose leaders are looked up in one slice; a slice then takes some tens of microseconds."""
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Error codes of the log or the coordinator that mean that a newer producer has fenced this producer's epoch."""
RETRIABLE: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Error codes after which the producer soon sends the batch again; `server/kept/refused_batches.py` remembers such
batches."""
FIRST_WAS_REFUSED: Final = "an earlier batch of the producer was refused with this error"


def handle(request: ProduceRequest, context: RecordContext) -> Answer[ProduceResponse | None]:
    produce = _Produce(request, context)
    topics = request.topic_data
    if request.transactional_id is not None and not context.may(rules.PRODUCE_TRANSACTION, request.transactional_id):
        answer = produce.refuse_all(KafkaError(rules.PRODUCE_TRANSACTION.refused))
    elif len(topics) == 1 and len(topics[0].partition_data) == 1:
        late = produce.append_one(topics[0], topics[0].partition_data[0])
        if late is None and produce.is_replicated:
            return produce.answer()
        answer = then(late, produce.when_replicated)
    else:
        refused = context.answered_in_slices(produce.refused())
        answer = then(then(refused, produce.append_all), produce.when_replicated)
    if request.acks == 0 and isinstance(answer, Future):
        # The append is not cancelled when the client disconnects, because a client with acks=0 may disconnect as soon
        # as it has sent its last request.
        return detached("produce with acks=0", answer)
    return answer


def refused(
    request: ProduceRequest, context: RecordContext, partition: Partition, error: KafkaError
) -> Answer[ProduceResponse | None]:
    """Return the response to a request with one batch that `partition` has refused to append. The response to a batch
    that is already in the log comes as soon as the records of the log may be acknowledged.
    """
    produce = _Produce(request, context)
    produce.refuse_one(request.topic_data[0], request.topic_data[0].partition_data[0], partition, error)
    return produce.when_replicated(None)


def not_replicated(
    request: ProduceRequest, context: RecordContext, partition: Partition, appended: tuple[int, int, int],
    code: ErrorCode,
) -> ProduceResponse | None:  # fmt: skip
    """Return the response to a request with one batch that is appended but not replicated or not synced, because of
    `code`. `appended`: base offset, log append time in ms or -1, log start offset. The records of `request` are not
    used.
    """
    return _Produce(request, context).not_replicated(partition, appended, code)


class _Produce:
    """The state of one request: the results of its partitions are added to the response as they become known."""

    __slots__ = (
        "_context",
        "_failed",
        "_is_misplaced",
        "_late",
        "_led",
        "_request",
        "_response",
        "_unreplicated",
        "_verification",
    )

    def __init__(self, request: ProduceRequest, context: RecordContext) -> None:
        self._request = request
        self._context = context
        self._response = ProduceResponse(responses=[])
        self._verification: Verification | None = None
        """The coordinator's verdicts for a transactional request with several batches; None for other requests."""
        self._failed: str | None = None
        """The error message for one of the batches; None if no batch has failed."""
        self._is_misplaced = False
        """Whether another broker leads one of the partitions."""
        self._led: list[Partition | None] = []
        """The partitions of a transactional request with several batches, in the request's order; None for a refused
        partition.
        """
        self._late: dict[tuple[str, bytes, int], Answer[None]] | None = None
        """For each partition, the last append that still waits for the check of its records or for the verification of
        its transaction.
        """
        self._unreplicated: list[tuple[PartitionResponse, Partition, Answer[ErrorCode]]] | None = None
        """Batches that are appended, and still wait for in-sync replicas or for the disk; each with its partition's
        response, its partition, and the result of the wait.
        """

    def refused(self) -> Steps[Answer[KafkaError | None]]:
        """Return the error that refuses an entire transactional request of several batches, or None. The request is
        refused if its batches belong to different producers (E28). The partitions are verified here in one call; under
        transactions V2 the call also adds the partitions to the transaction (T7).
        """
        request, context = self._request, self._context
        transactional_id = request.transactional_id
        if transactional_id is None:
            return None
        producers = set[tuple[int, int]]()
        led = self._led
        for topic in request.topic_data:
            for data in topic.partition_data:
                batch = data.records
                if batch is not None and len(batch) >= HEADER_SIZE:
                    if not batch[ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL_BIT:
                        return _not_transactional()
                    producers.add(PRODUCER.unpack_from(batch, PRODUCER_AT))
                try:
                    if context.services.authorizer is not None:
                        _check_may_write(topic, context)
                    led.append(leader(topic, data.index, context))
                except KafkaError:  # `_append` will raise and report this error again
                    led.append(None)
                if len(led) % PARTITIONS_PER_STEP == 0:
                    yield None
        if len(producers) > 1:
            return KafkaError(ErrorCode.INVALID_RECORD, "a transactional request with records of several producers")
        if not producers:
            return None
        self._verification = Verification()
        registers = context.version >= FIRST_TRANSACTIONS_V2_VERSION
        producer = ProducerIdAndEpoch(*producers.pop())
        partitions = dict.fromkeys(filter(None, led))
        return self._verification.ask(context.services, transactional_id, producer, partitions, registers=registers)

    # --- methods that append batches ----------------------------------------------------------------------------------

    def append_one(self, topic: TopicData, data: PartitionData) -> Answer[None]:
        """Append the only batch of the request."""
        answer = _unanswered(data)
        self._answers_of(topic).append(answer)
        return self._append(topic, data, answer)

    def refuse_one(self, topic: TopicData, data: PartitionData, partition: Partition, error: KafkaError) -> None:
        """Record that the only batch of the request was not appended."""
        answer = _unanswered(data)
        self._answers_of(topic).append(answer)
        self._not_appended(answer, partition, _in_order(_where(topic, data), data.records, error, self._context))

    def not_replicated(
        self, partition: Partition, appended: tuple[int, int, int], code: ErrorCode
    ) -> ProduceResponse | None:
        """Return the response to a request with one batch that is appended but not replicated, because of `code`."""
        topic = self._request.topic_data[0]
        answer = _unanswered(topic.partition_data[0])
        self._answers_of(topic).append(answer)
        answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = appended
        self._unreplicated = [(answer, partition, code)]
        return self._answer_replicated([code])

    def refuse_all(self, refused: KafkaError) -> Answer[ProduceResponse | None]:
        """Refuse all batches, and return the response with the error."""
        return then(self.append_all(refused), self.when_replicated)

    def append_all(self, refused: KafkaError | None) -> Answer[None]:
        """Append each batch, unless the entire request is refused. The returned answer completes when no append is
        pending.
        """
        appended = self._context.in_slices(self._append_each(refused))
        return then(then(appended, lambda _: all_of(list((self._late or {}).values()))), _nothing)

    def _append_each(self, refused: KafkaError | None) -> Steps[None]:
        number = 0
        for topic in self._request.topic_data:
            answers = self._answers_of(topic)
            for data in topic.partition_data:
                answer = PartitionResponse(index=data.index, error_code=0, base_offset=-1)
                answers.append(answer)
                if refused is not None:
                    self._fail(answer, refused)
                elif self._late:
                    self._append_in_order(topic, data, answer)
                else:
                    led = self._led[number] if self._led else None
                    late = self._append(topic, data, answer, led=led)
                    if late is not None:
                        self._late = {(topic.name, topic.topic_id, data.index): late}
                number += 1
                yield None

    def _append_in_order(self, topic: TopicData, data: PartitionData, answer: PartitionResponse) -> None:
        """Append a batch after the request's earlier batches for the same partition."""
        where, self._late = (topic.name, topic.topic_id, data.index), self._late or {}
        late: Answer[None]
        if where in self._late:
            late = then(self._late[where], lambda _: self._append(topic, data, answer))
        else:
            late = self._append(topic, data, answer)
        if isinstance(late, Future):
            self._late[where] = late

    def _answers_of(self, topic: TopicData) -> list[PartitionResponse]:
        """Return the list in the response that takes the results of the partitions of `topic`."""
        answers: list[PartitionResponse] = []
        self._response.responses.append(
            TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        return answers

    def _append(
        self,
        topic: TopicData,
        data: PartitionData,
        answer: PartitionResponse,
        *,
        led: Partition | None = None,
        walked_for: LogConfig | None = None,
    ) -> Answer[None]:
        """Append one batch, and fill in the result of its partition. `led`: the batch's partition if it was already
        looked up. `walked_for`: the log's settings under which the batch's records were already checked; if the
        settings have changed since, the records are checked again.
        """
        request, context = self._request, self._context
        partition = None
        try:
            if context.services.authorizer is not None:
                _check_may_write(topic, context)
            partition = leader(topic, data.index, context) if led is None or led.is_resigned else led
            records = _checked(data.records, request, context)
            if partition.log.walks_records and partition.log.config is not walked_for:
                walk = context.in_slices(_wrong(partition.log.records_check(records)))
                return then(walk, partial(self._append_walked, topic, data, answer, partition.log.config))
            if context.services.refused_batches.lowest:
                _check_comes_next(partition, _where(topic, data), records, context)
            if request.transactional_id is None:
                appended = partition.append(records, required_acks=request.acks, records_checked=True)
            else:
                outcome = append_in_transaction(
                    partition, records, request.acks, request.transactional_id, context, self._verification
                )
                if isinstance(outcome, Future):
                    return then(outcome, partial(self._note, topic, data, answer, partition, records))
                if isinstance(outcome, KafkaError):
                    self._note(topic, data, answer, partition, records, outcome)
                    return None
                appended = outcome
        except KafkaError as error:
            self._not_appended(answer, partition, _in_order(_where(topic, data), data.records, error, context))
            return None
        self._appended(topic, data, answer, partition, records, appended)
        return None

    def _append_walked(
        self,
        topic: TopicData,
        data: PartitionData,
        answer: PartitionResponse,
        config: LogConfig,
        wrong: KafkaError | None,
    ) -> Answer[None]:
        """Append a batch whose records have been checked one by one under the settings `config`."""
        if wrong is None:
            return self._append(topic, data, answer, walked_for=config)
        self._fail(answer, wrong)
        return None

    def _note(
        self,
        topic: TopicData,
        data: PartitionData,
        answer: PartitionResponse,
        partition: Partition,
        records: memoryview,
        appended: Appended | KafkaError,
    ) -> None:
        """Record the result of a delayed append."""
        if isinstance(appended, KafkaError):
            self._not_appended(answer, partition, _in_order(_where(topic, data), records, appended, self._context))
        else:
            self._appended(topic, data, answer, partition, records, appended)

    def _appended(
        self,
        topic: TopicData,
        data: PartitionData,
        answer: PartitionResponse,
        partition: Partition,
        records: memoryview,
        appended: Appended,
    ) -> None:
        if self._context.services.refused_batches.lowest:
            _forget_refused(_where(topic, data), records, self._context)
        answer.base_offset, answer.log_append_time_ms = appended
        answer.log_start_offset = partition.log.state.log_start_offset
        if partition.waits_for_disk or (self._request.acks == ACKS_ALL and not partition.is_alone):
            self._replicate(answer, partition, answer.base_offset + _count(records))

    def _not_appended(self, answer: PartitionResponse, partition: Partition | None, error: KafkaError) -> None:
        if partition is not None and error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            # The producer compares the log start offset with the offset of its last acknowledged record, to find out
            # whether its records were deleted (S28).
            answer.log_start_offset = partition.log.log_start_offset
        is_in_the_log = error.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if (
            partition is not None
            and is_in_the_log
            and (partition.waits_for_disk or (self._request.acks == ACKS_ALL and not partition.is_alone))
        ):
            # Clients treat DUPLICATE_SEQUENCE_NUMBER as a success (S12), so the batch must be replicated and synced
            # before the response.
            self._replicate(answer, partition, partition.log.log_end_offset)
        if partition is not None:
            partition.traffic.failed_produces += 1
            partition.traffic.fenced += error.code in FENCED
        self._fail(answer, error)

    def _replicate(self, answer: PartitionResponse, partition: Partition, next_offset: int) -> None:
        # Start the wait now. After a later start, the wait might end because of another leader's record at the same
        # offset.
        committed = partition.acknowledged(next_offset, self._request.acks)
        if isinstance(committed, Future) or committed is not ErrorCode.NONE:
            self._unreplicated = self._unreplicated or []
            self._unreplicated.append((answer, partition, committed))

    def _fail(self, answer: PartitionResponse, error: KafkaError) -> None:
        self._failed = str(error)
        answer.error_code = code_for(self._context.api_key, self._context.version, error.code)
        answer.error_message = error.message
        self._is_misplaced = self._is_misplaced or error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        if isinstance(error, RecordsRefused):
            answer.record_errors = [
                PartitionResponse.BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=message)
                for place, message in error.records
            ]

    # --- methods that build the response ------------------------------------------------------------------------------

    @property
    def is_replicated(self) -> bool:
        """Whether no append is waiting for other replicas or for the disk."""
        return self._unreplicated is None

    def when_replicated(self, _: None) -> Answer[ProduceResponse | None]:
        """Return the response as soon as the appends may be acknowledged, or the request's timeout has passed."""
        if self._unreplicated is None:
            return self.answer()
        self._context.effects_are_done()
        deadlines, acks, timeout_ms = self._context.services.deadlines, self._request.acks, self._request.timeout_ms
        codes = [
            no_longer_than(wait_seconds(acks, timeout_ms, partition), committed, deadlines)
            for _, partition, committed in self._unreplicated
        ]
        if len(codes) == 1:  # the usual case of one append: without `all_of`, which needs one more loop iteration
            return then(codes[0], lambda code: self._answer_replicated([code]))
        return then(all_of(codes), self._answer_replicated)

    def _answer_replicated(self, codes: list[ErrorCode]) -> ProduceResponse | None:
        for (answer, partition, _), code in zip(self._unreplicated or (), codes, strict=True):
            if code is not ErrorCode.NONE:
                lacking = "synced" if code is ErrorCode.KAFKA_STORAGE_ERROR else "replicated"
                self._fail(answer, KafkaError(code, f"{partition.topic}-{partition.index}: appended, not {lacking}"))
        return self.answer()

    def answer(self) -> ProduceResponse | None:
        """Return the response with the results so far; None if the client expects no response (acks=0)."""
        if self._request.acks != 0:
            if self._is_misplaced and self._context.version >= FIRST_PRODUCE_VERSION:
                self._say_who_leads()
            return self._response
        if self._failed is not None:
            self._context.connection.close(f"acks=0 produce failed: {self._failed}")
        return None

    def _say_who_leads(self) -> None:
        hints, by_id = LeaderHints(self._context), self._context.version >= FIRST_TOPIC_ID_VERSION
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    hint = hints.of(topic.name, topic.topic_id, answer.index, by_id=by_id)
                    answer.current_leader = (
                        None if hint is None else PartitionResponse.LeaderIdAndEpoch(**hint._asdict())
                    )
        self._response.node_endpoints = [
            ProduceResponse.NodeEndpoint(**endpoint._asdict()) for endpoint in hints.endpoints()
        ]


def _wrong(walk: Steps[None]) -> Steps[KafkaError | None]:
    """Run the check of a batch's records; returns the error that the check raises, or None."""
    try:
        yield from walk
    except KafkaError as error:
        return error.as_value()
    return None


def _nothing(_: object) -> None:
    """Ignore the result of a successful record check: None means that there is no error."""


def _unanswered(data: PartitionData) -> PartitionResponse:
    return PartitionResponse(index=data.index, error_code=0, base_offset=-1)


def wait_seconds(acks: int, timeout_ms: int, partition: Partition) -> float:
    """Return the maximum seconds for which a request waits for its append to `partition`."""
    seconds = max(0, timeout_ms) / 1000
    return seconds if acks == ACKS_ALL and not partition.is_alone else max(seconds, SYNC_SECONDS)


def _count(records: memoryview) -> int:
    """Return the number of offsets in a batch, from its base offset to its last offset."""
    (last_offset_delta,) = LAST_OFFSET_DELTA.unpack_from(records, LAST_OFFSET_DELTA_AT)
    return int(last_offset_delta) + 1


def _not_transactional() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, "a request with a transactional id and records that are not")


def leader(topic: TopicData, index: int, context: RecordContext) -> Partition:
    """Return the partition, which this broker leads. Does not check whether this broker's session with the metadata
    store may have expired, because `Partition.append` checks this. Also raises KafkaError for an internal topic, which
    clients may not write to, whichever broker leads it.
    """
    replicas = context.services.replicas
    try:
        if context.version >= FIRST_TOPIC_ID_VERSION:
            partition = replicas.led_by_id(topic.topic_id, index)
        else:
            partition = replicas.led_by_name(topic.name, index)
    except KafkaError as error:
        name = _name_of(topic, context)
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and name in INTERNAL_TOPICS:
            raise _internal(name) from None
        raise
    if partition.topic in INTERNAL_TOPICS:
        raise _internal(partition.topic)
    return partition


def _check_may_write(topic: TopicData, context: RecordContext) -> None:
    """Raises KafkaError if the sender may not write to the topic; no error for a topic that does not exist, because the
    method `leader` reports this error.
    """
    name = _name_of(topic, context)
    if name and not context.may(rules.PRODUCE, name):
        raise KafkaError(rules.PRODUCE.refused)


def _name_of(topic: TopicData, context: RecordContext) -> str:
    if context.version < FIRST_TOPIC_ID_VERSION:
        return topic.name
    known = context.services.image.topic_by_id(topic.topic_id)
    return "" if known is None else known.name


def _internal(name: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to the internal {name}")


def _checked(records: object, request: ProduceRequest, context: RecordContext) -> memoryview:
    """Return the batch if it passes all checks that need no access to the log. Raises KafkaError."""
    if request.acks not in ACKS_ALLOWED:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: must be -1, 0 or 1")
    if not isinstance(records, memoryview) or len(records) < HEADER_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a Produce request carries exactly one record batch per partition")
    attributes = records[ATTRIBUTES_LOW_BYTE_AT]
    if attributes & TRANSACTIONAL_BIT:
        if request.transactional_id is None:
            # Refuse a transactional batch without a transactional id, because the right to write in a transaction is
            # checked with this id (CVE-2018-17196).
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records without a transactional id"
            )
    elif request.transactional_id is not None:
        raise _not_transactional()
    if attributes & COMPRESSION_MASK == Compression.ZSTD and context.version < FIRST_ZSTD_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {FIRST_ZSTD_VERSION} or later, this is {context.version}",
        )
    return records


def _where(topic: TopicData, data: PartitionData) -> Destination:
    return Destination(topic.name, topic.topic_id, data.index)


def _check_comes_next(partition: Partition, where: Destination, records: memoryview, context: RecordContext) -> None:
    """Raises KafkaError if an earlier batch of the producer was refused, and the partition has no state of the
    producer, so that it would accept a later batch first.
    """
    producer = ProducerIdAndEpoch(*PRODUCER.unpack_from(records, PRODUCER_AT))
    if producer.producer_id >= 0 and partition.log.takes_any_sequence(producer.producer_id):
        (sequence,) = BASE_SEQUENCE.unpack_from(records, BASE_SEQUENCE_AT)
        services = context.services
        reason = services.refused_batches.reason(where, producer, sequence, services.clock.monotonic())
        if reason is not None:
            raise KafkaError(reason, FIRST_WAS_REFUSED)


def _in_order(where: Destination, records: object, error: KafkaError, context: RecordContext) -> KafkaError:
    """Return the error for a batch that is not appended. If the batch is out of order only because an earlier batch was
    refused, return the error of the earlier batch.
    """
    if not isinstance(records, memoryview) or len(records) < HEADER_SIZE:
        return error
    producer = ProducerIdAndEpoch(*PRODUCER.unpack_from(records, PRODUCER_AT))
    (sequence,) = BASE_SEQUENCE.unpack_from(records, BASE_SEQUENCE_AT)
    if producer.producer_id < 0 or sequence < 0:
        return error
    refused, now = context.services.refused_batches, context.services.clock.monotonic()
    if error.code in RETRIABLE:
        refused.note(where, producer, sequence, error.code, now)
    elif error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        reason = refused.reason(where, producer, sequence, now)
        if reason is not None:
            return KafkaError(reason, FIRST_WAS_REFUSED)
    return error


def _forget_refused(where: Destination, records: memoryview, context: RecordContext) -> None:
    producer_id, _ = PRODUCER.unpack_from(records, PRODUCER_AT)
    services = context.services
    services.refused_batches.forget(where, producer_id, services.clock.monotonic())
