"""Group commit (flush.messages=1): records are acknowledged and visible only when they are on disk, and one fsync
serves all waiting requests.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.slow_disk import SlowDisk
from tests.support.storage import SMALL, make_batch, open_log

from oncelog_broker.log.config import LONG_MAX
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.replication import group_commit
from oncelog_broker.replication.follower_progress import FollowerProgress
from oncelog_broker.replication.group_commit import (
    MAX_DIRECTORIES,
    SYNC_THREADS,
    SYNCS_AT_ONCE,
    GroupCommit,
    sync_all,
    sync_records,
)
from oncelog_broker.replication.partition import READ_UNCOMMITTED, Partition
from oncelog_broker.replication.purgatory import APPENDS_BEFORE_LOOK
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError

LEADER, FOLLOWER = 1, 2
BOTH = (LEADER, FOLLOWER)
SYNCED = replace(SMALL, flush_messages=1, segment_bytes=1 << 20)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
async def tasks(disk: SlowDisk) -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    disk.may_end.set()
    await tasks.close()


@pytest.fixture
async def partition(tmp_path: Path, disk: SlowDisk, tasks: Tasks) -> AsyncIterator[Partition]:
    """A partition with group commit whose only replica is on this broker."""
    log = open_log(tmp_path / "orders-0", SYNCED, disk=disk)
    made = Partition("orders", bytes(16), 0, log, broker_id=LEADER, request_sync=GroupCommit(tasks).request)
    made.lead(0, (LEADER,))
    yield made
    disk.may_end.set()
    await tasks.close()
    if not log.is_offline:
        log.close()


def append(partition: Partition, acks: int) -> asyncio.Future[ErrorCode]:
    """Append a record and check that it is not acknowledged yet; return the future of the acknowledgement."""
    offset, _ = partition.append(memoryview(make_batch()), required_acks=acks)
    answer = partition.acknowledged(offset + 1, acks)
    assert isinstance(answer, asyncio.Future)
    return answer


async def some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("acks", [1, -1])
async def test_s124_a_record_is_acknowledged_and_shown_when_it_is_on_the_disk(
    partition: Partition, disk: SlowDisk, acks: int
) -> None:
    answer = append(partition, acks)
    await disk.until_begun()
    await some_turns()
    assert not answer.done()
    assert (partition.high_watermark, partition.upper_bound(READ_UNCOMMITTED)) == (0, 0), "no consumer reads it"
    disk.may_end.set()
    assert await answer is ErrorCode.NONE
    assert partition.high_watermark == partition.log.state.synced_offset == 1
    assert partition.log.recovery_point == 0, "the indexes are synced later"


async def test_all_who_wait_share_one_fsync_in_a_thread(partition: Partition, disk: SlowDisk) -> None:
    first = append(partition, 1)
    await disk.until_begun()
    others = [append(partition, acks) for acks in (1, -1) * 100]
    await some_turns()
    assert len(disk.syncs) == 1, "at most one at a time"
    disk.may_end.set()
    codes = await asyncio.gather(first, *others)
    assert set(codes) == {ErrorCode.NONE}
    assert len(disk.syncs) == 2, "one for the first record, one for all that came meanwhile"
    assert threading.current_thread() not in disk.syncs


async def test_acks_0_waits_for_nothing(partition: Partition) -> None:
    partition.append(memoryview(make_batch()), required_acks=0)
    assert partition.acknowledged(1, 0) is ErrorCode.NONE


async def test_a_duplicate_waits_until_the_original_is_on_the_disk(partition: Partition, disk: SlowDisk) -> None:
    """A successful response to the retry would acknowledge the record before it is synced."""
    batch = bytes(make_batch(producer_id=5, producer_epoch=0, base_sequence=0))
    for _ in range(2):
        assert partition.append(memoryview(bytearray(batch)), required_acks=1)[0] == 0
    await disk.until_begun()
    again = partition.acknowledged(1, 1)
    assert isinstance(again, asyncio.Future)
    disk.may_end.set()
    assert await again is ErrorCode.NONE
    assert partition.acknowledged(1, 1) is ErrorCode.NONE, "at once, as it is on the disk now"


async def test_e26_a_failed_fsync_acknowledges_nothing_and_takes_the_log_offline(
    partition: Partition, disk: SlowDisk
) -> None:
    disk.fails = True
    first = append(partition, 1)
    await disk.until_begun()
    others = [append(partition, 1), append(partition, -1)]
    disk.may_end.set()
    assert set(await asyncio.gather(first, *others)) == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert (partition.log.is_offline, partition.high_watermark) == (True, 0)
    assert {partition.acknowledged(1, acks) for acks in (1, -1)} == {ErrorCode.KAFKA_STORAGE_ERROR}
    with pytest.raises(KafkaError) as refused:
        partition.append(memoryview(make_batch()), required_acks=1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(disk.syncs) == 1, "a further fsync would prove nothing"


async def test_a_leader_that_resigns_acknowledges_nothing(partition: Partition, disk: SlowDisk) -> None:
    answers = [append(partition, 1), append(partition, -1)]
    await disk.until_begun()
    partition.follow(FOLLOWER, 1)
    disk.may_end.set()
    assert set(await asyncio.gather(*answers)) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    await some_turns()


async def test_with_a_follower_acks_all_waits_for_both_and_acks_1_for_this_disk(
    partition: Partition, disk: SlowDisk
) -> None:
    partition.lead(1, BOTH, BOTH)
    assert isinstance(partition.followers[FOLLOWER], FollowerProgress)
    one, both = append(partition, 1), append(partition, -1)
    await disk.until_begun()
    partition.on_follower_fetch(FOLLOWER, 2)
    await some_turns()
    assert not both.done()
    assert partition.high_watermark == 0, "the follower has the records on its disk, this broker does not yet"
    disk.may_end.set()
    assert await both is ErrorCode.NONE
    assert await one is ErrorCode.NONE
    one, both = append(partition, 1), append(partition, -1)
    assert await one is ErrorCode.NONE
    await some_turns()
    assert not both.done()
    assert partition.high_watermark == 2
    partition.on_follower_fetch(FOLLOWER, 4)
    assert await both is ErrorCode.NONE


async def test_a_new_leader_syncs_what_it_has_before_it_shows_it(tmp_path: Path, disk: SlowDisk, tasks: Tasks) -> None:
    """A process that was killed has left records in the memory of the operating system."""
    log = open_log(tmp_path / "orders-0", disk=disk)
    for _ in range(3):
        log.append_as_leader(make_batch(), leader_epoch=0)
    log.abandon()
    log = open_log(tmp_path / "orders-0", SYNCED, disk=disk)
    partition = Partition("orders", bytes(16), 0, log, broker_id=LEADER, request_sync=GroupCommit(tasks).request)
    partition.lead(1, (LEADER,))
    await disk.until_begun()
    assert partition.high_watermark == 0
    committed = partition.committed(3)
    assert isinstance(committed, asyncio.Future)
    disk.may_end.set()
    assert await committed is ErrorCode.NONE
    log.close()


async def test_e26_a_log_that_goes_offline_during_an_fsync_acknowledges_nothing(
    partition: Partition, disk: SlowDisk
) -> None:
    """The files of an offline log may be closed before they are synced."""
    answers = [append(partition, 1), append(partition, -1)]
    await disk.until_begun()
    partition.log.state.fail("append to", OSError(errno.EIO, "Input/output error"))
    disk.may_end.set()
    assert set(await asyncio.gather(*answers)) == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert partition.high_watermark == 0


async def test_requests_that_have_timed_out_are_forgotten_while_the_disk_hangs(
    partition: Partition, disk: SlowDisk
) -> None:
    append(partition, 1)
    await disk.until_begun()
    the_round = partition.purgatory.unsynced
    lasting = partition.synced()
    for _ in range(10 * APPENDS_BEFORE_LOOK):
        answer = partition.synced()
        assert isinstance(answer, asyncio.Future)
        answer.set_result(ErrorCode.REQUEST_TIMED_OUT)
    assert len(partition.purgatory.unsynced) <= APPENDS_BEFORE_LOOK
    assert partition.purgatory.unsynced is the_round, "requests of one connection compare it"
    assert isinstance(lasting, asyncio.Future)
    disk.may_end.set()
    assert await lasting is ErrorCode.NONE


async def test_followed_logs_are_synced_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader may have thousands of partitions: to begin all syncs at once would hold the event loop."""
    followed = dict[int, Partition]()
    for index in range(4 * SYNCS_AT_ONCE):
        log = open_log(tmp_path / f"orders-{index}", SYNCED)
        log.append_as_leader(make_batch(), leader_epoch=0)
        followed[index] = Partition("orders", bytes(16), index, log, broker_id=FOLLOWER, request_sync=lambda _: None)
    followed[1].log.state.fail("append to", OSError(errno.EIO, "Input/output error"))
    running, most = set[int](), 0

    async def watched(log: PartitionLog) -> None:
        nonlocal most
        running.add(id(log))
        most = max(most, len(running))
        try:
            await sync_records(log)
        finally:
            running.remove(id(log))

    monkeypatch.setattr(group_commit, "sync_records", watched)
    assert await sync_all(followed) == [(1, followed[1])]
    assert {each.log.state.synced_offset for key, each in followed.items() if key != 1} == {1}
    assert most == SYNCS_AT_ONCE
    for each in followed.values():
        each.log.abandon()


async def test_a_disk_that_hangs_delays_no_log_on_another_disk(tmp_path: Path, disk: SlowDisk, tasks: Tasks) -> None:
    """More logs of one data directory hang than there are threads."""
    commit = GroupCommit(tasks)
    hanging = []
    for index in range(2 * SYNC_THREADS):
        log = open_log(tmp_path / "hangs" / f"orders-{index}", SYNCED, disk=disk)
        hanging.append(Partition("orders", bytes(16), index, log, broker_id=LEADER, request_sync=commit.request))
    healthy_log = open_log(tmp_path / "healthy" / "sales-0", SYNCED)
    healthy = Partition("sales", bytes(16), 0, healthy_log, broker_id=LEADER, request_sync=commit.request)
    for each in (*hanging, healthy):
        each.lead(0, (LEADER,))
    waiting = [append(each, 1) for each in hanging]
    await disk.until_begun()
    assert await asyncio.wait_for(append(healthy, 1), 10) is ErrorCode.NONE
    assert not any(answer.done() for answer in waiting)
    disk.may_end.set()
    assert set(await asyncio.gather(*waiting)) == {ErrorCode.NONE}
    for each in (*hanging, healthy):
        each.log.close()


@contextmanager
def no_thread_can_start() -> Iterator[None]:
    """Let the system refuse to start any thread."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        yield


async def test_e26_a_log_goes_offline_if_no_thread_can_be_started_for_its_sync(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "START_SECONDS", 0.0)
    directory = os.path.dirname(partition.log.state.directory)
    with no_thread_can_start():
        answers = [append(partition, 1), append(partition, -1)]
        assert set(await asyncio.wait_for(asyncio.gather(*answers), 10)) == {ErrorCode.KAFKA_STORAGE_ERROR}
    reason = partition.log.state.offline_reason
    assert reason is not None
    assert "can't start new thread" in reason
    assert "ulimit -u" in reason
    assert directory not in group_commit._threads, "a pool without threads would never run its jobs"


async def test_a_sync_for_which_no_thread_can_be_started_waits_until_one_can(
    partition: Partition, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, pause = asyncio.Event(), asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds == group_commit.RETRY_SECONDS:
            refused.set()
        await pause(seconds)

    monkeypatch.setattr(group_commit, "RETRY_SECONDS", 0.0625)
    monkeypatch.setattr(asyncio, "sleep", noted)
    disk.may_end.set()
    with no_thread_can_start():
        answer = append(partition, 1)
        await asyncio.wait_for(refused.wait(), 10)
        assert (answer.done(), partition.high_watermark) == (False, 0)
    assert await asyncio.wait_for(answer, 10) is ErrorCode.NONE
    assert len(disk.syncs) == 1, "an attempt that was refused syncs nothing later"


async def test_a_directory_without_threads_uses_a_thread_of_the_default_pool(
    partition: Partition, disk: SlowDisk
) -> None:
    common = await asyncio.to_thread(threading.current_thread)
    disk.may_end.set()
    with no_thread_can_start():
        for _ in range(3):
            assert await asyncio.wait_for(append(partition, 1), 10) is ErrorCode.NONE
    assert set(disk.syncs) == {common}


async def test_a_directory_with_a_thread_uses_it_while_no_other_can_be_started(
    tmp_path: Path, disk: SlowDisk, tasks: Tasks
) -> None:
    commit = GroupCommit(tasks)
    partitions = []
    for index in range(3):
        log = open_log(tmp_path / f"orders-{index}", SYNCED, disk=disk)
        partitions.append(Partition("orders", bytes(16), index, log, broker_id=LEADER, request_sync=commit.request))
        partitions[index].lead(0, (LEADER,))
    first = append(partitions[0], 1)
    await disk.until_begun()
    with no_thread_can_start():
        others = [append(each, 1) for each in partitions[1:]]
        await some_turns()
        assert not any(answer.done() for answer in others)
        disk.may_end.set()
        assert set(await asyncio.wait_for(asyncio.gather(first, *others), 10)) == {ErrorCode.NONE}
    assert len(disk.syncs) == 3
    assert len(set(disk.syncs)) == 1
    for each in partitions:
        each.log.close()


async def test_the_threads_of_the_directory_that_is_unused_for_the_longest_time_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "MAX_DIRECTORIES", 2)
    monkeypatch.setattr(group_commit, "_threads", {})
    logs = [open_log(tmp_path / f"data-{number}" / "orders-0", SYNCED) for number in range(3)]
    for number in (0, 1, 0, 2):
        logs[number].append_as_leader(make_batch(), leader_epoch=0)
        await sync_records(logs[number])
    assert list(group_commit._threads) == [str(tmp_path / f"data-{number}") for number in (0, 2)]
    for log in logs:
        log.abandon()


async def test_threads_of_former_directories_end(tmp_path: Path) -> None:
    for number in range(MAX_DIRECTORIES + 3):
        log = open_log(tmp_path / f"data-{number}" / "orders-0", SYNCED)
        log.append_as_leader(make_batch(), leader_epoch=0)
        await sync_records(log)
        assert log.state.synced_offset == 1
        log.abandon()
    assert len(group_commit._threads) == MAX_DIRECTORIES


async def test_the_setting_may_change_at_any_time(partition: Partition, disk: SlowDisk) -> None:
    answers = [append(partition, 1), append(partition, -1)]
    await disk.until_begun()
    partition.update_config(replace(SMALL, flush_messages=LONG_MAX))
    assert await answers[1] is ErrorCode.NONE, "from now on the high watermark does not wait for the disk"
    partition.append(memoryview(make_batch()), required_acks=1)
    assert (partition.acknowledged(3, 1), partition.high_watermark) == (ErrorCode.NONE, 3)
    disk.may_end.set()
    assert await answers[0] is ErrorCode.NONE
    disk.may_end.clear()
    disk.has_begun.clear()
    partition.update_config(SYNCED)
    await disk.until_begun()
    assert isinstance(partition.acknowledged(3, 1), asyncio.Future), "the record is not on the disk yet"
    disk.may_end.set()
    assert await append(partition, 1) is ErrorCode.NONE


async def test_s124_records_of_a_log_that_is_paused_for_a_move_wait_for_its_end(
    partition: Partition, disk: SlowDisk
) -> None:
    """A pause is no disk failure: requests neither fail nor are acknowledged before the records are synced."""
    answer = append(partition, 1)
    partition.log.pause()
    await some_turns()
    assert not answer.done()
    partition.log.resume()
    partition.on_log_resumed()
    await disk.until_begun()
    assert not answer.done()
    disk.may_end.set()
    assert await answer is ErrorCode.NONE


async def test_s124_a_synced_copy_in_another_directory_acknowledges_the_records_that_waited(
    tmp_path: Path, partition: Partition, disk: SlowDisk
) -> None:
    old = partition.log
    answer = append(partition, 1)
    old.pause()
    await some_turns()
    copied = open_log(tmp_path / "copied-0", SYNCED)
    copied.append_as_leader(make_batch(), leader_epoch=0)
    copied.close()
    partition.replace_log(open_log(tmp_path / "copied-0", SYNCED, recovery_point=1, clean_shutdown=True))
    partition.on_log_resumed()
    assert await answer is ErrorCode.NONE
    assert partition.high_watermark == 1
    disk.may_end.set()
    old.resume()
    old.close()
