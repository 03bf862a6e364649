"""A consumer detects that a log has lost its end (KIP-320)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.fake_cluster import FakeCluster
from tests.support.virtual_time import run_virtually

from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog.errors import LogTruncationError
from oncelog.group_offsets import OffsetAndMetadata
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

T = TopicPartition("topic", 0)


def batch(*values: bytes) -> bytes:
    return bytes(build_batch([Record(n, 1, None, value, []) for n, value in enumerate(values)]))


async def read(consumer: Consumer, count: int) -> list[Any]:
    values: list[Any] = []
    for _ in range(count + 5):
        if len(values) >= count:
            break
        for records in (await consumer.poll(60_000)).values():
            values += [record.value for record in records]
    assert len(values) == count, values
    return values


def asked(cluster: FakeCluster, kind: type) -> list[Any]:
    return [request for broker in cluster.brokers.values() for request in broker.requests_of(kind)]


async def unclean(cluster: FakeCluster) -> None:
    """Elect a leader that has only the records below offset 2, and append "x"; the consumer has already read up to
    offset 4, the former log end.
    """
    cluster.lead(2)
    cluster.truncate(2)
    cluster.append(batch(b"x"))


def with_consumer(reset: str) -> Callable[..., Any]:
    """Run a test in virtual time with a consumer that has read four records of leader epoch 5."""

    def decorate(body: Callable[[FakeCluster, Consumer], Any]) -> Callable[[], None]:
        async def main() -> None:
            async with FakeCluster() as cluster:
                cluster.append(batch(b"a", b"b"))
                cluster.append(batch(b"c", b"d"))
                async with Consumer(cluster.addresses, auto_offset_reset=reset) as consumer:
                    consumer.assign([T])
                    consumer.seek(T, 0)
                    assert await read(consumer, 4) == [b"a", b"b", b"c", b"d"]
                    await body(cluster, consumer)

        def test() -> None:
            run_virtually(main())

        test.__name__, test.__doc__ = body.__name__, body.__doc__
        return test

    return decorate


@with_consumer("latest")
async def test_the_position_goes_back_to_where_the_log_was_cut(cluster: FakeCluster, consumer: Consumer) -> None:
    await unclean(cluster)
    assert await read(consumer, 1) == [b"x"]
    assert await consumer.position(T) == 3


@with_consumer("none")
async def test_a_truncation_without_reset_policy_raises_an_error_with_the_offset(
    cluster: FakeCluster, consumer: Consumer
) -> None:
    await unclean(cluster)
    for _ in range(2):  # the next poll raises the error again
        with pytest.raises(LogTruncationError, match="truncated below offset 4, from offset 2 on") as raised:
            await read(consumer, 1)
        assert (raised.value.partition, raised.value.offset, raised.value.divergent_offset) == (T, 4, 2)
    consumer.seek(T, 2)
    assert await read(consumer, 1) == [b"x"]


@with_consumer("none")
async def test_other_records_at_the_same_offset_are_noticed(cluster: FakeCluster, consumer: Consumer) -> None:
    """The new log is as long as the consumer's position, but has an older leader epoch than the consumed records."""
    cluster.lead(3)
    cluster.append(batch(b"e"))
    assert await read(consumer, 1) == [b"e"]  # this record has leader epoch 6
    cluster.truncate(4)
    cluster.view.leaders["topic", 0] = (1, 5)
    cluster.append(batch(b"other", b"others"))
    cluster.view.leaders["topic", 0] = (1, 7)
    with pytest.raises(LogTruncationError, match="is unknown") as raised:
        await read(consumer, 1)
    assert raised.value.divergent_offset is None


@with_consumer("none")
async def test_a_clean_election_is_not_noticed(cluster: FakeCluster, consumer: Consumer) -> None:
    cluster.lead(2)
    cluster.append(batch(b"e"))
    assert await read(consumer, 1) == [b"e"]
    (request,) = asked(cluster, OffsetForLeaderEpochRequest)
    (topic,) = request.topics
    assert (topic.partitions[0].leader_epoch, topic.partitions[0].current_leader_epoch) == (5, 6)
    assert request.replica_id == -1


@with_consumer("none")
async def test_an_epoch_known_only_to_its_leader_causes_no_request_loop(
    cluster: FakeCluster, consumer: Consumer
) -> None:
    """The leader responds with FENCED_LEADER_EPOCH, and the metadata have the old epoch. The consumer requests the
    metadata and the end of the epoch again with a backoff.
    """
    for broker in cluster.brokers.values():
        broker.tells = cluster.view.copy()
    cluster.lead(1)
    fetches, refreshes = len(asked(cluster, FetchRequest)), len(asked(cluster, MetadataRequest))
    assert await consumer.poll(10_000) == {}
    assert 5 <= len(asked(cluster, FetchRequest)) - fetches <= 20
    assert 5 <= len(asked(cluster, MetadataRequest)) - refreshes <= 20
    for broker in cluster.brokers.values():
        broker.tells = None
    cluster.append(batch(b"e"))
    assert await read(consumer, 1) == [b"e"]


def test_an_old_broker_is_not_asked() -> None:
    """OffsetForLeaderEpoch before v3 requires a permission that consumers do not have."""

    async def main() -> None:
        async with FakeCluster() as cluster:
            for broker in cluster.brokers.values():
                broker.max_versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = 2
            cluster.append(batch(b"a"))
            async with Consumer(cluster.addresses, auto_offset_reset="none") as consumer:
                consumer.assign([T])
                consumer.seek(T, 0)
                assert await read(consumer, 1) == [b"a"]
                cluster.lead(2)
                cluster.append(batch(b"b"))
                assert await read(consumer, 1) == [b"b"]
                assert not asked(cluster, OffsetForLeaderEpochRequest)
                cluster.lead(1)  # without OffsetForLeaderEpoch, a Fetch detects the truncation
                cluster.truncate(1)
                with pytest.raises(LogTruncationError, match="from offset 1 on"):
                    await read(consumer, 1)

    run_virtually(main())


def test_a_seek_with_an_epoch_is_checked_first() -> None:
    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.append(batch(b"a", b"b"))
            cluster.lead(2)
            cluster.append(batch(b"c"))
            async with Consumer(cluster.addresses, auto_offset_reset="earliest") as consumer:
                consumer.assign([T])
                consumer.seek(T, OffsetAndMetadata(3, leader_epoch=5))
                assert await read(consumer, 1) == [b"c"]

    run_virtually(main())


def test_a_leader_older_than_the_position_is_not_read_from() -> None:
    """The committed offset has leader epoch 6, but the broker that serves the metadata knows only epoch 5. The leader
    that this broker names would respond with OFFSET_OUT_OF_RANGE, and the consumer would restart from the beginning.
    """

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.append(batch(b"a"))
            for node_id in (1, 2, 3):
                cluster.brokers[node_id].lag()
            cluster.lead(2)
            cluster.append(batch(b"b", b"c"))
            async with Consumer(cluster.addresses, auto_offset_reset="earliest") as consumer:
                consumer.assign([T])
                consumer.seek(T, OffsetAndMetadata(2, leader_epoch=6))
                assert await consumer.poll(1_000) == {}
                assert not asked(cluster, FetchRequest)
                for broker in cluster.brokers.values():
                    broker.lagging = None
                assert await read(consumer, 1) == [b"c"]

    run_virtually(main())


def test_a_re_created_topic_is_accepted_in_the_end() -> None:
    """The leader keeps responding with a leader epoch that is older than the epoch of the consumer's position."""

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.append(batch(b"a"))
            async with Consumer(cluster.addresses, auto_offset_reset="earliest") as consumer:
                consumer.assign([T])
                consumer.seek(T, OffsetAndMetadata(50, leader_epoch=9))
                assert await read(consumer, 1) == [b"a"]
                assert len(asked(cluster, MetadataRequest)) <= 15

    run_virtually(main())


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_s92_an_epoch_without_records_is_no_truncation(reset: str) -> None:
    """The consumer's position is the log end. Its leader epoch comes from ListOffsets, and no record was written in
    that epoch.

    The next leader's log has all records, but an older leader epoch before the position.
    """

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.append(batch(b"a", b"b"))
            cluster.lead(2)
            cluster.lead(3)
            cluster.append(batch(b"c", b"d"))
            async with Consumer(cluster.addresses, auto_offset_reset=reset) as consumer:
                consumer.assign([T])
                consumer.seek(T, OffsetAndMetadata(2, leader_epoch=6))
                assert await read(consumer, 2) == [b"c", b"d"]
                cluster.lead(1)  # records that were read after this count as evidence of a truncation again
                cluster.truncate(2)
                cluster.append(batch(b"x"))
                if reset == "none":
                    with pytest.raises(LogTruncationError, match="from offset 2 on"):
                        await read(consumer, 1)
                else:
                    assert await read(consumer, 1) == [b"x"]

    run_virtually(main())


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_s92_reading_continues_after_epochs_went_back(reset: str) -> None:
    """The metadata were restored from a backup, so the committed leader epoch is permanently newer than that of any
    leader.
    """

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.append(batch(b"a", b"b", b"c"))
            async with Consumer(cluster.addresses, auto_offset_reset=reset) as consumer:
                consumer.assign([T])
                consumer.seek(T, OffsetAndMetadata(2, leader_epoch=9))
                assert await read(consumer, 1) == [b"c"]

    run_virtually(main())


def test_the_late_answer_of_a_leader_that_hung_is_ignored() -> None:
    """The former leader received a request for the end of a leader epoch, and hung. The consumer has since read from
    other leaders, so the former leader's response is outdated.
    """

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.append(batch(b"a"))
            async with Consumer(cluster.addresses, auto_offset_reset="none", metadata_max_age_ms=1_000) as consumer:
                consumer.assign([T])
                consumer.seek(T, 0)
                assert await read(consumer, 1) == [b"a"]
                hung, asked_, goes_on = cluster.brokers[2], asyncio.Event(), asyncio.Event()

                async def late(request: Any) -> Any:
                    asked_.set()
                    await goes_on.wait()
                    answer = hung.on_offset_for_leader_epoch(request)
                    for topic in answer.topics:
                        for told in topic.partitions:
                            told.error_code, told.leader_epoch, told.end_offset = 0, 5, 0
                    return answer

                hung.handlers[OffsetForLeaderEpochRequest] = late
                cluster.lead(2)
                polling = asyncio.ensure_future(consumer.poll(60_000))
                await asked_.wait()
                cluster.lead(3)
                cluster.append(batch(b"b"))
                (records,) = (await polling).values()
                assert [record.value for record in records] == [b"b"]
                goes_on.set()
                assert await consumer.poll(1_000) == {}
                cluster.append(batch(b"c"))
                assert await read(consumer, 1) == [b"c"]

    run_virtually(main())
