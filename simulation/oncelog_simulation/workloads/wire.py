"""Sends requests of producers as no client library would send them: with any version, epoch or sequence, twice or too
late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, NamedTuple, Self, TypeVar

from oncelog.config import ClientConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import ConnectionFailed, KafkaError
from oncelog.metadata.coordinators import find_coordinator
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record
from oncelog_protocol.schema import Request
from oncelog_simulation.workloads.workload import COMMON
from oncelog_testing.history.events import Place

T = TypeVar("T")
R = TypeVar("R")

MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors that decide nothing: the same request may be sent again, and then has the same effect as the first time."""
BUSY: Final = MOVED | {ErrorCode.CONCURRENT_TRANSACTIONS}
PATIENCE_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 0.1
TIMESTAMP_MS: Final = -1
V1_PRODUCE, V2_PRODUCE = 9, 12
V1_END, V2_END = 3, 5
V1_ADD: Final = 3
INIT, TWO_PHASE_INIT = 4, 6


class Answered(NamedTuple):
    """The outcome of a Produce request."""

    code: ErrorCode
    offset: int = -1
    """Offset of the record; -1 for an error."""
    attempts: int = 1
    """How often the request was sent. If it is more than one, a refusal is not certain: a request that was refused the
    second time may have been accepted the first time.
    """


class Wire:
    """Raw connections to all brokers; an async context manager."""

    def __init__(self, bootstrap_servers: str) -> None:
        config = ClientConfig(bootstrap_servers=bootstrap_servers, client_id="wire", **COMMON)
        self._pool = ConnectionPool(config)
        self._metadata = Metadata(self._pool, config)
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}

    async def __aenter__(self) -> Self:
        await self._metadata.refresh()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._metadata.close()
        await self._pool.close()

    async def follow(self, topics: Collection[str]) -> None:
        """Look up the leaders of these topics' partitions."""
        self._metadata.in_use.append(lambda: topics)
        await self._metadata.refresh()

    # --- requests that are sent once: the methods raise KafkaError if no response arrives

    async def to_leader(self, place: Place, request: Request[R], version: int) -> R:
        """Send a request to the known leader of the partition."""
        leader = self._metadata.cluster.leader(*place)
        if leader < 0:
            await self._metadata.try_refresh()
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        connection = await self._pool.connection(leader)
        return await connection.send(request, version)

    async def to_coordinator(
        self, key: str, request: Request[R], version: int, kind: CoordinatorType = CoordinatorType.TRANSACTION
    ) -> R:
        """Send a request to the coordinator of the transactional id or group; looks up the coordinator if it is not
        known yet.
        """
        node = self._coordinators.get((kind, key))
        if node is None:
            found = await find_coordinator(self._pool, key, kind, elsewhere=True)
            node = self._coordinators[kind, key] = found.node_id
        connection = await self._pool.connection(node)
        return await connection.send(request, version)

    async def produce(self, place: Place, batch: bytes, transactional_id: str | None, version: int) -> Answered:
        """Produce one batch with acks=all."""
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=4_000,
            topic_data=[
                data(name=place.topic, partition_data=[data.PartitionProduceData(index=place.index, records=batch)])
            ],
        )
        answer = (await self.to_leader(place, request, version)).responses[0].partition_responses[0]
        return Answered(ErrorCode.of(answer.error_code), answer.base_offset)

    async def init(
        self, transactional_id: str, timeout_ms: int, *, is_two_phase: bool = False
    ) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        """Send InitProducerId as a new producer. With `is_two_phase` transactions have no timeout, and an open
        transaction is kept open (KIP-939).
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=is_two_phase,
            keep_prepared_txn=is_two_phase,
        )
        answer = await self.to_coordinator(transactional_id, request, TWO_PHASE_INIT if is_two_phase else INIT)
        return ErrorCode.of(answer.error_code), ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    async def new_producer_id(self) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        """Send InitProducerId without a transactional id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await self._pool.ask_any(request)
        return ErrorCode.of(answer.error_code), ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    async def add(self, transactional_id: str, asking: ProducerIdAndEpoch, place: Place) -> ErrorCode:
        """Send AddPartitionsToTxn, as clients before transactions V2 do."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=asking.producer_id,
            v3_and_below_producer_epoch=asking.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place.topic, partitions=[place.index])],
        )
        answer = await self.to_coordinator(transactional_id, request, V1_ADD)
        return ErrorCode.of(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    async def add_offsets(self, transactional_id: str, asking: ProducerIdAndEpoch, group: str) -> ErrorCode:
        """Send AddOffsetsToTxn, as clients before transactions V2 do."""
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=asking.producer_id,
            producer_epoch=asking.epoch,
            group_id=group,
        )
        answer = await self.to_coordinator(transactional_id, request, V1_ADD)
        return ErrorCode.of(answer.error_code)

    async def end(
        self, transactional_id: str, asking: ProducerIdAndEpoch, *, commits: bool, version: int
    ) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        """Send EndTxn. Returns the error, and the producer id and epoch with which to continue, which transactions V2
        changes.
        """
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=asking.producer_id,
            producer_epoch=asking.epoch,
            committed=commits,
        )
        answer = await self.to_coordinator(transactional_id, request, version)
        successor = asking
        if version >= V2_END and answer.producer_id >= 0:
            successor = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        return ErrorCode.of(answer.error_code), successor

    # --- requests that are repeated until a broker decides

    async def until_decided(
        self, ask: Callable[[], Awaitable[T]], code_of: Callable[[T], ErrorCode], passing: Collection[ErrorCode] = MOVED
    ) -> T:
        """Repeat the request until a broker has accepted or refused it, and return this response. Raises KafkaError
        REQUEST_TIMED_OUT if no decision arrives in time.
        """
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        attempts = 0
        while asyncio.get_running_loop().time() < deadline:
            attempts += 1
            try:
                answer = await ask()
            except (ConnectionFailed, KafkaError) as error:
                if not error.retriable:
                    raise
            else:
                if code_of(answer) not in passing:
                    return answer._replace(attempts=attempts) if isinstance(answer, Answered) else answer
            self._coordinators.clear()
            await self._metadata.try_refresh()
            await asyncio.sleep(RETRY_SECONDS)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody decides")


def one_record(
    value: bytes, writer: ProducerIdAndEpoch, sequence: int, now_ms: int, *, is_transactional: bool, key: bytes = b"k"
) -> bytes:
    """Return a batch with one record."""
    return bytes(
        build_batch(
            [Record(0, now_ms, key, value, [])],
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            base_sequence=sequence,
            transactional=is_transactional,
        )
    )


def code(answer: Any) -> ErrorCode:
    """Return the error code of a response of `Wire`."""
    return answer if isinstance(answer, ErrorCode) else answer[0]
