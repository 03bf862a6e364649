"""A follower and a leader with real requests, handlers and logs, connected by function calls instead of sockets."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosts import Shown, host_of
from tests.support.served import EPOCH, FOLLOWER, LEADER, TOPIC, Client, Served
from tests.support.slow_disk import SlowDisk
from tests.support.storage import SMALL, contents, make_batch, open_log

from oncelog_broker.metadata.model.image import Broker, ClusterImage
from oncelog_broker.replication import fetcher
from oncelog_broker.replication.fetch_plan import FetchLimits, FetchPlan
from oncelog_broker.replication.fetch_response import RestartAt, append_after_restart, cut, position_of, take
from oncelog_broker.replication.fetcher import Fetchers
from oncelog_broker.replication.leader_check import LeaderCheck, Led
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.disk import RealFile
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchResponse

BOTH = (LEADER, FOLLOWER)
LIMITS = FetchLimits(
    partition_bytes=600, response_bytes=1 << 20, min_bytes=1, max_wait_seconds=0.5, max_rest_seconds=0.05
)
IMAGE = ClusterImage("", {broker: Broker(broker, EPOCH, ()) for broker in BOTH})


class Wire:
    """Replaces `Peers`: requests reach the leader unless `is_cut`."""

    def __init__(self, served: Served) -> None:
        self.is_cut = False
        self.asked: list[Any] = []
        self._client = Client(served)
        self._served = served
        self._answered = 0

    async def send(self, broker_id: int, request: Any, *, purpose: Any, timeout: float) -> Any:
        assert broker_id == LEADER
        self.asked.append(request)
        if self.is_cut:
            raise PeerUnavailable(broker_id, "cut")
        self._client.send(request, api=ApiKey.FETCH, version=17)
        while not self._client.has_answers(self._answered + 1):
            await asyncio.sleep(0.005)
            self._served.deadlines.fire()  # time passes quickly on the leader
            if self.is_cut:
                self._client = Client(self._served)
                self._answered = 0
                raise PeerUnavailable(broker_id, "cut")
        self._answered += 1
        return self._client.answers()[-1][1]


class Pair:
    """A leader and a follower of one partition."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.served = Served(directory / "leader")
        (self.leader,) = self.served.partitions
        self.wire = Wire(self.served)
        self.follower = Partition(
            TOPIC, bytes(16), 0, open_log(directory / "follower" / "orders-0"), broker_id=FOLLOWER
        )
        self.tasks, clock = Tasks(), SystemClock()
        self.truncated: list[Partition] = []
        self.disk_is_full = False
        self.leader_answers = True
        self.fetchers = Fetchers(
            FOLLOWER, self.wire, Shown(IMAGE), lambda: LIMITS, host_of(clock, self.tasks),
            self._on_truncated, self._note_log_starts, self,
        )  # fmt: skip

    def _on_truncated(self, partition: Partition) -> None:
        self.truncated.append(partition)
        self.fetchers.follow(partition)

    def _note_log_starts(self) -> None:
        if self.disk_is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.follower.log.state.checkpointed_start = self.follower.log.log_start_offset

    async def confirmed(self, partitions: Collection[Led]) -> set[Led]:
        """Confirm the leadership of these partitions, in place of `LeaderCheck`."""
        return set(partitions) if self.leader_answers else set()

    def begin(self, epoch: int = 0, isr: tuple[int, ...] = BOTH) -> None:
        """Start this leader epoch on both brokers."""
        self.leader.lead(epoch, isr, BOTH)
        self.follower.follow(LEADER, epoch)
        self.fetchers.follow(self.follower)

    def produce(self, count: int = 1) -> None:
        for _ in range(count):
            self.leader.append(memoryview(make_batch(b"%d" % self.leader.log.log_end_offset)), required_acks=1)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.002)

    async def until_the_same(self) -> None:
        await self.until(
            lambda: (
                self.leader.high_watermark
                == self.leader.log.log_end_offset
                == self.follower.log.log_end_offset
                == self.follower.high_watermark
            )
        )
        assert contents(self.leader.log) == contents(self.follower.log)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    yield made
    await made.tasks.close()
    await made.served.tasks.close()
    made.follower.log.close()
    made.served.leave()


async def test_a_follower_fetches_present_and_new_records(pair: Pair) -> None:
    pair.produce(20)
    pair.begin()
    await pair.until_the_same()
    pair.produce(3)
    await pair.until_the_same()
    assert all(request.session_epoch > 0 for request in pair.wire.asked[1:]), "in one incremental session"


async def test_records_that_the_leader_lacks_are_truncated_in_a_thread(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.begin()
    pair.produce(4)
    await pair.until_the_same()
    pair.fetchers.forget(pair.follower)
    pair.follower.lead(1, (FOLLOWER,), BOTH)
    for _ in range(5):
        pair.follower.append(memoryview(make_batch(b"lost")), required_acks=1)
    pair.follower.high_watermark = 4  # the high watermark that the follower had before its election
    truncate, threads = pair.follower.log.trimmer.truncate_to, []

    def truncating(offset: int) -> None:
        threads.append(threading.current_thread())
        truncate(offset)

    monkeypatch.setattr(type(pair.follower.log.trimmer), "truncate_to", lambda _, offset: truncating(offset))
    pair.begin(epoch=2)
    pair.produce(2)
    await pair.until_the_same()
    assert pair.truncated == [pair.follower]
    assert threads
    assert threading.current_thread() not in threads
    assert not pair.follower.log.state.is_truncating


async def test_a_leader_whose_first_append_failed_follows_the_next_leader(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former leader knows a leader epoch that the next leader lacks, although it has no records to truncate."""
    pair.begin()
    pair.produce(4)
    await pair.until_the_same()
    pair.fetchers.forget(pair.follower)
    pair.follower.lead(1, (FOLLOWER,), BOTH)

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", refuse)
        with pytest.raises(KafkaError, match="No space"):
            pair.follower.append(memoryview(make_batch(b"lost")), required_acks=1)
    pair.begin(epoch=2)
    pair.produce(2)
    await pair.until_the_same()
    assert pair.follower.log.leader_epochs.entries == pair.leader.log.leader_epochs.entries


async def test_a_truncation_with_an_unexpected_exception_is_retried(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the failed step were not retried, this broker would neither follow nor lead the partition for ever."""
    pair.begin()
    pair.produce(4)
    await pair.until_the_same()
    pair.fetchers.forget(pair.follower)
    pair.follower.lead(1, (FOLLOWER,), BOTH)
    pair.follower.append(memoryview(make_batch(b"lost")), required_acks=1)
    pair.follower.high_watermark = 4  # the high watermark that the follower had before its election
    truncate, failures = pair.follower.log.trimmer.truncate_to, [True]

    def truncating(_: Any, offset: int) -> None:
        if failures:
            failures.pop()
            raise ZeroDivisionError("for this test")
        truncate(offset)

    monkeypatch.setattr(type(pair.follower.log.trimmer), "truncate_to", truncating)
    pair.begin(epoch=2)
    pair.produce(2)
    await pair.until_the_same()
    assert not pair.follower.log.state.is_truncating
    assert "for this test" in caplog.text


async def test_a_log_with_an_unexpected_exception_delays_no_other_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(tmp_path / "leader", partitions=2)
    tasks, clock = Tasks(), SystemClock()
    fetchers = Fetchers(
        FOLLOWER, Wire(served), Shown(IMAGE), lambda: LIMITS, host_of(clock, tasks), lambda _: None,
        lambda: None, LeaderCheck(FOLLOWER, Wire(served)),
    )  # fmt: skip
    followers = [
        Partition(TOPIC, bytes(16), index, open_log(tmp_path / f"{TOPIC}-{index}"), broker_id=FOLLOWER)
        for index in (0, 1)
    ]
    broken = followers[0]
    append_as_follower = Partition.append_as_follower

    def append(partition: Partition, *args: Any, **options: Any) -> None:
        if partition is broken:
            raise ZeroDivisionError("for this test")
        append_as_follower(partition, *args, **options)

    monkeypatch.setattr(Partition, "append_as_follower", append)
    for leader, follower in zip(served.partitions, followers, strict=True):
        leader.lead(0, (LEADER,), BOTH)
        leader.append(memoryview(make_batch(b"first")), required_acks=1)
        follower.follow(LEADER, 0)
        fetchers.follow(follower)
    async with asyncio.timeout(20):
        while followers[1].log.log_end_offset < 1:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.002)
    assert broken.log.log_end_offset == 0
    assert "for this test" in caplog.text
    for each in (tasks, served.tasks):
        await each.close()
    for follower in followers:
        follower.log.close()
    served.leave()


async def test_a_follower_far_behind_begins_at_the_leaders_log_start(pair: Pair) -> None:
    pair.leader.lead(0, (LEADER,), BOTH)
    pair.produce(30)
    pair.leader.log.trimmer.delete_records_before(25)
    pair.begin(isr=(LEADER,))
    await pair.until(lambda: pair.follower.log.log_end_offset == 30)
    assert pair.follower.log.log_start_offset == 25
    assert contents(pair.leader.log) == contents(pair.follower.log)


@pytest.mark.parametrize("fails", [False, True], ids=["at once", "after a failed append"])
async def test_a_log_start_in_the_middle_of_a_batch_is_followed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A leader returns whole batches, so the first batch of the follower begins below the leader's log start."""
    pair.leader.lead(0, (LEADER,), BOTH)
    for _ in range(3):
        pair.leader.append(memoryview(make_batch(b"a", b"b", b"c")), required_acks=1)
    pair.leader.log.trimmer.delete_records_before(4)
    if fails:
        append = Partition.append_as_follower

        def refuse(*_: Any, **__: Any) -> None:
            monkeypatch.setattr(Partition, "append_as_follower", append)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE)

        monkeypatch.setattr(Partition, "append_as_follower", refuse)
    pair.begin(isr=(LEADER,))
    await pair.until(lambda: pair.follower.log.log_end_offset == 9)
    assert pair.follower.log.log_start_offset == 4
    assert contents(pair.leader.log) == contents(pair.follower.log)
    pair.produce()
    await pair.until(lambda: pair.follower.log.log_end_offset == 10)


@pytest.mark.parametrize("records", [b"x", bytes(make_batch())[:-1], bytes(make_batch())[:-1] + b"x"])
def test_a_damaged_first_batch_is_refused(pair: Pair, records: bytes) -> None:
    pair.follower.follow(LEADER, 0)
    answer = FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=0, error_code=0, high_watermark=1, log_start_offset=0, records=records
    )
    with pytest.raises(KafkaError) as refused:
        take(pair.follower, position_of(pair.follower), answer)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def answer_at_3(pair: Pair, *batches: bytes) -> FetchResponse.FetchableTopicResponse.PartitionData:
    """Return a response for the follower, whose empty log starts at offset 3."""
    pair.follower.log.trimmer.truncate_fully_and_start_at(3)
    pair.follower.follow(LEADER, 0)
    return FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=0, error_code=0, high_watermark=9, log_start_offset=3, records=memoryview(b"".join(batches))
    )


def test_a_restart_holds_only_the_first_batch_and_is_not_caused_by_a_damaged_later_batch(pair: Pair) -> None:
    first = bytes(make_batch(b"a", b"b", b"c", base_offset=2))
    answer = answer_at_3(pair, first, b"damaged")
    wanted = take(pair.follower, position_of(pair.follower), answer)
    assert isinstance(wanted, RestartAt)
    assert wanted.answer is not None
    assert wanted.answer.records == first
    assert isinstance(wanted.answer.records, bytes), "the buffer of the whole response is free"
    cut(pair.follower, wanted)
    pair.follower.on_truncated()
    append_after_restart(pair.follower, wanted)
    log = pair.follower.log
    assert (log.log_start_offset, log.log_end_offset, pair.follower.high_watermark) == (3, 5, 5)


def test_a_first_batch_of_a_later_epoch_causes_no_restart(pair: Pair) -> None:
    """The log would skip the batch (KAFKA-18723), and restart again and again."""
    answer = answer_at_3(pair, make_batch(b"a", b"b", b"c", base_offset=2, partition_leader_epoch=1))
    assert take(pair.follower, position_of(pair.follower), answer) is None
    assert pair.follower.log.log_end_offset == 3


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), RuntimeError("unexpected")], ids=repr)
async def test_the_longest_back_off_follows_a_failed_append_after_a_restart(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Each attempt restarts the log twice. The partition is fetched again even after an unexpected error."""
    rests: list[float] = []
    hold_back = FetchPlan.hold_back

    def holding_back(plan: FetchPlan, key: Any, position: Any, until: float) -> None:
        rests.append(until - SystemClock().monotonic())
        hold_back(plan, key, position, until)

    append, refusals = Partition.append_as_follower, [error] * 3

    def appending(partition: Partition, *arguments: Any, **options: Any) -> None:
        if refusals:
            raise refusals.pop()
        append(partition, *arguments, **options)

    monkeypatch.setattr(FetchPlan, "hold_back", holding_back)
    monkeypatch.setattr(Partition, "append_as_follower", appending)
    pair.leader.lead(0, (LEADER,), BOTH)
    pair.leader.append(memoryview(make_batch(b"a", b"b", b"c")), required_acks=1)
    pair.leader.log.trimmer.delete_records_before(1)
    pair.begin(isr=(LEADER,))
    await pair.until(lambda: pair.follower.log.log_end_offset == 3)
    assert rests == [pytest.approx(LIMITS.max_rest_seconds, abs=0.02)] * 3


async def test_the_log_start_of_the_leader_is_followed(pair: Pair) -> None:
    pair.begin()
    pair.produce(5)
    await pair.until_the_same()
    pair.leader.log.trimmer.delete_records_before(3)
    pair.produce()
    await pair.until_the_same()
    assert pair.follower.log.log_start_offset == 3


async def test_a_follower_hears_its_leader_as_long_as_that_answers(pair: Pair) -> None:
    assert not pair.fetchers.hears(pair.follower)
    pair.begin()
    pair.produce(1)
    await pair.until_the_same()
    assert pair.fetchers.hears(pair.follower)
    assert not pair.fetchers.hears(pair.leader)
    pair.fetchers.forget(pair.follower)
    assert not pair.fetchers.hears(pair.follower)


async def test_the_leader_is_told_of_a_log_start_that_is_on_the_disk_only(pair: Pair) -> None:
    """If the follower reported a log start before it is on disk, records reported as deleted would reappear when the
    follower is killed and then elected.
    """
    pair.begin()
    pair.produce(5)
    await pair.until_the_same()
    pair.disk_is_full = True
    pair.leader.log.trimmer.delete_records_before(3)
    answer = pair.leader.deleted_everywhere(3)
    pair.produce()
    await pair.until_the_same()
    assert (pair.follower.log.log_start_offset, pair.leader.low_watermark) == (3, 0)
    pair.disk_is_full = False
    pair.leader.log.trimmer.delete_records_before(4)
    pair.produce()
    assert isinstance(answer, asyncio.Future)
    async with asyncio.timeout(20):
        assert await answer == ErrorCode.NONE
    assert pair.leader.low_watermark == 4


async def test_an_unnoted_log_start_is_noted_when_following_begins(pair: Pair) -> None:
    """A replica joins the ISR only if the leader knows that it has deleted the same records; after a kill the leader
    does not know this.
    """
    pair.begin()
    pair.produce(5)
    await pair.until_the_same()
    pair.disk_is_full = True
    pair.leader.log.trimmer.delete_records_before(3)
    pair.produce()
    await pair.until_the_same()
    assert pair.leader.low_watermark == 0
    pair.disk_is_full = False
    pair.begin(epoch=1)
    await pair.until(lambda: pair.leader.low_watermark == 3)


async def test_a_follower_continues_in_a_new_session_after_a_truncation(pair: Pair) -> None:
    pair.begin()
    pair.produce(2)
    await pair.until_the_same()
    pair.wire.is_cut = True
    asked = len(pair.wire.asked)
    await pair.until(lambda: len(pair.wire.asked) > asked + 1)
    pair.produce(2)
    pair.wire.is_cut = False
    await pair.until_the_same()
    assert any(request.session_epoch == 0 for request in pair.wire.asked[asked:])


async def test_a_leader_that_has_not_heard_of_the_epoch_is_asked_again(pair: Pair) -> None:
    pair.leader.lead(0, BOTH, BOTH)
    pair.produce(2)
    pair.follower.follow(LEADER, 1)
    pair.fetchers.follow(pair.follower)
    await pair.until(lambda: len(pair.wire.asked) > 2)
    assert pair.follower.log.log_end_offset == 0
    pair.leader.lead(1, BOTH, BOTH)
    await pair.until_the_same()


async def test_a_follower_whose_log_fails_stops_asking(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.begin()
    pair.produce()
    await pair.until_the_same()
    pair.follower.log.state.fail("append to", OSError(5, "Input/output error"))
    pair.produce()
    await pair.until(lambda: pair.follower.log.is_offline)
    assert pair.follower.log.log_end_offset == 1


async def test_batches_of_a_later_epoch_than_was_asked_in_are_left_out(pair: Pair) -> None:
    """It is unknown whether the follower's log agrees with the later leader's log (KAFKA-18723)."""
    log = pair.follower.log
    older = make_batch(b"a", base_offset=0, partition_leader_epoch=3)
    newer = make_batch(b"b", base_offset=1, partition_leader_epoch=5)
    log.append_as_follower(older + newer, leader_epoch=4)
    assert contents(log) == [(0, b"a")]
    log.append_as_follower(newer, leader_epoch=4)
    assert (log.log_end_offset, log.latest_epoch) == (1, 3)
    log.append_as_follower(newer, leader_epoch=5)
    assert log.latest_epoch == 5


async def test_s81_a_log_is_not_given_up_before_its_leader_answers(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader may be dead, and may return without its disk."""
    monkeypatch.setattr(fetcher, "RESTART_SECONDS", 0.001)
    pair.begin()
    pair.produce(4)
    await pair.until_the_same()
    pair.leader_answers = False
    pair.fetchers.restart_log(pair.follower)
    await asyncio.sleep(0.02)
    assert (pair.follower.log.log_end_offset, pair.truncated) == (4, [])
    pair.leader_answers = True
    await pair.until(lambda: bool(pair.truncated))


async def test_s56_a_log_that_is_given_up_is_fetched_anew(pair: Pair) -> None:
    pair.begin()
    pair.produce(4)
    await pair.until_the_same()
    pair.fetchers.restart_log(pair.follower)
    await pair.until(lambda: bool(pair.truncated))
    await pair.until_the_same()
    assert pair.follower.log.log_end_offset == 4


async def test_s124_a_follower_asks_for_more_when_what_it_has_is_on_the_disk(pair: Pair) -> None:
    """The leader relies on the fetch offset: the follower must have every record before that offset on disk."""
    disk, fetched = SlowDisk(), asyncio.Event()
    pair.follower.log.close()
    log = open_log(pair.directory / "synced" / "orders-0", replace(SMALL, flush_messages=1), disk=disk)
    pair.follower = Partition(
        TOPIC, bytes(16), 0, log, broker_id=FOLLOWER, request_sync=lambda partition: fetched.set()
    )
    pair.begin()
    pair.produce(3)
    await disk.until_begun()
    asked = len(pair.wire.asked)
    for _ in range(50):
        await asyncio.sleep(0)
    assert (log.log_end_offset > 0, len(pair.wire.asked), pair.leader.high_watermark) == (True, asked, 0)
    disk.may_end.set()
    await pair.until_the_same()
    assert log.state.synced_offset == 3
    assert not fetched.is_set(), "the fetch loop itself syncs"


async def test_s124_a_follower_syncs_what_an_earlier_process_has_left_before_it_asks(pair: Pair) -> None:
    disk = SlowDisk()
    pair.follower.log.close()
    log = open_log(pair.directory / "synced" / "orders-0", replace(SMALL, flush_messages=1), disk=disk)
    pair.produce(2)
    log.append_as_follower(pair.leader.log.reader.read(0, 1000, upper_bound=2, min_one_batch=True))
    pair.follower = Partition(TOPIC, bytes(16), 0, log, broker_id=FOLLOWER, request_sync=lambda partition: None)
    pair.begin()
    await disk.until_begun()
    assert pair.wire.asked == []
    disk.may_end.set()
    await pair.until_the_same()


async def test_e26_a_follower_whose_fsync_fails_asks_for_nothing_more(pair: Pair) -> None:
    disk = SlowDisk()
    disk.fails = True
    pair.follower.log.close()
    log = open_log(pair.directory / "synced" / "orders-0", replace(SMALL, flush_messages=1), disk=disk)
    pair.follower = Partition(TOPIC, bytes(16), 0, log, broker_id=FOLLOWER, request_sync=lambda partition: None)
    pair.begin()
    pair.produce()
    await disk.until_begun()
    asked = len(pair.wire.asked)
    disk.may_end.set()
    await pair.until(lambda: log.is_offline)
    for _ in range(50):
        await asyncio.sleep(0)
    assert (len(pair.wire.asked), pair.leader.high_watermark) == (asked, 0)
