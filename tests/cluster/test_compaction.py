"""Tests compaction of a replicated log: tombstones and markers remain until every replica has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from elections import until_preferred_lead
from final_state import note_content, stored_batches
from replicated_cluster import ReplicatedCluster

from oncelog import Producer
from oncelog_broker.log.checkpoints import CLEANER_OFFSET_CHECKPOINT, read_offset_checkpoint
from oncelog_broker.runtime.disk import RealDisk
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

CLEANINGS = 3
"""The number of cleanings after which a marker is gone. The first cleaning removes the aborted record, the second finds
that its marker is no longer needed, and the third, with a retention of 0, removes the marker.
"""
MAX_ROUNDS = CLEANINGS + 20
"""The maximum number of rounds; one round is enough, unless a replica on a busy machine leaves the ISR at that moment.
"""
FILLERS = 2


@pytest.fixture(scope="module")
def cleaning_cluster(
    chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicatedCluster]:
    # Sessions are long enough not to end when the machine is busy, because nothing is removed while a replica is out of
    # sync.
    settings = {"log.cleaner.backoff.ms": "50", "zookeeper.session.timeout.ms": "6000"}
    with ReplicatedCluster(tmp_path_factory.mktemp("cleaning"), chroots(), settings) as cluster:
        yield cluster
    cluster.check_logs()


def test_s56_an_abort_is_kept_for_a_replica_that_is_away(
    cleaning_cluster: ReplicatedCluster, history: History, topic: str
) -> None:
    """Broker 3 dies with a record of a transaction that is then aborted, and is down for longer than markers are kept.
    When broker 3 becomes leader, the record must not be visible, and no reader may wait for the end of its transaction.
    """
    cluster, place = cleaning_cluster, Place(topic)
    configs = {"cleanup_policy": "compact", "delete_retention_ms": "0", "min_cleanable_dirty_ratio": "0"}
    cluster.create_topic(topic, (3, 1, 2), segment_bytes="100", **configs)
    asyncio.run(abort_without(3, cluster, place))
    cluster.until(lambda: 3 not in cluster.parts(topic, 1)[0].isr, "broker 1 knows that 3 is away")
    for _ in range(CLEANINGS):
        asyncio.run(write_until_cleaned(cluster, place))
        assert has_marker(cluster, 1, place)
    assert not has_marker(cluster, 3, place)
    cluster.start(3)
    rounds = CLEANINGS
    while has_marker(cluster, 1, place):
        assert rounds < MAX_ROUNDS, "all have it, so it goes"
        cluster.until_whole(topic)
        asyncio.run(write_until_cleaned(cluster, place))
        rounds += 1
    until_preferred_lead(cluster, topic)
    note_content(cluster, history, place)
    values = [value for _, value in history.final[place]]
    assert (values.count(b"aborted"), values.count(b"filler")) == (0, rounds * FILLERS)


async def abort_without(node_id: int, cluster: ReplicatedCluster, place: Place) -> None:
    """Abort a transaction so that this broker gets the transaction's record, but not its marker."""
    options = {"transactional_id": place.topic, "transaction_timeout_ms": 600_000}
    async with Producer(cluster.addresses, **options) as producer:
        producer.begin_transaction()
        await (await producer.send(place.topic, b"aborted", key=b"key"))
        await asyncio.to_thread(cluster.until, lambda: stored_batches(cluster, node_id, place), "it has the record")
        cluster.kill(node_id)
        await producer.abort_transaction()


async def write_until_cleaned(cluster: ReplicatedCluster, place: Place) -> None:
    """Write records, each in its own segment, until broker 1 has cleaned all but the last one, whether it leads
    or not.
    """
    async with Producer(cluster.addresses) as producer:
        for _ in range(FILLERS):
            written = await (await producer.send(place.topic, b"filler", key=uuid4().bytes))

    def is_cleaned() -> bool:
        file = cluster.brokers[1].data / CLEANER_OFFSET_CHECKPOINT
        return read_offset_checkpoint(RealDisk(), str(file)).get((place.topic, place.index), 0) >= written.offset

    cluster.until(is_cleaned, f"{place} is cleaned below {written.offset}")


def has_marker(cluster: ReplicatedCluster, node_id: int, place: Place) -> bool:
    """Return whether the log has the transaction marker with its control record; a batch header without the record,
    which is kept for the producer's state, ends no transaction.
    """
    return any(batch.is_control and batch.records_count for batch in stored_batches(cluster, node_id, place))
