"""Sends single requests of a transactional producer, so that tests can send requests late, twice, or with an
old epoch.
"""

from __future__ import annotations

from typing import Any

import pytest
from foreign_clients import eventually
from raw_client import LIST_OFFSETS_VERSION, RawClient, produce_request
from tests.support.storage import NOW, make_batch

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.control import read_marker
from oncelog_protocol.records.record import read_records

READ_COMMITTED = 1
V1_PRODUCE, V2_PRODUCE = 9, 12
V1_END, V2_END = 3, 5
V1_ADD = 3
TIMEOUT_MS = 60_000
BOTH = pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])


class RawTransactions:
    """One transactional id, over one connection. With `is_v2` the requests are those of a client that uses transactions
    V2.

    `producer` is the producer id and epoch of the written records, `timestamp_ms` is their timestamp. Each call
    returns the error code; the calls `begin` and `must` instead raise AssertionError for an error.
    """

    def __init__(
        self, client: RawClient, transactional_id: str, *, is_v2: bool = False, timestamp_ms: int = NOW
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.is_v2 = is_v2
        self.timestamp_ms = timestamp_ms
        self.producer = ProducerIdAndEpoch(-1, -1)
        self.sequences: dict[tuple[str, int], int] = {}
        self.find_coordinator()

    def find_group(self, group_id: str) -> None:
        """Find the group's coordinator; the first FindCoordinator request creates the internal topic of groups."""
        request = FindCoordinatorRequest(key=group_id)
        eventually(
            lambda: self.client.call(request, ApiKey.FIND_COORDINATOR, 2).error_code == 0, "the group has a coordinator"
        )

    def find_coordinator(self) -> None:
        request = FindCoordinatorRequest(key=self.transactional_id, key_type=CoordinatorType.TRANSACTION)
        eventually(
            lambda: self.client.call(request, ApiKey.FIND_COORDINATOR, 2).error_code == 0, "there is a coordinator"
        )

    def init(self, version: int = 4, timeout_ms: int = TIMEOUT_MS, shown: ProducerIdAndEpoch | None = None) -> int:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1 if shown is None else shown.producer_id,
            producer_epoch=-1 if shown is None else shown.epoch,
        )
        answer = self.client.call(request, ApiKey.INIT_PRODUCER_ID, version)
        if answer.error_code == 0:
            self.producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return int(answer.error_code)

    def take_over(self, **options: Any) -> ProducerIdAndEpoch:
        """Send InitProducerId until the response has no error."""
        eventually(lambda: self.init(**options) == 0, "the transactional id is free")
        return self.producer

    def add_request(
        self, topic: str, *partitions: int, asking: ProducerIdAndEpoch | None = None
    ) -> AddPartitionsToTxnRequest:
        producer = asking or self.producer
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))],
        )

    def add(self, topic: str, *partitions: int, asking: ProducerIdAndEpoch | None = None, version: int = V1_ADD) -> int:
        request = self.add_request(topic, *partitions, asking=asking)
        answer = self.client.call(request, ApiKey.ADD_PARTITIONS_TO_TXN, version)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce(
        self,
        topic: str,
        partition: int = 0,
        *,
        asking: ProducerIdAndEpoch | None = None,
        sequence: int | None = None,
        version: int | None = None,
        value: bytes | None = None,
        key: bytes = b"k",
    ) -> int:
        """Send one record in a Produce request, and return the error code."""
        number = self.sequences.get((topic, partition), 0) if sequence is None else sequence
        request = self.produce_request(topic, partition, number, asking, value, key)
        answer = self.client.call(request, ApiKey.PRODUCE, version or self.produce_version)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if code == 0 and sequence is None:
            self.sequences[topic, partition] = number + 1
        return code

    def produce_request(
        self,
        topic: str,
        partition: int,
        sequence: int,
        asking: ProducerIdAndEpoch | None = None,
        value: bytes | None = None,
        key: bytes = b"k",
    ) -> ProduceRequest:
        """Return the request that sends one record with this sequence; by default, the record's value shows producer id
        and sequence.
        """
        pid, epoch = asking or self.producer
        batch = make_batch(
            b"%d/%d" % (pid, sequence) if value is None else value,
            timestamp=self.timestamp_ms,
            key=key,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request(topic, partition, batch)
        request.transactional_id = self.transactional_id
        return request

    @property
    def produce_version(self) -> int:
        return V2_PRODUCE if self.is_v2 else V1_PRODUCE

    @property
    def end_version(self) -> int:
        return V2_END if self.is_v2 else V1_END

    def write(self, topic: str, *partitions: int, value: bytes | None = None, key: bytes = b"k") -> None:
        """Write a record to each partition, in the open transaction or a new one."""
        for partition in partitions or (0,):
            if not self.is_v2:
                eventually(lambda: self.add(topic, partition) == 0, "the last transaction is complete")  # noqa: B023
            eventually(
                lambda: self.produce(topic, partition, value=value, key=key) == 0,  # noqa: B023
                "the last transaction is complete",
            )

    def end_request(self, commits: bool, asking: ProducerIdAndEpoch | None = None) -> EndTxnRequest:
        producer = asking or self.producer
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commits,
        )

    def end(self, commits: bool = True, *, asking: ProducerIdAndEpoch | None = None, version: int | None = None) -> int:
        version = version or self.end_version
        answer = self.client.call(self.end_request(commits, asking), ApiKey.END_TXN, version)
        if answer.error_code == 0 and version >= V2_END:
            self.producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return int(answer.error_code)

    def add_offsets(self, group_id: str) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            group_id=group_id,
        )
        return int(self.client.call(request, ApiKey.ADD_OFFSETS_TO_TXN, 3).error_code)

    def commit_offset(self, group_id: str, topic: str, offset: int, version: int = 3, **member: Any) -> int:
        asked = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = asked.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            topics=[asked(name=topic, partitions=[partition])],
            **member,
        )
        answer = self.client.call(request, ApiKey.TXN_OFFSET_COMMIT, version)
        return int(answer.topics[0].partitions[0].error_code)


def last_stable_offset(client: RawClient, topic: str, partition: int = 0) -> int:
    asked = ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[
            asked(
                name=topic,
                partitions=[asked.ListOffsetsPartition(partition_index=partition, timestamp=LATEST_TIMESTAMP)],
            )
        ],
    )
    (found,) = client.call(request, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION).topics[0].partitions
    assert found.error_code == ErrorCode.NONE, found
    return int(found.offset)


def is_stable(client: RawClient, topic: str, partition: int = 0) -> bool:
    """Return whether no transaction blocks read_committed consumers of this partition."""
    return last_stable_offset(client, topic, partition) == client.list_offset(topic, partition)[0]


def content(client: RawClient, topic: str, partition: int = 0) -> list[str]:
    """Return the contents of the log as a list of "data", "commit" and "abort"."""
    found, offset = [], 0
    while batches := client.fetch(topic, partition, offset):
        for batch in batches:
            if batch.is_control:
                marker = read_marker(batch)
                assert marker is not None
                found.append("commit" if marker.is_commit else "abort")
            else:
                found += ["data"] * len(list(read_records(batch)))
            offset = batch.next_offset
    return found


def committed_offset(
    client: RawClient, group: str, topic: str, *, stable: bool = False, partition: int = 0
) -> tuple[int, int]:
    """Return the error code and the committed offset of the group from an OffsetFetch response."""
    asked = OffsetFetchRequest.OffsetFetchRequestTopic
    request = OffsetFetchRequest(
        group_id=group, topics=[asked(name=topic, partition_indexes=[partition])], require_stable=stable
    )
    answer = client.call(request, ApiKey.OFFSET_FETCH, 7)
    if answer.error_code:
        return answer.error_code, -1
    (found,) = answer.topics[0].partitions
    return found.error_code, found.committed_offset


def new_producer_id(client: RawClient, version: int = 4) -> ProducerIdAndEpoch:
    """Return the id and epoch of a new idempotent producer without transactions."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
    answer = client.call(request, ApiKey.INIT_PRODUCER_ID, version)
    assert answer.error_code == 0, answer
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
