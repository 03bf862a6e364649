"""The leader keeps the ISR: replicas leave and join, and proposals without a response are repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.hosts import host_of
from tests.support.storage import FaultyDisk, make_batch, open_log

from oncelog_broker.metadata.model.image import Broker, ClusterImage, PartitionState, Topic
from oncelog_broker.replication import isr_keeper
from oncelog_broker.replication.fetch_response import RestartAt, cut, position_of
from oncelog_broker.replication.isr_keeper import IsrKeeper
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

REPLICAS = (1, 2, 3)
EPOCH = 10
LAG_SECONDS = 30.0


class Controller:
    """Requests to this controller wait until the test chooses a response."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    async def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked.append(request.topics[0].partitions[0])
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def grant(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.answer(ErrorCode.NONE, isr, partition_epoch)

    def answer(self, code: ErrorCode, isr: tuple[int, ...] = (), partition_epoch: int = -1) -> None:
        partition = AlterPartitionResponse.TopicData.PartitionData(
            partition_index=0, error_code=code, leader_id=1, leader_epoch=4, isr=list(isr),
            partition_epoch=partition_epoch,
        )  # fmt: skip
        topics = [AlterPartitionResponse.TopicData(topic_id=bytes(16), partitions=[partition])]
        self._answers.put_nowait(AlterPartitionResponse(error_code=0, topics=topics))

    def lose(self) -> None:
        self._answers.put_nowait(PeerUnavailable(1, "cut"))


class Led:
    """One partition that broker 1 leads, with the ISR keeper of the broker."""

    def __init__(self, directory: Path) -> None:
        self.disk = FaultyDisk()
        log = open_log(directory / "orders-0", disk=self.disk)
        self.partition = Partition("orders", bytes(16), 0, log, broker_id=1)
        self.controller, self.clock, self.tasks = Controller(), ManualClock(), Tasks()
        self.image = ClusterImage("", {broker: Broker(broker, EPOCH, ()) for broker in REPLICAS})
        self.offline: list[Any] = []
        replicas: Any = SimpleNamespace(
            led_with_followers=lambda: [self.partition], led_offline=lambda: iter(self.offline)
        )
        self.keeper = IsrKeeper(
            1, replicas, self, self.controller.alter, lambda: LAG_SECONDS, host_of(self.clock, self.tasks)
        )
        self.partition.lead(4, REPLICAS, REPLICAS, partition_epoch=7, now=self.clock.monotonic())

    def fetch(self, broker: int, offset: int, epoch: int = EPOCH, log_start: int = 0) -> None:
        if self.partition.on_follower_fetch(
            broker, offset, broker_epoch=epoch, log_start_offset=log_start, now=self.clock.monotonic()
        ):
            self.keeper.consider([self.partition])

    async def until(self, asked: int) -> Any:
        """Wait for this many proposals, and return the last of them."""
        async with asyncio.timeout(20):
            while len(self.controller.asked) < asked:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
        return self.controller.asked[asked - 1]

    async def until_answered(self) -> None:
        async with asyncio.timeout(20):
            while self.keeper._work is not None and not self.keeper._work.done():  # noqa: ASYNC110
                await asyncio.sleep(0)


@pytest.fixture
async def led(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Led]:
    monkeypatch.setattr(isr_keeper, "RETRY_SECONDS", 0.0)
    made = Led(tmp_path)
    yield made
    await made.tasks.close()
    made.partition.log.close()


def append(led: Led) -> None:
    led.partition.append(memoryview(make_batch()), required_acks=1)


async def test_a_lagging_replica_leaves_and_waiting_records_are_committed(led: Led) -> None:
    append(led)
    led.fetch(2, 1)
    led.fetch(3, 0)
    led.clock.advance_ms(31_000)
    led.fetch(2, 1)
    await led.keeper.look()
    asked = await led.until(1)
    assert (asked.leader_epoch, asked.partition_epoch, asked.new_isr) == (4, 7, [1, 2])
    assert [(member.broker_id, member.broker_epoch) for member in asked.new_isr_with_epochs] == [(1, 10), (2, 10)]
    assert led.partition.high_watermark == 0, "until the answer, both ISRs may be the true one"
    led.controller.grant((1, 2), 8)
    await led.until_answered()
    assert (led.partition.isr, led.partition.high_watermark) == ((1, 2), 1)


async def test_a_caught_up_replica_stays_in_sync_on_an_idle_partition(led: Led) -> None:
    append(led)
    for broker in (2, 3):
        led.fetch(broker, 1)
    led.clock.advance_ms(100_000)
    await led.keeper.look()
    assert led.controller.asked == []


async def test_two_hanging_replicas_do_not_replace_each_other_in_the_isr(led: Led) -> None:
    """The two replicas have all acknowledged records, because no record is acknowledged without them. The two replicas
    nevertheless do not count as in sync.
    """
    led.partition.log.update_config(replace(led.partition.log.config, min_insync_replicas=2))
    for broker in (2, 3):
        led.fetch(broker, 0)
    append(led)
    led.clock.advance_ms(31_000)
    await led.keeper.look()
    assert (await led.until(1)).new_isr == [1]
    led.controller.grant((1,), 8)
    await led.until_answered()
    assert not led.partition.has_enough_in_sync
    await led.keeper.look()
    assert len(led.controller.asked) == 1
    led.fetch(2, 0)
    led.fetch(2, 1)
    assert (await led.until(2)).new_isr == [1, 2]


async def test_a_hanging_replica_does_not_join_in_place_of_another(led: Led) -> None:
    for broker in (2, 3):
        led.fetch(broker, 0)
    led.partition.lead(4, (1, 2), REPLICAS, partition_epoch=8)
    append(led)
    led.clock.advance_ms(31_000)
    await led.keeper.look()
    assert (await led.until(1)).new_isr == [1]


async def test_an_unanswered_proposal_is_repeated_and_both_isrs_count(led: Led) -> None:
    append(led)
    led.clock.advance_ms(31_000)
    led.fetch(2, 1)
    await led.keeper.look()
    first = await led.until(1)
    led.controller.lose()
    second = await led.until(2)
    assert (first.new_isr, first.partition_epoch) == (second.new_isr, second.partition_epoch) == ([1, 2], 7)
    assert led.partition.in_sync.maximal == {1, 2, 3}
    led.partition.lead(4, (1, 2), REPLICAS, partition_epoch=8)  # the image shows the granted ISR
    assert led.partition.high_watermark == 1
    led.controller.answer(ErrorCode.INVALID_UPDATE_VERSION)
    await led.until_answered()
    assert led.partition.isr == (1, 2)


async def test_an_answer_that_is_newer_than_the_image_is_not_taken_back_by_it(led: Led) -> None:
    led.clock.advance_ms(31_000)
    append(led)
    led.fetch(2, 1)
    await led.keeper.look()
    await led.until(1)
    led.controller.grant((1, 2), 8)
    await led.until_answered()
    led.partition.lead(4, REPLICAS, REPLICAS, partition_epoch=7)
    assert led.partition.isr == (1, 2)


async def test_an_answer_that_the_image_has_overtaken_ends_no_newer_proposal(led: Led) -> None:
    """Otherwise the newer proposal would stay pending for ever and block all later proposals."""
    append(led)
    led.fetch(2, 1)
    led.clock.advance_ms(31_000)
    led.fetch(2, 1)
    await led.keeper.look()
    assert (await led.until(1)).new_isr == [1, 2]
    led.partition.lead(4, (1, 2), REPLICAS, partition_epoch=8)  # the image shows the granted ISR
    led.fetch(3, 1)
    assert led.partition.in_sync.proposed == (1, 2, 3)
    led.controller.grant((1, 2), 8)
    asked = await led.until(2)
    assert (asked.new_isr, asked.partition_epoch) == ([1, 2, 3], 8)
    led.controller.grant((1, 2, 3), 9)
    await led.until_answered()
    assert led.partition.isr == (1, 2, 3)


async def test_a_caught_up_replica_joins_with_its_incarnation_and_counts_at_once(led: Led) -> None:
    led.partition.lead(4, (1, 2), REPLICAS, partition_epoch=8)
    append(led)
    led.fetch(2, 1)
    assert led.partition.high_watermark == 1
    led.fetch(3, 0)
    assert led.controller.asked == []
    led.fetch(3, 1)
    asked = await led.until(1)
    assert (asked.new_isr, asked.partition_epoch) == ([1, 2, 3], 8)
    append(led)
    led.fetch(2, 2)
    assert led.partition.high_watermark == 1, "it may be in sync already"
    led.controller.grant((1, 2, 3), 9)
    await led.until_answered()
    led.fetch(3, 2)
    assert led.partition.high_watermark == 2


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
async def test_only_the_incarnation_that_lives_may_join(led: Led, epoch: int) -> None:
    led.partition.lead(4, (1, 2), REPLICAS, partition_epoch=8)
    led.fetch(3, 0, epoch=epoch)
    await led.keeper.look()
    assert led.controller.asked == []


async def test_a_definitely_refused_proposal_no_longer_counts(led: Led) -> None:
    led.partition.lead(4, (1, 2), REPLICAS, partition_epoch=8)
    led.fetch(3, 0)
    await led.until(1)
    assert led.partition.in_sync.maximal == {1, 2, 3}
    led.controller.answer(ErrorCode.INELIGIBLE_REPLICA)
    await led.until_answered()
    assert led.partition.in_sync.maximal == {1, 2}


async def test_s80_a_leader_whose_log_is_offline_proposes_no_smaller_isr(led: Led) -> None:
    """The leader does not know which other replicas are alive: the last one may have died while its session is open."""
    led.partition.log.state.fail("append to", OSError(5, "Input/output error"))
    led.clock.advance_ms(31_000)
    await led.keeper.look()
    assert led.controller.asked == []


async def test_a_leader_whose_disk_is_full_resigns_and_tries_again_when_it_is_chosen_again(led: Led) -> None:
    append(led)
    led.disk.full()
    with pytest.raises(KafkaError) as raised:
        append(led)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await led.keeper.look()
    asked = await led.until(1)
    assert asked.new_isr == [2, 3]
    led.partition.lead(6, (1, 2), REPLICAS, partition_epoch=9)
    await led.keeper.look()
    assert len(led.controller.asked) == 1


async def test_a_leader_that_refused_an_append_and_is_alone_in_sync_lets_others_join(led: Led) -> None:
    """With min.insync.replicas=2 no append is possible before other replicas join, so the leader would remain unable to
    append for ever.
    """
    append(led)
    led.disk.full()
    with pytest.raises(KafkaError):
        append(led)
    led.partition.lead(4, (1,), REPLICAS, partition_epoch=8, now=led.clock.monotonic())
    led.fetch(2, 1)
    asked = await led.until(1)
    assert asked.new_isr == [1, 2]
    led.controller.grant((1, 2), 9)
    await led.until_answered()
    await led.keeper.look()
    assert (await led.until(2)).new_isr == [2]


async def test_a_disk_that_takes_appends_again_is_no_reason_to_resign(led: Led) -> None:
    led.disk.full()
    with pytest.raises(KafkaError):
        append(led)
    led.disk.append_fault = None
    append(led)
    await led.keeper.look()
    assert led.controller.asked == []


async def test_s80_a_partition_without_an_open_log_is_given_up_with_its_isr_unchanged(led: Led) -> None:
    led.offline = [
        (SimpleNamespace(topic_id=b"o" * 16), 3, PartitionState(REPLICAS, (1, 2), 1, 4, 7)),
        (SimpleNamespace(topic_id=b"o" * 16), 5, PartitionState(REPLICAS, (1,), 1, 4, 7)),
    ]
    await led.keeper.look()
    asked = await led.until(1)
    assert (asked.partition_index, asked.new_isr, asked.leader_epoch, asked.partition_epoch) == (3, [1, 2], 4, 7)
    assert asked.is_log_offline
    assert {member.broker_epoch for member in asked.new_isr_with_epochs} == {isr_keeper.UNKNOWN_BROKER_EPOCH}
    await led.keeper.look()
    assert len(led.controller.asked) == 1, "one request at a time"
    led.controller.lose()
    while len(led.controller.asked) < 2:
        await led.keeper.look()
        await asyncio.sleep(0)


async def test_s80_a_partition_whose_only_in_sync_log_cannot_be_opened_is_given_up(led: Led) -> None:
    alone = PartitionState((1,), (1,), 1, 4, 7)
    led.offline = [(SimpleNamespace(topic_id=b"o" * 16), 3, alone)]
    await led.keeper.look()
    assert led.controller.asked == [], "nobody else could lead it"
    led.offline = [(SimpleNamespace(topic_id=b"o" * 16), 5, PartitionState(REPLICAS, (1,), 1, 4, 7))]
    await led.keeper.look()
    asked = await led.until(1)
    assert (asked.partition_index, asked.new_isr, asked.is_log_offline) == (5, [1], True)
    assert (asked.leader_epoch, asked.partition_epoch) == (4, 7)


async def test_a_new_epoch_is_requested_by_proposing_the_unchanged_isr(led: Led) -> None:
    topic = Topic("other", b"o" * 16, {3: PartitionState(REPLICAS, (2, 3), 2, 4, 7)})
    led.image = led.image.with_topic(topic)
    led.keeper.ask_for_new_epochs([("other", 3), ("deleted", 0)])
    asked = await led.until(1)
    assert (asked.partition_index, asked.new_isr, asked.leader_epoch, asked.partition_epoch) == (3, [2, 3], 4, 7)
    led.keeper.ask_for_new_epochs([("other", 3)])
    await asyncio.sleep(0)
    assert len(led.controller.asked) == 1, "one request at a time"
    led.controller.answer(ErrorCode.INVALID_UPDATE_VERSION)
    while len(led.controller.asked) < 2:
        led.keeper.ask_for_new_epochs([("other", 3)])
        await asyncio.sleep(0)


async def test_the_last_in_sync_replica_stays(led: Led) -> None:
    led.partition.lead(4, (1,), REPLICAS, partition_epoch=8)
    led.partition.log.state.fail("append to", OSError(5, "Input/output error"))
    led.clock.advance_ms(31_000)
    await led.keeper.look()
    assert led.controller.asked == []


async def test_a_proposal_that_is_made_again_names_the_incarnations_of_the_first_time(led: Led) -> None:
    """Broker 3 had all records, crashed with its machine, and returned with fewer records."""
    led.partition.lead(4, (1, 2), REPLICAS, partition_epoch=8)
    append(led)
    led.fetch(2, 1)
    led.fetch(3, 1)
    first = await led.until(1)
    assert first.new_isr_with_epochs[2].broker_epoch == EPOCH
    led.image = ClusterImage("", {**led.image.brokers, 3: Broker(3, EPOCH + 10, ())})
    led.fetch(3, 0, epoch=EPOCH + 10)
    led.controller.lose()
    again = await led.until(2)
    assert again.new_isr_with_epochs[2].broker_epoch == EPOCH


async def test_a_failed_request_to_the_controller_is_always_repeated(led: Led) -> None:
    ask, failures = led.controller.alter, []

    async def fail_once(request: Any) -> Any:
        if not failures:
            failures.append(request)
            raise KeyError("a defect")
        return await ask(request)

    led.keeper._alter_partition = fail_once
    append(led)
    led.clock.advance_ms(31_000)
    led.fetch(2, 1)
    await led.keeper.look()
    assert (await led.until(1)).new_isr == [1, 2]
    assert failures


def test_a_lowered_min_insync_replicas_takes_effect_at_once(tmp_path: Path) -> None:
    partition = Partition("orders", bytes(16), 0, open_log(tmp_path / "orders-0"), broker_id=1)
    config = partition.log.config
    partition.update_config(replace(config, min_insync_replicas=2))
    partition.lead(4, (1, 2), REPLICAS, partition_epoch=8)
    partition.append(memoryview(make_batch()), required_acks=1)
    partition.lead(4, (1,), REPLICAS, partition_epoch=9)
    assert partition.high_watermark == 0
    partition.update_config(replace(config, min_insync_replicas=1))
    assert partition.high_watermark == 1


def test_an_empty_log_without_epochs_can_be_followed(tmp_path: Path) -> None:
    """Retention has emptied an idle log. A replica with a new disk starts at the log's end and is elected."""
    old = Partition("t", bytes(16), 0, open_log(tmp_path / "a" / "t-0"), broker_id=1)
    old.lead(5, (1,), (1, 2), partition_epoch=1)
    old.append(memoryview(make_batch()), required_acks=1)
    old.log.trimmer.roll()
    old.log.trimmer.delete_records_before(1)
    new = Partition("t", bytes(16), 0, open_log(tmp_path / "b" / "t-0"), broker_id=2)
    new.follow(1, 5)
    with pytest.raises(KafkaError):
        old.check_follower(2, position_of(new))
    cut(new, RestartAt(1))
    new.on_truncated()
    assert old.check_follower(2, position_of(new)) is None
    new.lead(6, (2, 1), (1, 2), partition_epoch=3)
    old.follow(2, 6)
    assert new.check_follower(1, position_of(old)) is None


async def test_a_replica_that_left_and_stopped_fetching_is_not_waited_for(led: Led) -> None:
    """The controller removed a stopping broker from the ISR, and the leader must not propose the broker again."""
    append(led)
    led.fetch(2, 1)
    led.fetch(3, 1)
    led.partition.lead(4, (1, 2), REPLICAS, partition_epoch=8)
    await led.keeper.look()
    assert led.controller.asked == []
    led.fetch(3, 1)
    await led.until(1)
    led.controller.answer(ErrorCode.INELIGIBLE_REPLICA)
    await led.until_answered()
    await led.keeper.look()
    assert len(led.controller.asked) == 1
    led.fetch(3, 1)
    assert (await led.until(2)).new_isr == [1, 2, 3]
