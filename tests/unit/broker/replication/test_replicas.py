"""A broker applies each new cluster image to its partitions, without blocking the event loop, whatever fails during
that work.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.hosted_partitions import EMPTY, WatchedDisk, nobody_fetches, replicated, show, topic
from tests.support.hosts import host_of
from tests.support.logs import make_log
from tests.support.storage import SMALL, contents, make_batch, open_log

from oncelog_broker.log.checkpoints import RECOVERY_POINT_CHECKPOINT
from oncelog_broker.log.config import COMPACT, LogConfig
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.model.image import NO_LEADER, ClusterImage, PartitionState, Topic
from oncelog_broker.replication import image_changes, log_opener
from oncelog_broker.replication.log_opener import LOGS_AT_A_TIME
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.replicas import WRITTEN_BACK_MS, Replicas
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")


async def test_a_log_that_cannot_be_deleted_keeps_no_other_topic_from_being_served(
    replicas: Replicas, disk: WatchedDisk
) -> None:
    old = EMPTY.with_topic(topic("old", 1))
    replicas.on_image(EMPTY, old)
    await replicas.until_opened()
    disk.refuses_renames = True
    replicas.on_image(old, old.without_topic("old").with_topic(topic("new", 2)))
    await replicas.until_opened()
    assert replicas.leader("new", 0).topic == "new"


async def test_s56_all_replicas_count_as_in_sync_only_if_certain(logs: LogManager, tasks: Tasks) -> None:
    gate = [True]
    replicas = Replicas(
        1, logs, lambda overrides: LogConfig(), host_of(tasks=tasks), nobody_fetches, may_lead=lambda: gate[0]
    )
    partition = await show(replicas, replicated(leader=1, epoch=0))
    assert replicas.all_are_in_sync(partition)
    gate[0] = False
    assert not replicas.all_are_in_sync(partition), "what this broker knows may be of the past"
    gate[0] = True
    one_away = EMPTY.with_topic(replicated(leader=1, epoch=1, isr=(1,)))
    replicas.on_image(EMPTY.with_topic(replicated(leader=1, epoch=0)), one_away)
    assert not replicas.all_are_in_sync(partition)
    replicas.on_image(one_away, whole := EMPTY.with_topic(replicated(leader=1, epoch=2)))
    assert replicas.all_are_in_sync(partition)
    partition.adopt_isr((1,), 3)
    assert not replicas.all_are_in_sync(partition), "the controller has said so already, and no image shows it yet"
    comes = PartitionState((1, 2, 3), (1, 2), leader=1, leader_epoch=2, partition_epoch=4, adding_replicas=(3,))
    replicas.on_image(whole, one_away := EMPTY.with_topic(Topic("orders", bytes([1]) * 16, {0: comes})))
    assert not replicas.all_are_in_sync(partition), "one that is added copies still"
    another = Topic("orders", bytes([2]) * 16, {0: PartitionState((1,), (1,), leader=1, leader_epoch=0)})
    replicas.on_image(one_away, EMPTY.with_topic(another))
    assert not replicas.all_are_in_sync(partition), "it is of a topic that was deleted"


async def test_the_event_loop_waits_for_no_disk(replicas: Replicas, logs: LogManager, disk: WatchedDisk) -> None:
    many = EMPTY.with_topic(topic("many", 1, partitions=3 * LOGS_AT_A_TIME))
    replicas.on_image(EMPTY, many)
    await replicas.until_opened()
    replicas.on_image(many, EMPTY)
    replicas.on_image(EMPTY, EMPTY.with_topic(topic("after", 2)))
    await replicas.until_opened()
    assert [log.name for log in logs.logs()] == ["after-0"]
    assert disk.threads
    assert threading.current_thread() not in disk.threads


async def test_clients_retry_until_a_log_is_open(replicas: Replicas, disk: WatchedDisk) -> None:
    disk.may_go_on.clear()
    shown = EMPTY.with_topic(topic("orders", 1))
    replicas.on_image(EMPTY, shown)
    opened = asyncio.ensure_future(replicas.until_opened("orders"))
    told: list[set[str]] = []
    replicas.subscribe(lambda topics: told.append(set(topics)))
    await asyncio.to_thread(disk.is_waiting.wait, 10)
    for lead in (lambda: replicas.leader("orders", 0), lambda: replicas.leader_by_id(bytes([1]) * 16, 0)):
        with pytest.raises(KafkaError) as caught:
            lead()
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (opened.done(), told) == (False, [])
    # Changes of the partition that arrive while its log is opened take effect afterwards.
    replicas.on_image(shown, shown.with_topic(topic("orders", 1, epoch=7)))
    disk.may_go_on.set()
    await opened
    assert replicas.leader("orders", 0).leader_epoch == 7
    assert told == [{"orders"}]


async def test_very_many_changes_leave_others_their_turn(
    logs: LogManager, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn of the loop creates, moves and deletes a few partitions, and notifies the coordinators of each changed
    partition.
    """
    monkeypatch.setattr(image_changes, "PARTITIONS_AT_A_TIME", 3)
    replicas = Replicas(1, logs, lambda overrides: LogConfig(), host_of(tasks=tasks), nobody_fetches)
    told: list[set[str]] = []
    replicas.subscribe(lambda topics: told.append(set(topics)))

    def count() -> int:
        return len(list(replicas.led()))

    many = EMPTY.with_topic(topic("many", 1, partitions=10))
    replicas.on_image(EMPTY, many)
    await replicas.until_opened("many")
    assert count() == 10

    moved = {index: PartitionState((1, 2), (2,), leader=2, leader_epoch=1) for index in range(10)}
    elsewhere = many.with_topic(Topic("many", bytes([1]) * 16, moved))
    told.clear()
    replicas.on_image(many, elsewhere)
    counts = [count()]
    while counts[-1]:
        await asyncio.sleep(0)
        counts.append(count())
    assert {before - after for before, after in pairwise([10, *counts])} <= {0, 1, 3}
    await replicas.until_settled()
    assert told == [{"many"}] * 3, "beside those that the image itself tells"

    replicas.on_image(elsewhere, EMPTY)
    assert len(list(replicas.partitions())) == 7
    await replicas.until_settled()
    assert list(replicas.partitions()) == []


async def test_changes_that_wait_are_overtaken_by_those_of_a_later_image(
    logs: LogManager, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic is deleted, re-created and deleted again while the first change still waits; the last image decides."""
    monkeypatch.setattr(image_changes, "PARTITIONS_AT_A_TIME", 1)
    replicas = Replicas(1, logs, lambda overrides: LogConfig(), host_of(tasks=tasks), nobody_fetches)
    shown = [EMPTY]

    def show(image: ClusterImage) -> None:
        replicas.on_image(shown[-1], image)
        shown.append(image)

    show(EMPTY.with_topic(topic("a", 1, partitions=3)).with_topic(topic("b", 1, partitions=2)))
    show(EMPTY.with_topic(topic("a", 2, partitions=3)))
    show(EMPTY)
    show(EMPTY.with_topic(topic("a", 3, partitions=3, epoch=4)))
    await replicas.until_opened()
    assert [(p.topic_id, p.leader_epoch) for p in replicas.led()] == [(bytes([3]) * 16, 4)] * 3
    assert sorted(log.name for log in logs.logs()) == ["a-0", "a-1", "a-2"]
    show(EMPTY)
    show(EMPTY.with_topic(topic("last", 4)))
    await replicas.until_opened()
    assert [log.name for log in logs.logs()] == ["last-0"]


async def test_a_failure_of_one_partition_keeps_no_other_from_following_the_image(
    replicas: Replicas, logs: LogManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    find = logs.find

    def failing(wanted: WantedLog) -> object:
        if wanted.partition == 1:
            raise ZeroDivisionError("for this test")
        return find(wanted)

    monkeypatch.setattr(logs, "find", failing)
    replicas.on_image(EMPTY, EMPTY.with_topic(topic("orders", 1, partitions=3)))
    await replicas.until_opened()
    assert [partition.index for partition in replicas.led()] == [0, 2]
    assert "for this test" in caplog.text


async def test_opening_one_topic_does_not_wait_for_another(replicas: Replicas, disk: WatchedDisk) -> None:
    first = EMPTY.with_topic(topic("first", 1))
    replicas.on_image(EMPTY, first)
    await replicas.until_opened("first")
    disk.may_go_on.clear()
    replicas.on_image(first, first.with_topic(topic("second", 2)))
    await replicas.until_opened("first")
    with pytest.raises(KafkaError):
        replicas.leader("second", 0)


async def test_a_topic_may_be_deleted_and_re_created_while_its_log_opens(
    replicas: Replicas, logs: LogManager, disk: WatchedDisk
) -> None:
    disk.may_go_on.clear()
    first, second = EMPTY.with_topic(topic("orders", 1)), EMPTY.with_topic(topic("orders", 2))
    replicas.on_image(EMPTY, first)
    await asyncio.to_thread(disk.is_waiting.wait, 10)
    replicas.on_image(first, second)
    disk.may_go_on.set()
    await replicas.until_opened()
    assert replicas.leader("orders", 0).topic_id == bytes([2]) * 16
    assert logs.topic_id("orders", 0) == bytes([2]) * 16
    assert disk.events == ["made orders-0", "deleted orders-0", "made orders-0"]


async def test_a_log_is_deleted_when_its_end_is_cut(replicas: Replicas) -> None:
    """If the deletion did not wait for the truncation, the truncation would truncate the log of a re-created topic in
    the same directory.
    """
    asyncio.get_running_loop().set_default_executor(
        ThreadPoolExecutor(2)
    )  # one thread truncates the log, the other one does all other work
    partition = await show(replicas, replicated(leader=2, epoch=0))
    log, may_cut = partition.log, threading.Event()
    for offset in range(5):
        log.append_as_follower(make_batch(b"old", base_offset=offset))
    log.flusher.flush()
    log.state.is_truncating = True
    is_cutting = threading.Event()

    def wait(_: object) -> None:
        is_cutting.set()
        may_cut.wait(10)

    log.trimmer.before_truncation = wait
    cutting = asyncio.ensure_future(asyncio.to_thread(log.trimmer.truncate_to, 2))
    await asyncio.to_thread(is_cutting.wait, 10)
    before = EMPTY.with_topic(replicated(leader=2, epoch=0))
    after = before.without_topic("orders").with_topic(topic("orders", 2))
    replicas.on_image(before, after)
    opened = asyncio.ensure_future(replicas.until_opened())
    for _ in range(20):  # a round trip through the other thread waits until its earlier work is complete
        await asyncio.to_thread(is_cutting.is_set)
    was_opened = opened.done()
    if was_opened:
        for _ in range(5):
            replicas.leader("orders", 0).append(memoryview(make_batch(b"new")), required_acks=1)
    may_cut.set()
    await asyncio.wait([cutting])
    log.state.is_truncating = False
    replicas.on_truncated(partition)
    await opened
    assert not was_opened, contents(replicas.leader("orders", 0).log)
    replicas.leader("orders", 0).append(memoryview(make_batch(b"new")), required_acks=1)
    assert contents(replicas.leader("orders", 0).log) == [(0, b"new")]


async def test_a_topic_may_be_re_created_while_its_log_is_deleted(replicas: Replicas, disk: WatchedDisk) -> None:
    old = EMPTY.with_topic(topic("again", 1))
    replicas.on_image(EMPTY, old)
    await replicas.until_opened()
    disk.may_go_on.clear()
    replicas.on_image(old, EMPTY)
    await asyncio.to_thread(disk.is_waiting.wait, 10)  # the old log is being deleted
    replicas.on_image(EMPTY, EMPTY.with_topic(topic("again", 2)))
    disk.may_go_on.set()
    await replicas.until_opened()
    assert replicas.leader("again", 0).topic_id == bytes([2]) * 16


async def test_a_log_that_is_open_is_led_at_once(logs: LogManager, replicas: Replicas, disk: WatchedDisk) -> None:
    """After a start, the logs are open before the first image arrives."""
    orders = topic("orders", 1)
    make_log(logs, "orders", 0, orders.topic_id, LogConfig())
    disk.may_go_on.clear()
    replicas.on_image(EMPTY, EMPTY.with_topic(orders))
    assert replicas.leader("orders", 0).log is logs.get("orders", 0)


async def test_a_log_that_cannot_be_opened_is_offline(replicas: Replicas, tmp_path: Path) -> None:
    (tmp_path / "orders-0").write_text("in the way")
    replicas.on_image(EMPTY, EMPTY.with_topic(topic("orders", 1, partitions=2)))
    await replicas.until_opened()
    with pytest.raises(KafkaError, match="orders-0 is offline") as caught:
        replicas.leader("orders", 0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert replicas.leader("orders", 1).index == 1


async def test_a_log_without_a_descriptor_is_retried(
    replicas: Replicas, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No file descriptor is left. The disk is not at fault, because a descriptor becomes free when other files are
    closed.
    """
    monkeypatch.setattr(log_opener, "RETRY_SECONDS", 0.001)
    left = [2]

    def if_there_is_one(call: Callable[..., T]) -> Callable[..., T]:
        def called(*given: Any, **named: Any) -> T:
            if left[0] > 0:
                left[0] -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return call(*given, **named)

        return called

    for name in ("replace_file", "list_directory"):
        monkeypatch.setattr(WatchedDisk, name, staticmethod(if_there_is_one(getattr(disk, name))))
    replicas.on_image(EMPTY, EMPTY.with_topic(topic("orders", 1)))
    await replicas.until_opened()
    assert replicas.leader("orders", 0).topic == "orders"
    assert caplog.text.count("too many open files") == 2


async def test_a_broker_that_stops_closes_newly_made_logs(logs: LogManager, disk: WatchedDisk, tmp_path: Path) -> None:
    tasks = Tasks()
    replicas = Replicas(1, logs, lambda overrides: LogConfig(), host_of(tasks=tasks), nobody_fetches)
    disk.may_go_on.clear()
    replicas.on_image(EMPTY, EMPTY.with_topic(topic("orders", 1)))
    await asyncio.to_thread(disk.is_waiting.wait, 10)
    closing = asyncio.ensure_future(tasks.close())
    await asyncio.sleep(0)
    assert not closing.done()
    disk.may_go_on.set()
    await closing
    (log,) = logs.logs()
    logs.close()
    assert log.is_cleanly_closed
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_partitions_stay_without_leader_behind_a_shut_gate(logs: LogManager, tasks: Tasks) -> None:
    may_lead = True
    replicas = Replicas(
        1, logs, lambda overrides: LogConfig(), host_of(tasks=tasks), nobody_fetches, may_lead=lambda: may_lead
    )
    orders = topic("orders", 1)
    replicas.on_image(ClusterImage(""), ClusterImage("").with_topic(orders))
    await replicas.until_opened()
    partition = replicas.leader("orders", 0)
    may_lead = False
    for ask in (
        lambda: replicas.leader("orders", 0),
        lambda: replicas.leader_by_id(orders.topic_id, 0),
        lambda: partition.append(memoryview(make_batch()), required_acks=1),
    ):
        with pytest.raises(KafkaError) as raised:
            ask()
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert replicas.led_partition("orders", 0) is partition
    may_lead = True
    assert replicas.leader("orders", 0) is partition


class Fetching:
    """Replaces the fetcher and records the calls to it."""

    def __init__(self) -> None:
        self.followed: list[tuple[int, int]] = []
        self.begun_anew: list[Partition] = []
        self.forgotten = 0
        self.is_heard = True

    def follow(self, partition: Partition) -> None:
        self.followed.append((partition.leader, partition.leader_epoch))

    def forget(self, partition: Partition) -> None:
        self.forgotten += 1

    def restart_log(self, partition: Partition) -> None:
        self.begun_anew.append(partition)

    def hears(self, partition: Partition) -> bool:
        return self.is_heard


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


@pytest.fixture
def fetched(logs: LogManager, tasks: Tasks, fetching: Fetching) -> Replicas:
    """Replicas that report to `fetching`."""
    return Replicas(1, logs, lambda overrides: LogConfig(), host_of(tasks=tasks), lambda _: fetching)


async def test_a_broker_leads_and_follows_as_the_image_says(fetched: Replicas, fetching: Fetching) -> None:
    replicas = fetched
    partition = await show(replicas, replicated(1, 0), replicated(2, 1))
    assert fetching.followed == [(2, 1)]
    assert partition.is_resigned
    for lead in (lambda: replicas.leader("orders", 0), lambda: replicas.led_by_id(bytes([1]) * 16, 0)):
        with pytest.raises(KafkaError) as refused:
            lead()
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    replicas.on_image(EMPTY, EMPTY.with_topic(replicated(1, 2)))
    assert replicas.leader("orders", 0) is partition
    assert (partition.leads, partition.leader_epoch) == (True, 2)
    assert list(replicas.high_watermarks()) == [("orders", 0)]


async def test_a_follower_may_be_read_while_its_leader_answers(fetched: Replicas, fetching: Fetching) -> None:
    replicas = fetched
    partition = await show(replicas, replicated(2, 0))
    for name in ("orders", bytes([1]) * 16):
        assert replicas.followed(name, 0) is partition
    assert replicas.followed("orders", 1) is None
    assert replicas.followed(bytes([2]) * 16, 0) is None
    fetching.is_heard = False
    assert replicas.followed("orders", 0) is None
    fetching.is_heard = True
    replicas.on_image(EMPTY, EMPTY.with_topic(replicated(1, 1)))
    assert replicas.followed("orders", 0) is None


async def test_followers_are_hosted_and_have_their_high_watermarks_noted(replicas: Replicas) -> None:
    partition = await show(replicas, replicated(2, 0))
    assert not list(replicas.led())
    assert replicas.high_watermarks() == {("orders", 0): 0}
    assert not partition.leads


async def test_a_replica_does_not_lead_while_its_log_is_truncated(replicas: Replicas) -> None:
    partition = await show(replicas, replicated(2, 0))
    told: list[set[str]] = []
    replicas.subscribe(lambda topics: told.append(set(topics)))
    partition.log.state.is_truncating = True
    replicas.on_image(EMPTY, EMPTY.with_topic(replicated(1, 1)))
    with pytest.raises(KafkaError):
        replicas.leader("orders", 0)
    partition.log.state.is_truncating = False
    replicas.on_truncated(partition)
    assert replicas.leader("orders", 0) is partition
    assert told == [{"orders"}], "coordinators are to look"


async def test_a_replica_that_is_taken_away_leaves_no_log(replicas: Replicas, logs: LogManager) -> None:
    state = PartitionState((2,), (2,), leader=2, leader_epoch=1, partition_epoch=1)
    await show(replicas, replicated(1, 0))
    replicas.on_image(EMPTY, EMPTY.with_topic(Topic("orders", bytes([1]) * 16, {0: state})))
    while replicas._hosted.is_pending(("orders", 0)):  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.001)
    assert list(logs.logs()) == []


async def test_a_replica_removed_during_downtime_is_deleted_at_the_next_start(
    replicas: Replicas, logs: LogManager
) -> None:
    """The log of the same topic is deleted, but a log with another topic id must be kept."""
    make_log(logs, "orders", 0, bytes([1]) * 16, LogConfig())
    make_log(logs, "orders", 1, bytes([2]) * 16, LogConfig())
    state = PartitionState((2,), (2,), leader=2, leader_epoch=1, partition_epoch=1)
    replicas.on_image(EMPTY, EMPTY.with_topic(Topic("orders", bytes([1]) * 16, {0: state, 1: state})))
    while replicas._hosted.is_pending(("orders", 0)):  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.001)
    assert [log.name for log in logs.logs()] == ["orders-1"]


def test_a_replica_that_is_being_added_is_not_asked_for(tmp_path: Path) -> None:
    """With min.insync.replicas=2 and one replica, one acknowledgement suffices, even while another replica is being
    added.
    """
    log = open_log(tmp_path / "orders-0", replace(SMALL, min_insync_replicas=2))
    partition = Partition("orders", bytes(16), 0, log, broker_id=1)
    partition.lead(0, (1,), (1, 2), adding=(2,))
    assert partition.has_enough_in_sync
    partition.append(memoryview(make_batch(b"a")), required_acks=-1)
    assert partition.high_watermark == 1
    partition.lead(0, (1,), (1, 2), partition_epoch=1)
    assert not partition.has_enough_in_sync
    log.close()


async def test_a_log_that_is_missing_begins_anew_only_when_nobody_counts_on_it(
    replicas: Replicas, logs: LogManager
) -> None:
    (home,) = logs._directories
    home.write_checkpoint(RECOVERY_POINT_CHECKPOINT, {("orders", 0): 5})
    logs.note_missing([("orders", 0)])
    in_sync = EMPTY.with_topic(replicated(2, 0))
    replicas.on_image(EMPTY, in_sync)
    await replicas.until_opened()
    assert list(replicas.partitions()) == []
    replicas.on_image(in_sync, in_sync.with_topic(replicated(2, 0, isr=(2,))))
    await replicas.until_opened()
    (partition,) = replicas.partitions()
    assert (partition.log.log_end_offset, partition.leader) == (0, 2)


def chosen(epoch: int, written: int) -> ClusterImage:
    """Return an image in which broker 1 leads a topic's only partition; the store transaction `written` wrote the
    partition's state.
    """
    state = PartitionState((1, 2), (1, 2), leader=1, leader_epoch=epoch, partition_epoch=epoch, written=written)
    return EMPTY.with_topic(Topic("t", b"t" * 16, {0: state}))


async def test_a_broker_elected_before_its_registration_does_not_lead(replicas: Replicas, logs: LogManager) -> None:
    await replicas.on_registered(100)
    before, since = chosen(5, written=99), chosen(6, written=101)
    replicas.on_image(EMPTY, before)
    await replicas.until_opened()
    assert logs.get("t", 0) is not None
    assert list(replicas.led()) == []
    with pytest.raises(KafkaError) as refused:
        replicas.led_by_id(b"t" * 16, 0)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    replicas.on_image(before, since)
    assert replicas.leader("t", 0).leader_epoch == 6


async def test_a_new_registration_ends_leadership_by_older_states(replicas: Replicas) -> None:
    await replicas.on_registered(100)
    before, since = chosen(5, written=150), chosen(6, written=250)
    replicas.on_image(EMPTY, before)
    await replicas.until_opened()
    partition = replicas.leader("t", 0)
    told: list[set[str]] = []
    replicas.subscribe(lambda topics: told.append(set(topics)))
    await replicas.on_registered(200)
    assert partition.is_resigned
    assert list(replicas.led()) == []
    assert told == [{"t"}]
    replicas.on_image(before, since)
    assert replicas.leader("t", 0) is partition
    await replicas.on_registered(240)  # the partition state was written after the broker's registration
    assert list(replicas.led()) == [partition]


SHORT_AND_COMPACTED = LogConfig(cleanup_policy=frozenset({COMPACT}), delete_retention_ms=WRITTEN_BACK_MS - 1)


@pytest.mark.parametrize(
    ("config", "isr", "gives_up"),
    [
        (SHORT_AND_COMPACTED, (2,), True),
        (SHORT_AND_COMPACTED, (1, 2), False),
        (replace(SHORT_AND_COMPACTED, delete_retention_ms=WRITTEN_BACK_MS), (2,), False),
        (replace(SHORT_AND_COMPACTED, cleanup_policy=LogConfig().cleanup_policy), (2,), False),
    ],
    ids=["given up", "in sync", "markers are kept for long", "not compacted"],
)
async def test_s56_a_compacted_log_that_lost_its_end_in_a_power_cut_is_given_up(
    logs: LogManager, tasks: Tasks, config: LogConfig, isr: tuple[int, ...], gives_up: bool
) -> None:
    """Lost tombstones at the end of the log may be compacted away on the other replicas."""
    make_log(logs, "orders", 0, bytes([1]) * 16, config)
    fetching = Fetching()
    replicas = Replicas(1, logs, lambda _: config, host_of(tasks=tasks), lambda _: fetching)
    replicas.doubt_logs()
    partition = await show(replicas, replicated(NO_LEADER, 0, isr), replicated(2, 1, isr), replicated(2, 2, isr))
    assert fetching.begun_anew == ([partition] * 2 if gives_up else []), "in each epoch until it is done"
    assert fetching.followed == [(-1, 0), *([] if gives_up else [(2, 1), (2, 2)])]
    replicas.on_truncated(partition)
    replicas.on_image(EMPTY.with_topic(replicated(2, 2, isr)), EMPTY.with_topic(replicated(2, 3, isr)))
    await replicas.until_opened()
    assert fetching.followed[-1] == (2, 3), "and once only"
