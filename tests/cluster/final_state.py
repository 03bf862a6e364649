"""Adds the final state to a `History`: the records that readers find, and the log of each replica on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from foreign_clients import Received
from librdkafka_client import Librdkafka
from oncelog_client import Oncelog
from raw_transactions import is_stable, last_stable_offset
from replicated_cluster import ReplicatedCluster

from oncelog import Consumer, TopicPartition
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_testing.history.checker import check
from oncelog_testing.history.events import Place, ReplicaLog, StoredBatch
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind


def settle_and_check(
    cluster: ReplicatedCluster, history: History, *topics: str, apart_from: tuple[Kind, ...] = ()
) -> None:
    """Start all stopped brokers, wait until all replicas are in sync and no transaction is open, and check the recorded
    history of requests and reads for lost, duplicated or torn records.
    """
    cluster.mend()
    cluster.until_whole(*topics)
    for topic in topics:
        for index in cluster.parts(topic):
            place = Place(topic, index)
            note_content(cluster, history, place)
            note_replicas(cluster, history, place)
    check(history, apart_from=apart_from)


def note_content(cluster: ReplicatedCluster, history: History, place: Place) -> None:
    """Read the partition with oncelog's consumer and with librdkafka's; both must find the same records."""
    end = cluster.until(lambda: _stable_end(cluster, place), f"no transaction is open in {place}") - 1
    client = Oncelog(cluster.addresses)
    try:
        found = client.run(read_committed(cluster.addresses, place, end))
    finally:
        client.close()
    history.finally_holds(place, found)
    if found:
        other = Librdkafka(cluster.addresses)
        again = other.consume(place.topic, len(found), partition=place.index, isolation="read_committed")
        assert _content(again) == found, f"{place}: the two libraries read what is not the same"
        other.close()


def _content(received: list[Received]) -> list[tuple[int, bytes]]:
    return [(each.offset, each.value or b"") for each in received]


def _stable_end(cluster: ReplicatedCluster, place: Place) -> int:
    """Return the high watermark plus one, or 0 while a transaction is open, so that a result of 0 means "wait"."""
    with cluster.client(cluster.until_led(*place).leader) as leader:
        try:
            return last_stable_offset(leader, *place) + 1 if is_stable(leader, *place) else 0
        except AssertionError:  # the broker no longer leads the partition: the caller tries again
            return 0


async def read_committed(addresses: str, place: Place, end: int) -> list[tuple[int, bytes]]:
    """Return offset and value of all committed records below `end`."""
    source = TopicPartition(*place)
    found: list[tuple[int, bytes]] = []
    async with Consumer(
        addresses, isolation_level="read_committed", auto_offset_reset="none", allow_auto_create_topics=False
    ) as consumer:
        consumer.assign([source])
        consumer.seek(source, 0)
        while await consumer.position(source) < end:
            for records in (await consumer.poll(1000)).values():
                found += [(record.offset, bytes(record.value or b"")) for record in records]
    return found


def note_replicas(cluster: ReplicatedCluster, history: History, place: Place) -> None:
    """Record the files of each replica in the history. All replicas are in sync, so each replica has every record below
    the leader's high watermark.
    """
    part = cluster.until_led(*place)
    with cluster.client(part.leader) as leader:
        high_watermark, _ = leader.list_offset(*place)
    for node_id in part.replicas:
        history.replica(ReplicaLog(node_id, place, high_watermark, digests(stored_batches(cluster, node_id, place))))


def stored_batches(cluster: ReplicatedCluster, node_id: int, place: Place) -> list[RecordBatch]:
    """Return the batches of a partition in a broker's files at this moment."""
    return batches_in(cluster.brokers[node_id].data / str(place))


def batches_in(directory: Path) -> list[RecordBatch]:
    """Return the batches of the log in this directory; a torn end is ignored, because the log may be growing."""
    found: list[RecordBatch] = []
    for file in sorted(directory.glob("*.log")):
        content, start = file.read_bytes(), 0
        while start < len(content):
            try:
                batch = RecordBatch(content, start)
            except CorruptBatch:
                return found
            found.append(batch)
            start += batch.size
    return found


def digests(batches: Iterable[RecordBatch]) -> tuple[StoredBatch, ...]:
    return tuple(StoredBatch(batch.base_offset, batch.next_offset, _digest(batch)) for batch in batches)


def _digest(batch: RecordBatch) -> bytes:
    return hashlib.sha256(batch.buffer[batch.start : batch.start + batch.size]).digest()
