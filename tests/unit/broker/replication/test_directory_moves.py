"""Logs move to other data directories while in use; after a failed move, a log stays in its directory."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosted_partitions import EMPTY, WatchedDisk, nobody_fetches, replicated, show, topic
from tests.support.hosts import host_of
from tests.support.producers import COMMIT, mark, produce
from tests.support.storage import append, contents, fill

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.replication import directory_moves
from oncelog_broker.replication.directory_moves import DirectoryMoves, FutureReplica
from oncelog_broker.replication.partition import MARKER_SIZE, Partition
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError

KEY = ("orders", 0)
CONFIG = LogConfig(segment_bytes=100_000, segment_index_bytes=4096, index_interval_bytes=1000)
FAST = 2**63 - 1


class Disk(WatchedDisk):
    """A disk that refuses to create the directories of future logs while `is_full` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def make_directories(self, path: str) -> bool:
        if self.is_full and path.endswith("-future"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().make_directories(path)


class Broker:
    """One broker with three data directories, and a partition that it leads."""

    def __init__(self, directory: Path) -> None:
        self.disk = Disk()
        self.tasks = Tasks()
        self.clock = SystemClock()
        self.paths = [str(directory / name) for name in "abc"]
        self.logs = LogManager.open(self.paths, node_id=1, cluster_id="c", disk=self.disk, clock=self.clock)
        host = host_of(clock=self.clock, tasks=self.tasks)
        self.replicas = Replicas(1, self.logs, lambda _: CONFIG, host, nobody_fetches)
        self.rate = FAST
        self.moves = DirectoryMoves(self.replicas, self.logs, host, lambda: self.rate)

    async def lead(self) -> Partition:
        partition = await show(self.replicas, topic("orders", 1, epoch=4))
        fill(partition.log, 4000)
        partition._advance_high_watermark(0)
        return partition

    def names(self) -> dict[str, list[str]]:
        """The names of the logs in each directory, without their unique parts."""
        return {
            Path(path).name: sorted(
                f"{name.split('.')[0]}{name[name.rindex('-') :] if '.' in name else ''}"
                for name in self.disk.list_directory(path)
                if name.startswith("orders")
            )
            for path in self.paths
        }

    def begin(self, to: str) -> asyncio.Task[None]:
        """Begin to move the log; return the task that ends with the move."""
        self.moves.move(*KEY, self.paths["abc".index(to)])
        task = self.moves._moves[KEY].task
        assert task is not None
        return task

    async def move(self, to: str) -> None:
        await asyncio.wait_for(self.begin(to), 60)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.disk.may_go_on.set()
    await broker.tasks.close()
    broker.logs.close()


async def until(is_so: Callable[[], object]) -> None:
    """Check the condition in each turn of the event loop until it is true."""
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - what is waited for happens in other tasks, and has no event
            await asyncio.sleep(0)


async def until_copying(broker: Broker) -> None:
    """Return when a future log has records; the low copy rate keeps the move from completing."""
    await until(lambda: any(future.size_bytes for future in broker.moves.futures()))


async def test_a_log_moves_while_records_are_appended(broker: Broker) -> None:
    partition = await broker.lead()
    moving, number = broker.begin("b"), 4000
    while not moving.done():
        try:
            append(partition.log, b"%070d" % number)
        except KafkaError as error:
            assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            partition._advance_high_watermark(0)
            number += 1
        await asyncio.sleep(0)
    assert number > 4000
    assert broker.names() == {"a": ["orders-0-delete"], "b": ["orders-0"], "c": []}
    assert [int(value or b"") for _, value in contents(partition.log, max_bytes=100_000)] == [*range(number)]
    assert partition.log.directory == f"{broker.paths[1]}/orders-0"
    assert partition.log is broker.logs.get(*KEY)
    assert (partition.leads, partition.leader_epoch, partition.high_watermark) == (True, 4, number)
    assert partition.log.config is CONFIG
    assert list(broker.moves.futures()) == []
    append(partition.log, b"more")
    partition._advance_high_watermark(0)
    assert partition.high_watermark == number + 1


async def test_a_move_is_seen_from_its_first_moment_on(broker: Broker) -> None:
    """The future log is not created yet. A client that waits for the end of its move must not conclude that no move is
    in progress.
    """
    await broker.lead()
    moving = broker.begin("b")
    assert list(broker.moves.futures()) == [FutureReplica(KEY, broker.paths[1], 0, 4000)]
    while not moving.done():
        (place,) = {broker.logs.place_of(KEY), *(future.directory for future in broker.moves.futures())} - {
            broker.paths[0]
        }
        assert place == broker.paths[1]
        await asyncio.sleep(0)


async def test_a_throttled_move_is_seen_on_its_way(broker: Broker) -> None:
    partition = await broker.lead()
    broker.rate = 1
    broker.begin("b")
    await until_copying(broker)
    (future,) = broker.moves.futures()
    assert (future.key, future.directory) == (KEY, broker.paths[1])
    assert 0 < future.lag < 4000
    assert 0 < future.size_bytes < partition.log.size_bytes
    assert broker.names()["b"] == ["orders-0-future"]
    assert partition.log.state.is_copied, "it is not compacted meanwhile"


async def test_an_open_transaction_moves_with_its_log(broker: Broker) -> None:
    partition = await broker.lead()
    first = produce(partition.log, 1, 0, transactional=True)
    partition._advance_high_watermark(0)
    assert partition.last_stable_offset == first
    await broker.move("b")
    assert partition.last_stable_offset == first
    mark(partition.log, 1, COMMIT)
    partition._advance_high_watermark(MARKER_SIZE)
    assert partition.last_stable_offset == partition._stable_offset == partition.high_watermark == first + 2


async def test_a_move_back_ends_the_move(broker: Broker) -> None:
    partition = await broker.lead()
    broker.rate = 1
    moving = broker.begin("b")
    await until_copying(broker)
    broker.moves.move(*KEY, broker.paths[0])
    await asyncio.wait_for(moving, 60)
    assert broker.names() == {"a": ["orders-0"], "b": [], "c": []}
    assert not partition.log.state.is_copied
    append(partition.log, b"more")


async def test_another_directory_ends_the_move_to_the_first(broker: Broker) -> None:
    partition = await broker.lead()
    broker.rate = 1
    broker.begin("b")
    await until_copying(broker)
    broker.rate = FAST
    await broker.move("c")
    assert broker.names() == {"a": ["orders-0-delete"], "b": [], "c": ["orders-0"]}
    assert len(contents(partition.log, max_bytes=100_000)) == 4000


async def test_the_same_move_again_changes_nothing(broker: Broker) -> None:
    await broker.lead()
    broker.rate = 1
    moving = broker.begin("b")
    assert broker.begin("b") is moving


async def test_the_copy_begins_anew_when_records_are_truncated(broker: Broker, caplog: Any) -> None:
    caplog.set_level("INFO", directory_moves.__name__)
    partition = await broker.lead()
    broker.rate = 1
    moving = broker.begin("b")
    await until_copying(broker)
    partition.log.trimmer.truncate_to(50)
    partition.on_truncated()
    append(partition.log, b"another")
    broker.rate = FAST
    await asyncio.wait_for(moving, 60)
    assert "copy begun anew, records were truncated" in [record.message for record in caplog.records]
    assert len(contents(partition.log, max_bytes=100_000)) == 51
    assert contents(partition.log, max_bytes=100_000)[-1] == (50, b"another")
    assert broker.names()["b"] == ["orders-0"]


async def test_old_records_that_are_deleted_meanwhile_do_not_come_back(broker: Broker) -> None:
    partition = await broker.lead()
    broker.rate = 1
    moving = broker.begin("b")
    await until_copying(broker)
    partition.log.trimmer.delete_records_before(3990)
    partition.log.flusher.flush()
    broker.rate = FAST
    await asyncio.wait_for(moving, 60)
    assert partition.log.log_start_offset == 3990
    assert [offset for offset, _ in contents(partition.log)] == [*range(3990, 4000)]


async def test_a_deleted_partition_takes_its_copy_with_it(broker: Broker) -> None:
    await broker.lead()
    broker.rate = 1
    moving = broker.begin("b")
    await until_copying(broker)
    broker.replicas.on_image(EMPTY.with_topic(topic("orders", 1, epoch=4)), EMPTY)
    await asyncio.wait_for(moving, 60)
    names = broker.names()
    assert names["b"] == []
    assert names["a"] in (["orders-0"], ["orders-0-delete"]), "it is being deleted"


async def test_a_deletion_waits_for_the_end_of_the_move(broker: Broker) -> None:
    """The log is paused, and the disk of its new directory hangs, when the topic is deleted."""
    partition = await broker.lead()
    moving = broker.begin("b")
    await until(lambda: partition.log.is_paused)
    broker.disk.may_go_on.clear()
    broker.replicas.on_image(EMPTY.with_topic(topic("orders", 1, epoch=4)), EMPTY)
    broker.disk.may_go_on.set()
    await asyncio.wait_for(moving, 60)
    await until(lambda: broker.logs.get(*KEY) is None)
    assert broker.names() == {"a": ["orders-0-delete"], "b": ["orders-0-delete"], "c": []}


async def test_a_full_disk_leaves_the_log_where_it_is(broker: Broker, caplog: Any) -> None:
    partition = await broker.lead()
    broker.disk.is_full = True
    await broker.move("b")
    assert "log not moved" in [record.message for record in caplog.records]
    assert broker.names() == {"a": ["orders-0"], "b": [], "c": []}
    append(partition.log, b"more")
    broker.disk.is_full = False
    await broker.move("b")
    assert broker.names()["b"] == ["orders-0"]


async def test_a_follower_goes_on_with_the_moved_log(broker: Broker) -> None:
    partition = await show(broker.replicas, replicated(1, 3), replicated(2, 4))
    await broker.move("b")
    assert (partition.leads, partition.leader, partition.leader_epoch) == (False, 2, 4)
    assert broker.names()["b"] == ["orders-0"]


async def test_what_cannot_be_moved_has_kafkas_errors(broker: Broker) -> None:
    partition = await broker.lead()
    for asked, code in (
        ((*KEY, "/none"), ErrorCode.LOG_DIR_NOT_FOUND),
        (("none", 0, broker.paths[1]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", 7, broker.paths[1]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t" * 249, 0, broker.paths[1]), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        with pytest.raises(KafkaError) as refused:
            broker.moves.move(*asked)
        assert refused.value.code is code
    broker.moves.move(*KEY, broker.paths[0])
    assert broker.moves._moves == {}, "it is there already"
    partition.log.state.offline_reason = "its disk failed"
    with pytest.raises(KafkaError) as refused:
        broker.moves.move(*KEY, broker.paths[1])
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    partition.log.state.offline_reason = None


async def test_a_partition_of_other_brokers_is_not_available_here(broker: Broker) -> None:
    elsewhere = replicated(2, 4)
    elsewhere = type(elsewhere)(
        elsewhere.name, elsewhere.topic_id, {0: elsewhere.partitions[0].__class__((2,), (2,), 2)}
    )
    broker.replicas.on_image(EMPTY, EMPTY.with_topic(elsewhere))
    with pytest.raises(KafkaError) as refused:
        broker.moves.move(*KEY, broker.paths[1])
    assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE


async def test_a_stop_of_the_broker_closes_the_log_that_is_used(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    partition = await broker.lead()
    broker.begin("b")
    await until(lambda: partition.log.is_paused)
    await broker.tasks.close()
    broker.logs.close()
    again = LogManager.open(broker.paths, node_id=1, cluster_id="c", disk=broker.disk, clock=broker.clock)
    log = again.get(*KEY)
    assert log is not None
    assert again.was_closed_cleanly
    assert len(contents(log, max_bytes=100_000)) == 4000
    again.close()
