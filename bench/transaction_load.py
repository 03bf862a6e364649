"""Sends transactions as prepared requests over raw connections, to measure their cost for the broker without a client
library.

librdkafka, aiokafka and Kafka before 4.0 use V1, in which separate requests add partitions and offsets. V2 is KIP-890:
in V2, Produce and TxnOffsetCommit themselves add partitions and offsets, and each transaction has its own epoch.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from raw import RawClient, decoded, prepared

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from oncelog_protocol.records.builder import RecordBatchBuilder

FIND_VERSION, INIT_VERSION, ADD_VERSION, COMMIT_VERSION = 3, 4, 3, 7
PRODUCE_VERSIONS: Final = {1: 9, 2: 12}
END_VERSIONS: Final = {1: 3, 2: 5}
OFFSET_VERSIONS: Final = {1: 3, 2: 5}
GROUP: Final = 0
TRANSACTION: Final = 1
PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
PASSES_WITHIN_SECONDS: Final = 20.0
API_KEY: Final = slice(4, 6)
ADD_PARTITIONS: Final = ApiKey.ADD_PARTITIONS_TO_TXN.to_bytes(2, "big")
LAST_ERROR: Final = slice(-5, -3)
"""The position of the last partition's error in the response to AddPartitionsToTxn v3; all partitions have the same
error.
"""
CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS.to_bytes(2, "big")
BACKOFF_SECONDS: Final = 0.001

Requests = list[bytes]
"""The frames of one transaction; each is sent after the response to the previous one."""


def find_coordinator(client: RawClient, key: str, kind: int) -> None:
    """Find the coordinator; the request also makes the broker create the internal topic."""
    deadline = time.monotonic() + PASSES_WITHIN_SECONDS
    request = FindCoordinatorRequest(key=key, key_type=kind)
    while (code := client.call(request, ApiKey.FIND_COORDINATOR, FIND_VERSION).error_code) in PASSING:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    if code:
        raise RuntimeError(f"no coordinator: error {code}")


class Batch(NamedTuple):
    """The number of records in the batch of each partition, and the size of each record in bytes."""

    records: int
    record_bytes: int


ONE_RECORD: Final = Batch(1, 100)


@dataclass
class RawProducer:
    """One producer over one connection. `version` is the transaction version (1 or 2). Without a transactional id the
    producer is only idempotent; with `version` 0 it is not even idempotent.
    """

    client: RawClient
    topic: str
    partitions: Sequence[int]
    batch: Batch
    version: int = 1
    transactional_id: str | None = None
    group: str | None = None
    """The group whose offset is committed with each transaction."""

    def __post_init__(self) -> None:
        self._builder = RecordBatchBuilder(size_limit=1 << 24)
        now = time.time_ns() // 1_000_000
        for _ in range(self.batch.records):
            self._builder.append(now, None, b"v" * self.batch.record_bytes, [])
        self._builder.close()
        self._sequence = self._offset = 0
        self._producer_id, self._epoch = -1, -1
        if self.version:
            self._initialise()

    def _initialise(self) -> None:
        if self.transactional_id is not None:
            find_coordinator(self.client, self.transactional_id, TRANSACTION)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        deadline = time.monotonic() + PASSES_WITHIN_SECONDS
        while (answer := self.client.call(request, ApiKey.INIT_PRODUCER_ID, INIT_VERSION)).error_code:
            if answer.error_code not in PASSING or time.monotonic() > deadline:
                raise RuntimeError(f"InitProducerId failed: error {answer.error_code}")
            time.sleep(0.01)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def produce(self) -> bytes:
        """Return the next Produce request, with a batch for each partition."""
        stamp = {"producer_id": self._producer_id, "producer_epoch": self._epoch, "base_sequence": self._sequence}
        batch = bytes(
            self._builder.build(**stamp, transactional=self.transactional_id is not None)
            if self.version
            else self._builder.build()
        )
        self._sequence += self.batch.records
        data = ProduceRequest.TopicProduceData
        partitions = [data.PartitionProduceData(index=index, records=batch) for index in self.partitions]
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[data(name=self.topic, partition_data=partitions)],
        )
        return prepared(request, ApiKey.PRODUCE, PRODUCE_VERSIONS[self.version or 1])

    def transaction(self, batches: int = 1) -> Requests:
        """Return the requests of the next transaction: `batches` batches to each partition, then the commit."""
        frames = []
        if self.version == 1:
            frames.append(self._add_partitions())
        frames += [self.produce() for _ in range(batches)]
        if self.group is not None:
            if self.version == 1:
                frames.append(self._add_offsets())
            frames.append(self._commit_in_transaction())
        frames.append(self._end())
        if self.version == 2:
            self._epoch += 1
            self._sequence = 0
        return frames

    def _add_partitions(self) -> bytes:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=list(self.partitions))],
        )
        return prepared(request, ApiKey.ADD_PARTITIONS_TO_TXN, ADD_VERSION)

    def _add_offsets(self) -> bytes:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=self.group,
        )
        return prepared(request, ApiKey.ADD_OFFSETS_TO_TXN, ADD_VERSION)

    def _commit_in_transaction(self) -> bytes:
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        self._offset += 1
        partition = topic.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=self._offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[topic(name=self.topic, partitions=[partition])],
        )
        return prepared(request, ApiKey.TXN_OFFSET_COMMIT, OFFSET_VERSIONS[self.version])

    def _end(self) -> bytes:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        return prepared(request, ApiKey.END_TXN, END_VERSIONS[self.version])

    def commit_offset(self) -> bytes:
        """Return an OffsetCommit request, as a consumer without transactions sends it."""
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        self._offset += 1
        partition = topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self._offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group, member_id="", topics=[topic(name=self.topic, partitions=[partition])]
        )
        return prepared(request, ApiKey.OFFSET_COMMIT, COMMIT_VERSION)


def check(request: bytes, frame: bytes) -> None:
    """Raise RuntimeError if the response to `request` has an error."""
    api, version = ApiKey(int.from_bytes(request[4:6], "big")), int.from_bytes(request[6:8], "big")
    codes = list(_error_codes(decoded(frame, api, version)))
    if any(codes):
        raise RuntimeError(f"{api.name} v{version} failed: errors {codes}")


def _error_codes(answer: object) -> Iterator[int]:
    """Yield all error codes in a response, at any depth."""
    for name in getattr(type(answer), "__slots__", ()):
        value = getattr(answer, name)
        if name.endswith("error_code"):
            yield int(value)
        elif isinstance(value, list):
            for item in value:
                yield from _error_codes(item)


class Taken(NamedTuple):
    """The seconds that one transaction took, and the seconds of its last request, the commit."""

    whole: float
    commit: float


def one_after_another(client: RawClient, transactions: Iterable[Requests]) -> list[Taken]:
    """Send each request after the response to the previous one; then check all responses. A transaction that is refused
    because the previous one is being completed is started again, and that time is included.
    """
    taken, answers = [], list[tuple[bytes, bytes]]()
    for requests in transactions:
        begun = started = time.perf_counter()
        for request in requests:
            started = time.perf_counter()
            client.socket.sendall(request)
            frame = client.read_frame()
            while request[API_KEY] == ADD_PARTITIONS and frame[LAST_ERROR] == CONCURRENT:
                time.sleep(BACKOFF_SECONDS)
                client.socket.sendall(request)
                frame = client.read_frame()
            answers.append((request, frame))
        ended = time.perf_counter()
        taken.append(Taken(ended - begun, ended - started))
    for request, frame in answers:
        check(request, frame)
    return taken


def side_by_side(clients: Sequence[RawClient], transactions: Sequence[Sequence[Requests]]) -> tuple[float, list[Taken]]:
    """Do the same as `one_after_another` for all clients concurrently, each over its own connection. Return the total
    seconds, and the seconds of each transaction.
    """
    begun = time.perf_counter()
    runs = [_Run(client, mine) for client, mine in zip(clients, transactions, strict=True)]
    with selectors.DefaultSelector() as selector:
        for run in runs:
            selector.register(run.client.socket, selectors.EVENT_READ, run)
            run.send_next()
        refused: list[_Run] = []
        while selector.get_map():
            ready = selector.select(BACKOFF_SECONDS if refused else 30.0)
            if not ready and not refused:
                raise RuntimeError("the broker does not answer")
            again, refused = refused, []
            for run in again:
                run.send_again()
            for key, _ in ready:
                if not key.data.receive():
                    refused.append(key.data)
                elif key.data.is_done:
                    selector.unregister(key.fileobj)
    seconds = time.perf_counter() - begun
    for run in runs:
        for request, frame in run.answers:
            check(request, frame)
    return seconds, [took for run in runs for took in run.taken]


class _Run:
    """The transactions of one client, with one request in flight."""

    def __init__(self, client: RawClient, transactions: Sequence[Requests]) -> None:
        self.client = client
        self.taken: list[Taken] = []
        self.answers: list[tuple[bytes, bytes]] = []
        self.is_done = False
        self._left = iter([(request, request is mine[-1]) for mine in transactions for request in mine])
        self._request, self._is_last = b"", True
        self._begun = self._sent = 0.0

    def send_next(self) -> None:
        is_first = self._is_last
        try:
            self._request, self._is_last = next(self._left)
        except StopIteration:
            self.is_done = True
            return
        self._sent = time.perf_counter()
        if is_first:
            self._begun = self._sent
        self.client.socket.sendall(self._request)

    def send_again(self) -> None:
        self.client.socket.sendall(self._request)

    def receive(self) -> bool:
        """Receive one response, then send the next request. Returns False if the response refuses the request because
        the previous transaction is being completed; the request must then be sent again.
        """
        frame = self.client.read_frame()
        if self._request[API_KEY] == ADD_PARTITIONS and frame[LAST_ERROR] == CONCURRENT:
            return False
        self.answers.append((self._request, frame))
        if self._is_last:
            now = time.perf_counter()
            self.taken.append(Taken(now - self._begun, now - self._sent))
        self.send_next()
        return True
