"""A log whose disk has failed is reopened with its synced records when no broker relies on the unsynced ones."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosted_partitions import nobody_fetches
from tests.support.hosts import host_of
from tests.support.storage import FaultyDisk, contents, make_batch

from oncelog_broker.log.config import COMPACT, LogConfig
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.model.image import NO_LEADER, ClusterImage, PartitionState, Topic
from oncelog_broker.replication.leader_check import Led
from oncelog_broker.replication.offline_log_recovery import MAX_REST_SECONDS, OfflineLogRecovery
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError

EMPTY = ClusterImage("")
ME, OTHER = 1, 2


class Followed:
    """Replaces the fetchers; has the partitions that are fetched now."""

    def __init__(self) -> None:
        self.partitions: set[Partition] = set()

    def follow(self, partition: Partition) -> None:
        self.partitions.add(partition)

    def forget(self, partition: Partition) -> None:
        self.partitions.discard(partition)

    def hears(self, partition: Partition) -> bool:
        return partition in self.partitions


class Leaders:
    """The other brokers, to which this broker sends requests to confirm their leadership."""

    def __init__(self) -> None:
        self.are_there = True
        self.asked: list[Led] = []

    async def confirmed(self, partitions: Collection[Led]) -> set[Led]:
        self.asked += partitions
        return set(partitions) if self.are_there else set()


class Host:
    """A broker with one partition."""

    def __init__(self, directory: Path, disk: Any = None) -> None:
        self.disk, self.clock, self.tasks = disk or FaultyDisk(), ManualClock(), Tasks()
        self.directory = directory
        self.logs = self.open_logs()
        self.config = LogConfig()
        self.followed = Followed()
        self.replicas = Replicas(
            ME, self.logs, lambda _: self.config, host_of(tasks=self.tasks), lambda _: self.followed
        )
        self.asked: list[list[tuple[str, int]]] = []
        """The partitions of each request for a new leader epoch."""
        self.leaders = Leaders()
        self.returning = self.made_returning()
        self.image = EMPTY

    def made_returning(self) -> OfflineLogRecovery:
        return OfflineLogRecovery(
            self.replicas, lambda keys: self.asked.append(list(keys)), self.leaders, host_of(self.clock, self.tasks)
        )

    def open_logs(self) -> LogManager:
        return LogManager.open([self.directory], node_id=ME, cluster_id="c", disk=self.disk, clock=self.clock)

    async def show(self, leader: int, isr: tuple[int, ...], epoch: int = 0) -> None:
        topic = Topic("orders", bytes([1]) * 16, {0: PartitionState((ME, OTHER), isr, leader, epoch, epoch)})
        newer = EMPTY.with_topic(topic)
        self.replicas.on_image(self.image, newer)
        self.image = newer
        await self.replicas.until_opened()

    async def fill_and_fail(self) -> Partition:
        """Write three records, sync two of them, and let the disk fail."""
        await self.show(OTHER, (ME, OTHER))
        partition = self.only
        for number in range(3):
            partition.log.append_as_leader(bytearray(make_batch(b"%d" % number)), leader_epoch=0)
            if number == 1:
                partition.log.flusher.flush()
        self.disk.append_fault = errno.EIO
        with pytest.raises(KafkaError):
            partition.log.append_as_leader(bytearray(make_batch()), leader_epoch=0)
        assert partition.log.is_offline
        return partition

    @property
    def only(self) -> Partition:
        (partition,) = self.replicas.partitions()
        return partition

    async def look_for(self, seconds: float) -> None:
        """Let this many seconds pass, in each of which the broker retries once."""
        for _ in range(int(seconds)):
            self.clock.advance_ms(1000)
            await self.returning.look()
            await self.replicas.until_opened()


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    made = Host(tmp_path)
    yield made
    await made.tasks.close()
    made.logs.close()


async def test_e26_a_log_whose_disk_failed_comes_back_with_what_was_synced(host: Host) -> None:
    failed = await host.fill_and_fail()
    await host.show(OTHER, (OTHER,), epoch=1)
    assert host.followed.partitions == {failed}
    host.disk.append_fault = None
    await host.look_for(2)
    back = host.only
    assert back is not failed
    assert (back.log.log_end_offset, len(contents(back.log))) == (2, 2)
    assert host.followed.partitions == {back}
    assert (back.leader, back.leader_epoch, back.log.is_offline) == (OTHER, 1, False)
    assert not host.logs.failures
    assert list(host.logs.logs()) == [back.log]
    assert host.asked == []


async def test_s81_a_failed_log_keeps_its_records_until_its_leader_says_that_it_leads(host: Host) -> None:
    """The leader may have died before the image shows it, and may return without its disk."""
    failed = await host.fill_and_fail()
    await host.show(OTHER, (OTHER,), epoch=1)
    host.disk.append_fault = None
    host.leaders.are_there = False
    await host.look_for(5)
    assert host.only is failed
    assert host.leaders.asked == [Led("orders", 0, OTHER, 1)] * 4
    host.leaders.are_there = True
    await host.look_for(1)
    assert host.only is not failed


async def test_e26_a_log_begins_again_only_in_a_leader_epoch_in_which_nobody_has_heard_of_it(host: Host) -> None:
    """The leader may be about to add the replica to the ISR because of its former log end, or may still learn of that
    log end.
    """
    failed = await host.fill_and_fail()
    await host.show(OTHER, (OTHER,))
    host.disk.append_fault = None
    await host.look_for(5)
    assert host.only is failed, "what it may have lost is counted on by whoever leads in this epoch"
    assert host.asked == [[("orders", 0)]] * 4, "a second after it was seen, and until it is granted"
    await host.show(OTHER, (OTHER, ME), epoch=0)
    await host.look_for(5)
    assert (host.only, len(host.asked)) == (failed, 4), "the join was granted: it is counted on"
    await host.show(OTHER, (OTHER,), epoch=1)
    await host.look_for(2)
    back = host.only
    assert (back.log.is_offline, back.log.log_end_offset, len(host.asked)) == (False, 2, 4)
    back.log.flusher.flush_failed(OSError(errno.EIO, "Input/output error"))
    await host.look_for(2)
    assert (host.only, len(host.asked)) == (back, 5), "in this epoch it has said where it ended, too"


async def test_a_log_that_fails_in_a_leader_epoch_of_its_own_returns_in_the_next(host: Host) -> None:
    """The log is opened again without another leader epoch, because no leader has learned its end: in epoch 0 this
    replica led, and in epoch 1 its log was offline, so it was not fetched.
    """
    await host.show(ME, (ME, OTHER))
    host.only.log.flusher.flush_failed(OSError(errno.EIO, "Input/output error"))
    await host.show(OTHER, (OTHER,), epoch=1)
    await host.look_for(2)
    assert (host.only.log.is_offline, host.asked) == (False, [])


async def test_s56_a_compacted_log_begins_anew(host: Host) -> None:
    """Lost unsynced tombstones may have deleted synced records, and the other replicas may have compacted the
    tombstones away.
    """
    host.config = replace(host.config, cleanup_policy=frozenset({COMPACT}))
    failed = await host.fill_and_fail()
    await host.show(OTHER, (OTHER,), epoch=1)
    host.disk.append_fault = None
    await host.look_for(2)
    assert host.only is not failed
    assert (host.only.log.log_end_offset, contents(host.only.log)) == (0, [])
    assert host.followed.partitions == {host.only}


@pytest.mark.parametrize("isr", [(OTHER,), (OTHER, ME)])
async def test_e26_no_record_is_fetched_for_a_log_that_failed_while_idle(host: Host, isr: tuple[int, ...]) -> None:
    """A fetch for the failed log would report a log end that the replica then discards, and the leader would consider
    the replica in sync.
    """
    await host.show(OTHER, isr)
    log = host.only.log
    log.append_as_follower(make_batch())
    host.disk.sync_fault = errno.EIO
    with pytest.raises(KafkaError):
        log.flusher.flush()
    assert host.followed.partitions == {host.only}
    await host.look_for(1)
    assert (log.is_offline, host.only.log, host.followed.partitions) == (True, log, set())


@pytest.mark.parametrize("leader", [ME, OTHER, NO_LEADER])
async def test_a_log_that_another_broker_counts_on_stays_unchanged(host: Host, leader: int) -> None:
    """The replica is in the ISR or is the last replica, so its acknowledged records may exist nowhere else."""
    failed = await host.fill_and_fail()
    await host.show(leader, (ME,), epoch=1)
    host.disk.append_fault = None
    await host.look_for(5)
    assert host.only is failed
    assert failed.log.is_offline


async def test_s80_a_leader_whose_log_has_failed_says_so(host: Host) -> None:
    await host.show(ME, (ME, OTHER))
    assert host.replicas.log_end("orders", 0) == (-1, 0)
    host.only.log.append_as_leader(bytearray(make_batch()), leader_epoch=0)
    assert host.replicas.log_end("orders", 0) == (0, 1)
    host.only.log.flusher.flush_failed(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(KafkaError) as raised:
        host.replicas.log_end("orders", 0)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [(index, state.isr) for _, index, state in host.replicas.led_offline()] == [(0, (ME, OTHER))]
    for find in (partial(host.replicas.leader, "orders"), partial(host.replicas.leader_by_id, bytes([1]) * 16)):
        with pytest.raises(KafkaError) as raised:  # requests of clients learn nothing about offsets or epochs
            find(0)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await host.show(ME, (ME,), epoch=1)
    assert [(index, state.isr) for _, index, state in host.replicas.led_offline()] == [(0, (ME,))]
    await host.show(NO_LEADER, (ME,), epoch=2)
    assert list(host.replicas.led_offline()) == []
    with pytest.raises(KafkaError) as raised:
        host.replicas.log_end("unknown", 0)
    assert raised.value.code is ErrorCode.LEADER_NOT_AVAILABLE


async def test_the_leader_of_a_log_that_is_paused_for_a_move_still_answers(host: Host) -> None:
    """Clients do not retry a refused acknowledgement of a share group, and the log stays with this leader."""
    await host.show(ME, (ME, OTHER))
    host.only.log.pause()
    assert host.replicas.leader("orders", 0) is host.only
    assert host.replicas.leader_by_id(bytes([1]) * 16, 0) is host.only


async def test_a_disk_that_stays_broken_is_tried_ever_more_rarely(host: Host, tmp_path: Path) -> None:
    await host.fill_and_fail()
    segment = next((tmp_path / "orders-0").glob("*.log"))
    hidden = segment.rename(tmp_path / "hidden")  # synced records are missing, so the log cannot be opened
    await host.show(OTHER, (OTHER,), epoch=1)
    tried: list[float] = []
    open_again = host.replicas.open_again

    def noting(name: str, index: int) -> None:
        tried.append(host.clock.monotonic())
        open_again(name, index)

    host.replicas.open_again = noting  # type: ignore[method-assign]
    await host.look_for(200)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses[:6] == [2, 4, 8, 16, 32, MAX_REST_SECONDS]
    assert not list(host.replicas.partitions())
    hidden.rename(segment)
    host.disk.append_fault = None
    await host.look_for(MAX_REST_SECONDS)
    assert host.only.log.log_end_offset == 2


async def test_a_log_that_could_not_be_opened_at_the_start_comes_back(host: Host, tmp_path: Path) -> None:
    await host.show(OTHER, (ME, OTHER))
    host.only.log.append_as_leader(bytearray(make_batch()), leader_epoch=0)
    host.replicas.close()
    host.logs.close()
    identity = tmp_path / "orders-0" / "partition.metadata"
    content = identity.read_text()
    identity.write_text("not what it was")
    host.logs = host.open_logs()
    assert host.logs.failures
    host.replicas = Replicas(ME, host.logs, lambda _: LogConfig(), host_of(tasks=host.tasks), nobody_fetches)
    host.returning = host.made_returning()
    host.image = EMPTY
    await host.show(OTHER, (OTHER,), epoch=1)
    assert not list(host.replicas.partitions())
    identity.write_text(content)
    await host.look_for(2)
    assert host.only.log.log_end_offset == 1
    assert host.asked == [], "nobody was told of it since the start"


async def test_a_topic_that_is_deleted_meanwhile_stays_deleted(host: Host, tmp_path: Path) -> None:
    await host.fill_and_fail()
    await host.show(OTHER, (OTHER,), epoch=1)
    host.disk.append_fault = None
    host.replicas.open_again("orders", 0)
    host.replicas.on_image(host.image, EMPTY)
    host.image = EMPTY
    await host.show(OTHER, (OTHER,))  # a topic with the same name, whose log is created later
    assert host.only.log.log_end_offset == 0
    assert [path.name for path in tmp_path.glob("orders-0*-delete")]


class FullDisk(FaultyDisk):
    """A disk that refuses to create log directories while it is full."""

    __slots__ = ("is_full",)

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def make_directories(self, path: str) -> bool:
        if self.is_full and "orders" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().make_directories(path)


@pytest.mark.parametrize(("leader", "isr"), [(ME, (ME,)), (OTHER, (OTHER,)), (OTHER, (OTHER, ME)), (NO_LEADER, (ME,))])
async def test_e47_a_log_that_could_not_be_made_is_retried_whoever_leads(
    tmp_path: Path, leader: int, isr: tuple[int, ...]
) -> None:
    host = Host(tmp_path, FullDisk())
    host.disk.is_full = True
    await host.show(leader, isr)
    assert (host.replicas.offline, list(host.replicas.partitions())) == (1, [])
    await host.look_for(10)
    host.disk.is_full = False
    await host.look_for(MAX_REST_SECONDS)
    assert (host.replicas.offline, host.only.log.log_end_offset) == (0, 0)
    assert host.asked == [], "nobody has heard of it"
    await host.tasks.close()
    host.logs.close()


@pytest.mark.parametrize("compacted", ["by now", "until now"])
async def test_e47_a_compacted_log_begins_anew_with_the_present_settings(
    host: Host, tmp_path: Path, compacted: str
) -> None:
    await host.show(OTHER, (ME, OTHER))
    failed = host.only
    for number in range(3):
        failed.log.append_as_leader(bytearray(make_batch(b"%d" % number)), leader_epoch=0)
    failed.log.flusher.flush()
    if compacted == "until now":
        failed.log.state.cleaner_checkpoint = 2
    failed.log.flusher.flush_failed(OSError(errno.EIO, "Input/output error"))
    await host.show(OTHER, (OTHER,), epoch=1)
    hidden = (tmp_path / "orders-0").rename(tmp_path / "hidden")
    await host.look_for(2)
    assert not list(host.replicas.partitions()), "the first attempt fails"
    hidden.rename(tmp_path / "orders-0")
    if compacted == "by now":
        host.config = replace(host.config, cleanup_policy=frozenset({COMPACT}))
    await host.look_for(MAX_REST_SECONDS)
    assert (host.only.log.is_offline, host.only.log.log_end_offset) == (False, 0)


async def test_e47_a_log_whose_name_could_not_be_synced_is_made_anew(host: Host, tmp_path: Path) -> None:
    """A later successful fsync of the data directory would not prove that the log directory's name is on disk (E26)."""
    await host.show(OTHER, (ME, OTHER))
    failed = host.only.log
    failed.append_as_leader(bytearray(make_batch()), leader_epoch=0)
    assert failed.flusher.new_directory is not None
    failed.flusher.new_directory.fail(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(KafkaError):
        failed.flusher.flush()
    (tmp_path / "orders-0" / "left behind").touch()
    await host.show(OTHER, (OTHER,), epoch=1)
    await host.look_for(2)
    back = host.only.log
    assert (back.is_offline, back.log_end_offset) == (False, 0)
    assert back.flusher.new_directory is not None
    assert back.flusher.new_directory.is_synced
    assert not (tmp_path / "orders-0" / "left behind").exists()
