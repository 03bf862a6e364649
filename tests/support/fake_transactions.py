"""A model of a Kafka broker's state of producers and transactions, small enough to be checked by reading.

The model serves tests of the client, beside the fake broker. The model is written from Kafka's rules and shares no code
with the oncelog broker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import singledispatchmethod
from typing import Any

from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from oncelog_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.record import read_records

REMEMBERED_BATCHES = 5
SEQUENCES = 2**31
V2_END, V2_PRODUCE = 5, 12

Place = tuple[str, int]


@contextlib.contextmanager
def impatient(producer: Any) -> Iterator[None]:
    """Limit the waits of a producer (max.block.ms) to 1 ms within this block."""
    config, before = producer.config, producer.config.max_block_ms
    object.__setattr__(config, "max_block_ms", 1)
    try:
        yield
    finally:
        object.__setattr__(config, "max_block_ms", before)


class HangUp(Exception):
    """Raised by a handler to close the connection and send no response."""


class Step(Enum):
    """A connection failure that the test chooses in place of a response."""

    PASS = auto()
    DROPPED = auto()  # the connection breaks before the broker has read the request
    LOST = auto()  # the connection breaks after the broker has handled the request


@dataclass
class _ProducerState:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class SequenceChecks:
    """The checks that a partition leader makes of sequence numbers and epochs (S8, S9, E4, E5)."""

    def __init__(self) -> None:
        self.states: dict[int, _ProducerState] = {}

    def check(self, batch: RecordBatch, *, is_v2: bool = False) -> tuple[ErrorCode, int | None]:
        """Return (error, None), or (NONE, offset of the original) for a duplicate batch, which is no error."""
        first, last = batch.base_sequence, (batch.base_sequence + batch.records_count - 1) % SEQUENCES
        state = self.states.get(batch.producer_id)
        if state is None:
            return (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_v2 and first else ErrorCode.NONE), None
        if batch.producer_epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, None
        if batch.producer_epoch > state.epoch or not state.batches:
            return (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if first else ErrorCode.NONE), None
        for known_first, known_last, offset in state.batches:
            if (known_first, known_last) == (first, last):
                return ErrorCode.NONE, offset
        expected = (state.batches[-1][1] + 1) % SEQUENCES
        return (ErrorCode.NONE if first == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), None

    def appended(self, batch: RecordBatch, offset: int) -> None:
        state = self.states.get(batch.producer_id)
        if state is None or state.epoch != batch.producer_epoch:
            state = self.states[batch.producer_id] = _ProducerState(batch.producer_epoch)
        last = (batch.base_sequence + batch.records_count - 1) % SEQUENCES
        state.batches.append((batch.base_sequence, last, offset))

    def marked(self, producer_id: int, epoch: int) -> None:
        """Update the producer state after a marker was appended. In transactions V2, the marker has the next producer
        epoch, in which sequence numbers start at 0.
        """
        state = self.states.get(producer_id)
        if state is None or state.epoch != epoch:
            self.states[producer_id] = _ProducerState(epoch)


@dataclass
class Transaction:
    """The coordinator's state of one transactional id. `values` and `offsets` become visible only with the commit."""

    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    owner_epoch: int | None = None
    """Epoch of the producer that has kept the open transaction (KIP-939), and that is the only one that may end the
    transaction; None if no producer has kept it.
    """
    has_timeout: bool = True
    state: str = "Empty"
    partitions: set[Place] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    values: list[tuple[Place, bytes]] = field(default_factory=list)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)


class FakeCoordinator:
    """Coordinates all transactional ids and groups for a fake broker, and checks transactional batches as a partition
    leader does.

    `script[RequestType]` lists what happens to the next requests of this type: an ErrorCode becomes the response, a
    Step breaks the connection, and an asyncio.Event is awaited before the request is handled. `committed` are the
    values of committed transactions by partition; `offsets` are the committed offsets by (group, topic, partition).
    """

    def __init__(self, broker: Any, *, is_v2: bool) -> None:
        self.broker = broker
        self.is_v2 = is_v2
        self.script: dict[type, list[Any]] = {}
        self.transactions: dict[str, Transaction] = {}
        self.logs: dict[Place, SequenceChecks] = {}
        self.committed: dict[Place, list[bytes]] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        if is_v2:
            broker.finalized["transaction.version"] = 2
        for kind in (FindCoordinatorRequest, InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest):
            broker.handlers[kind] = self._handle
        for kind in (TxnOffsetCommitRequest, EndTxnRequest, ProduceRequest, DescribeTransactionsRequest):
            broker.handlers[kind] = self._handle

    def transaction(self, transactional_id: str = "t") -> Transaction:
        return self.transactions[transactional_id]

    def kinds(self) -> list[str]:
        """Return the names of the received requests that concern transactions, in order."""
        names = [type(request).__name__.removesuffix("Request") for request in self.broker.requests]
        return [name for name in names if name not in ("Metadata", "ApiVersions", "FindCoordinator", "int")]

    async def _handle(self, request: Any) -> Any:
        version = self.broker.version
        steps = self.script.get(type(request))
        step = steps.pop(0) if steps else Step.PASS
        if isinstance(step, asyncio.Event):
            await step.wait()
        elif isinstance(step, ErrorCode):
            return self.answer(request, version, refusal=step)
        elif step is Step.DROPPED:
            raise HangUp
        response = self.answer(request, version)
        if step is Step.LOST:
            raise HangUp
        return response

    @singledispatchmethod
    def answer(self, request: Any, version: int, refusal: ErrorCode | None = None) -> Any:
        """Handle a request and return the response; tests that repeat a request late call this method, too."""
        raise NotImplementedError(type(request).__name__)

    @answer.register
    def _(self, request: FindCoordinatorRequest, version: int, refusal: ErrorCode | None = None) -> Any:
        found = FindCoordinatorResponse.Coordinator(
            key=request.coordinator_keys[0],
            node_id=1,
            host="127.0.0.1",
            port=self.broker.port,
            error_code=refusal or 0,
        )
        return FindCoordinatorResponse(coordinators=[found])

    @answer.register
    def _(self, request: InitProducerIdRequest, version: int, refusal: ErrorCode | None = None) -> Any:
        if refusal is not None:
            return InitProducerIdResponse(error_code=refusal, producer_epoch=-1)
        if request.transactional_id is None:
            return self.broker.on_init_producer_id(request)
        found = self.transactions.get(request.transactional_id)
        if found is None:
            self.broker.producer_ids += 1
            found = self.transactions[request.transactional_id] = Transaction(self.broker.producer_ids)
        shown = (request.producer_id, request.producer_epoch)
        if found.epoch < 0:
            shown = (-1, -1)  # for an unknown id Apache Kafka accepts any producer id and epoch
        if shown != (-1, -1) and shown not in ((found.producer_id, found.epoch), (found.producer_id, found.last_epoch)):
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED, producer_epoch=-1)
        found.has_timeout = not request.enable2_pc
        if found.state == "Ongoing" and request.keep_prepared_txn:
            found.owner_epoch = (found.epoch if found.owner_epoch is None else found.owner_epoch) + 1
            return InitProducerIdResponse(
                error_code=0,
                producer_id=found.producer_id,
                producer_epoch=found.owner_epoch,
                ongoing_txn_producer_id=found.producer_id,
                ongoing_txn_producer_epoch=found.epoch,
            )
        if found.state == "Ongoing":
            found.last_epoch = found.epoch if shown != (-1, -1) else -1
            found.epoch, found.owner_epoch = (found.owner_epoch or found.epoch) + 1, None
            self._end(found, commits=False, epoch=found.epoch)
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=-1)
        if shown == (-1, -1) or shown[1] == found.epoch:
            found.last_epoch = shown[1]
            found.epoch += 1
        found.state = "Empty"
        return InitProducerIdResponse(error_code=0, producer_id=found.producer_id, producer_epoch=found.epoch)

    @answer.register
    def _(self, request: AddPartitionsToTxnRequest, version: int, refusal: ErrorCode | None = None) -> Any:
        places = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
        found, code = self._check(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            refusal,
        )
        if found is not None:
            found.state = "Ongoing"
            found.partitions.update(places)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    @answer.register
    def _(self, request: AddOffsetsToTxnRequest, version: int, refusal: ErrorCode | None = None) -> Any:
        found, code = self._check(request.transactional_id, request.producer_id, request.producer_epoch, refusal)
        if found is not None:
            found.state = "Ongoing"
            found.groups.add(request.group_id)
        return AddOffsetsToTxnResponse(error_code=code)

    @answer.register
    def _(self, request: TxnOffsetCommitRequest, version: int, refusal: ErrorCode | None = None) -> Any:
        found, code = self._check(request.transactional_id, request.producer_id, request.producer_epoch, refusal)
        if found is not None and version >= V2_END:
            found.state = "Ongoing"
            found.groups.add(request.group_id)
        if found is not None and request.group_id not in found.groups:
            found, code = None, ErrorCode.INVALID_TXN_STATE  # Kafka makes this check since KIP-890
        if found is not None:
            for topic in request.topics:
                for partition in topic.partitions:
                    place = (request.group_id, topic.name, partition.partition_index)
                    found.offsets[place] = partition.committed_offset
        answer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
        return TxnOffsetCommitResponse(
            topics=[
                answer(
                    name=topic.name,
                    partitions=[
                        answer.TxnOffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=code
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    @answer.register
    def _(self, request: DescribeTransactionsRequest, version: int, refusal: ErrorCode | None = None) -> Any:
        (transactional_id,) = request.transactional_ids
        found = self.transactions.get(transactional_id, Transaction(-1))
        state = DescribeTransactionsResponse.TransactionState(
            error_code=0 if transactional_id in self.transactions else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            transactional_id=transactional_id,
            transaction_state=found.state,
            transaction_timeout_ms=60_000 if found.has_timeout else 2**31 - 1,
            transaction_start_time_ms=0,
            producer_id=found.producer_id,
            producer_epoch=found.epoch,
            topics=[],
        )
        return DescribeTransactionsResponse(transaction_states=[state])

    @answer.register
    def _(self, request: EndTxnRequest, version: int, refusal: ErrorCode | None = None) -> Any:
        found = self.transactions.get(request.transactional_id)
        if refusal is not None or found is None or request.producer_id != found.producer_id:
            return EndTxnResponse(error_code=refusal or ErrorCode.INVALID_PRODUCER_ID_MAPPING, producer_epoch=-1)
        wanted = "CompleteCommit" if request.committed else "CompleteAbort"
        is_v2 = version >= V2_END
        if is_v2 and request.producer_epoch == found.epoch - 1 and found.state in ("CompleteCommit", "CompleteAbort"):
            code = ErrorCode.NONE if found.state == wanted else ErrorCode.INVALID_TXN_STATE
        elif request.producer_epoch != (found.epoch if found.owner_epoch is None else found.owner_epoch):
            code = ErrorCode.PRODUCER_FENCED
        elif found.owner_epoch is not None:
            code = ErrorCode.NONE
            self._end(found, commits=request.committed, epoch=found.epoch + 1)
            found.epoch, found.owner_epoch = found.owner_epoch + 1, None
        elif found.state == "Ongoing" or (is_v2 and not request.committed):
            code = ErrorCode.NONE
            found.epoch += is_v2
            self._end(found, commits=request.committed, epoch=found.epoch)
        else:
            code = ErrorCode.NONE if found.state == wanted and not is_v2 else ErrorCode.INVALID_TXN_STATE
        if code or not is_v2:
            return EndTxnResponse(error_code=code, producer_epoch=-1)
        return EndTxnResponse(error_code=code, producer_id=found.producer_id, producer_epoch=found.epoch)

    @answer.register
    def _(self, request: ProduceRequest, version: int, refusal: ErrorCode | None = None) -> Any:
        def outcome(topic: str, data: Any) -> tuple[int, int]:
            if refusal is not None:
                return refusal, -1
            return self.append(data.records, topic, data.index, request.transactional_id, version)

        return self.broker.produced(request, outcome)

    def append(
        self, data: Any, topic: str, partition: int, transactional_id: str | None = None, version: int = V2_PRODUCE
    ) -> tuple[int, int]:
        """Append one batch as the partition leader does. Returns (error code, base offset)."""
        place, batch = (topic, partition), RecordBatch(bytes(data))
        is_v2 = self.is_v2 and version >= V2_PRODUCE
        checks = self.logs.setdefault(place, SequenceChecks())
        found = None if transactional_id is None else self.transactions.get(transactional_id)
        assert batch.is_transactional is (transactional_id is not None)
        code, offset = checks.check(batch, is_v2=is_v2 and transactional_id is not None)
        if code or offset is not None:
            return code, -1 if offset is None else offset
        # The partition leader learns from the coordinator's verification whether the transaction is open (KIP-890).
        if transactional_id is not None and found is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1
        if found is not None:
            if (batch.producer_id, batch.producer_epoch) != (found.producer_id, found.epoch):
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if is_v2:
                found.state = "Ongoing"
                found.partitions.add(place)
            elif found.state != "Ongoing" or place not in found.partitions:
                return ErrorCode.INVALID_TXN_STATE, -1
            found.values += [(place, value) for value in _values(batch)]
        offset = self.broker.append(bytes(data), topic, partition)
        checks.appended(batch, offset)
        return ErrorCode.NONE, offset

    def time_out(self, transactional_id: str = "t") -> None:
        """Let transaction.timeout.ms expire: the coordinator aborts the transaction on its own, with the next epoch
        (S42).
        """
        found = self.transactions[transactional_id]
        assert found.state == "Ongoing"
        found.last_epoch = found.epoch
        found.epoch += 1
        self._end(found, commits=False, epoch=found.epoch)

    def take_over(self, transactional_id: str = "t") -> None:
        """Let another producer start with this transactional id (S41)."""
        found = self.transactions[transactional_id]
        found.epoch += 1
        found.last_epoch = -1
        self._end(found, commits=False, epoch=found.epoch)
        found.state = "Empty"

    def forget(self, transactional_id: str = "t") -> None:
        """Let transactional.id.expiration.ms expire, which removes the transactional id (S43)."""
        del self.transactions[transactional_id]

    def _check(
        self, transactional_id: str, producer_id: int, epoch: int, refusal: ErrorCode | None
    ) -> tuple[Transaction | None, ErrorCode]:
        found = self.transactions.get(transactional_id)
        if refusal is not None:
            return None, refusal
        if found is None or found.producer_id != producer_id:
            return None, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if found.epoch != epoch:
            return None, ErrorCode.PRODUCER_FENCED
        return found, ErrorCode.NONE

    def _end(self, found: Transaction, *, commits: bool, epoch: int) -> None:
        for place in found.partitions:
            self.logs.setdefault(place, SequenceChecks()).marked(found.producer_id, epoch)
        if commits:
            for place, value in found.values:
                self.committed.setdefault(place, []).append(value)
            self.offsets.update(found.offsets)
        found.state = "CompleteCommit" if commits else "CompleteAbort"
        found.partitions.clear()
        found.groups.clear()
        found.values.clear()
        found.offsets.clear()


def _values(batch: RecordBatch) -> Iterator[bytes]:
    return (bytes(record.value or b"") for record in read_records(batch))
