"""A partition on its leader: appends, the high watermark for which acks=all waits, the ISR, and markers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.storage import SMALL, make_batch, open_log

from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.control import ControlType, EndTransactionMarker

LEADER, SECOND, THIRD = 1, 2, 3
ALL = (LEADER, SECOND, THIRD)
EPOCH = 5


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    """A partition led in EPOCH with three in-sync replicas, two of which acks=all requires; no follower has fetched
    yet.
    """
    log = open_log(tmp_path / "orders-0", replace(SMALL, min_insync_replicas=2))
    made = Partition("orders", bytes(16), 0, log, broker_id=LEADER)
    made.lead(EPOCH, ALL, ALL, partition_epoch=1)
    yield made
    made.log.close()


def append(partition: Partition, *, acks: int = -1, **header: int | bool) -> int:
    return partition.append(memoryview(make_batch(**header)), required_acks=acks)[0]


def refusal(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def test_the_high_watermark_is_the_smallest_in_sync_log_end(partition: Partition) -> None:
    append(partition)
    append(partition)
    partition.on_follower_fetch(SECOND, 2)
    assert partition.high_watermark == 0, "the third has not told how far it is"
    partition.on_follower_fetch(THIRD, 1)
    assert partition.high_watermark == 1
    partition.on_follower_fetch(THIRD, 2)
    assert partition.high_watermark == 2
    partition.on_follower_fetch(SECOND, 0)
    assert partition.high_watermark == 2, "it never goes back while this broker leads"


async def test_acks_all_waits_for_the_high_watermark(partition: Partition) -> None:
    append(partition)
    waiting = partition.committed(1)
    assert isinstance(waiting, asyncio.Future)
    partition.on_follower_fetch(SECOND, 1)
    assert not waiting.done()
    partition.on_follower_fetch(THIRD, 1)
    assert await waiting is ErrorCode.NONE
    assert partition.committed(1) is ErrorCode.NONE, "at once, what is replicated already"


async def test_resigning_answers_waiting_requests_and_refuses_appends(partition: Partition) -> None:
    append(partition)
    waiting = partition.committed(1)
    assert isinstance(waiting, asyncio.Future)
    partition.resign()
    assert await waiting is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.committed(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refused:
        append(partition)
    assert refusal(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end_offset == 1


async def test_too_few_in_sync_refuse_acks_all_before_and_after_the_append(partition: Partition) -> None:
    append(partition)
    waiting = partition.committed(1)
    assert isinstance(waiting, asyncio.Future)
    patient = partition.committed(1, needs_replicas=False)
    assert isinstance(patient, asyncio.Future)
    partition.adopt_isr((LEADER,), 2)
    assert await waiting is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert not patient.done(), "a decided transaction waits on"
    with pytest.raises(KafkaError) as refused:
        append(partition)
    assert refusal(refused) is ErrorCode.NOT_ENOUGH_REPLICAS
    append(partition, acks=1)
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 0)
    assert partition.committed(2) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    patient.cancel()


def test_members_of_a_proposed_isr_hold_back_the_high_watermark(partition: Partition) -> None:
    partition.adopt_isr((LEADER, SECOND), 2)
    append(partition)
    partition.propose_isr(ALL)
    partition.on_follower_fetch(SECOND, 1)
    assert partition.high_watermark == 0, "the controller may have accepted the third"
    partition.withdraw_proposal()
    assert partition.high_watermark == 1


def test_no_isr_is_proposed_twice_or_by_a_resigned_leader(partition: Partition) -> None:
    def is_alive(broker_id: int, broker_epoch: int) -> bool:
        return True

    append(partition)
    for other in (SECOND, THIRD):
        partition.on_follower_fetch(other, 0, now=0.0)
    partition.on_follower_fetch(SECOND, 1, now=40.0)
    proposal = partition.wanted_isr(now=40.0, lag_seconds=30.0, is_eligible=is_alive)
    assert proposal == (LEADER, SECOND)
    partition.propose_isr(proposal)
    assert partition.wanted_isr(now=40.0, lag_seconds=30.0, is_eligible=is_alive) is None
    partition.withdraw_proposal()
    partition.resign()
    assert partition.wanted_isr(now=40.0, lag_seconds=30.0, is_eligible=is_alive) is None


def test_only_the_live_incarnation_joins_the_isr(partition: Partition) -> None:
    partition.adopt_isr((LEADER, SECOND), 2)
    append(partition)
    partition.on_follower_fetch(SECOND, 1, broker_epoch=7)
    assert partition.on_follower_fetch(THIRD, 1, broker_epoch=7, log_start_offset=0)
    for alive, isr in ((8, None), (7, ALL)):
        wanted = partition.wanted_isr(
            now=0.0, lag_seconds=30.0, is_eligible=lambda _, epoch, alive=alive: epoch == alive
        )
        assert wanted == isr


def test_a_new_leader_epoch_forgets_follower_positions(partition: Partition) -> None:
    append(partition)
    partition.on_follower_fetch(SECOND, 1)
    partition.lead(EPOCH + 1, ALL, ALL, partition_epoch=2)
    partition.on_follower_fetch(THIRD, 1)
    assert partition.high_watermark == 0, "the second has not fetched in this epoch"
    assert (partition.epoch_start_offset, partition.messages_in_epoch) == (1, 0)
    assert not partition.high_watermark_caught_up
    partition.on_follower_fetch(SECOND, 1)
    assert partition.high_watermark_caught_up


def test_an_older_leader_epoch_or_state_changes_nothing(partition: Partition) -> None:
    partition.adopt_isr((LEADER, SECOND), 3)
    partition.lead(EPOCH - 1, (LEADER,), ALL, partition_epoch=9)
    partition.lead(EPOCH, (LEADER,), ALL, partition_epoch=2)
    assert (partition.leader_epoch, partition.isr) == (EPOCH, (LEADER, SECOND))


@pytest.mark.parametrize(
    ("broker", "position", "code"),
    [
        (4, FetchPosition(0, -1, EPOCH), ErrorCode.NOT_LEADER_OR_FOLLOWER),  # this broker has no replica
        (SECOND, FetchPosition(0, -1, -1), ErrorCode.FENCED_LEADER_EPOCH),
        (SECOND, FetchPosition(0, -1, EPOCH - 1), ErrorCode.FENCED_LEADER_EPOCH),
        (SECOND, FetchPosition(0, -1, EPOCH + 1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (SECOND, FetchPosition(9, -1, EPOCH), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_fenced_and_out_of_range_followers_are_refused(
    partition: Partition, broker: int, position: FetchPosition, code: ErrorCode
) -> None:
    append(partition)
    with pytest.raises(KafkaError) as refused:
        partition.check_follower(broker, position)
    assert refusal(refused) is code
    assert partition.high_watermark == 0


def test_a_shut_gate_refuses_appends_and_markers(tmp_path: Path) -> None:
    may_lead = True
    log = open_log(tmp_path / "orders-0")
    partition = Partition("orders", bytes(16), 0, log, broker_id=LEADER, may_lead=lambda: may_lead)
    partition.lead(EPOCH, (LEADER,))
    append(partition)
    may_lead = False
    with pytest.raises(KafkaError) as refused:
        append(partition)
    assert refusal(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refused:
        partition.append_marker(EndTransactionMarker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0)
    assert refusal(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end_offset == 1
    log.close()


def test_last_stable_offset_moves_when_the_marker_is_replicated(partition: Partition) -> None:
    append(partition, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    append(partition)
    for other in (SECOND, THIRD):
        partition.on_follower_fetch(other, 2)
    assert (partition.upper_bound(READ_UNCOMMITTED), partition.upper_bound(READ_COMMITTED)) == (2, 0)
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    assert partition.append_marker(marker, producer_id=7, producer_epoch=0) == 2
    assert partition.last_stable_offset == 0, "an end that is not replicated may be lost with its leader"
    for other in (SECOND, THIRD):
        partition.on_follower_fetch(other, 3)
    assert partition.last_stable_offset == 3


def test_markers_need_as_many_replicas_as_acks_all(partition: Partition) -> None:
    partition.adopt_isr((LEADER,), 2)
    with pytest.raises(KafkaError) as refused:
        partition.append_marker(EndTransactionMarker(ControlType.ABORT, 0), producer_id=7, producer_epoch=0)
    assert refusal(refused) is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_records_are_deleted_everywhere_when_no_replica_in_sync_begins_earlier(partition: Partition) -> None:
    for _ in range(3):
        append(partition)
    for other in (SECOND, THIRD):
        partition.on_follower_fetch(other, 3, log_start_offset=0)
    partition.log.trimmer.delete_records_before(2)
    deleted = partition.deleted_everywhere(2)
    assert isinstance(deleted, asyncio.Future)
    partition.on_follower_fetch(SECOND, 3, log_start_offset=2)
    assert (partition.low_watermark, deleted.done()) == (0, False)
    partition.on_follower_fetch(THIRD, 3, log_start_offset=2)
    assert await deleted is ErrorCode.NONE
    assert partition.deleted_everywhere(1) is ErrorCode.NONE


def test_replicas_that_a_reassignment_adds_are_not_missed(partition: Partition) -> None:
    partition.lead(EPOCH, ALL, (*ALL, 4), adding=(4,), partition_epoch=2)
    assert (partition.is_under_replicated, partition.needed_in_sync) == (False, 2)
    partition.adopt_isr((LEADER, SECOND), 3)
    assert partition.is_under_replicated
