"""A replica as a follower: which records it accepts from its leader, what it acknowledges, and how it responds to
readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.storage import fill, make_batch, open_log

from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.replication.replica import Replica
from oncelog_broker.replication.truncation import NO_EPOCH_IN_COMMON
from oncelog_protocol.errors import ErrorCode, KafkaError

THIS, LEADER = 2, 1
EPOCH = 3


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    made = Replica("orders", bytes(16), 0, open_log(tmp_path / "orders-0"), broker_id=THIS)
    made.follow(LEADER, EPOCH)
    yield made
    made.log.close()


def take(replica: Replica, *offsets: int, high_watermark: int, log_start_offset: int = 0) -> None:
    records = b"".join(bytes(make_batch(base_offset=offset, partition_leader_epoch=EPOCH)) for offset in offsets)
    replica.append_as_follower(
        memoryview(bytearray(records)),
        leader_epoch=EPOCH,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
    )


def test_a_follower_vouches_for_no_more_than_it_has(replica: Replica) -> None:
    take(replica, 0, 1, high_watermark=9)
    assert (replica.high_watermark, replica.log.log_end_offset) == (2, 2)
    take(replica, high_watermark=1)
    assert replica.high_watermark == 2, "a leader that was just elected may know less"


def test_a_high_watermark_may_arrive_without_records(replica: Replica) -> None:
    take(replica, 0, 1, high_watermark=0)
    assert replica.high_watermark == 0
    take(replica, high_watermark=2)
    assert replica.high_watermark == 2


def test_records_are_deleted_with_the_leaders_once_they_are_replicated(replica: Replica) -> None:
    take(replica, 0, 1, 2, high_watermark=1, log_start_offset=2)
    assert replica.log.log_start_offset == 0, "above the high watermark nothing is deleted"
    take(replica, high_watermark=3, log_start_offset=2)
    assert replica.log.log_start_offset == 2


def test_the_high_watermark_of_a_start_lies_within_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 3)
    log.trimmer.delete_records_before(1)
    for checkpointed, expected in ((0, 1), (2, 2), (7, 3)):
        replica = Replica("orders", bytes(16), 0, log, broker_id=THIS, high_watermark=checkpointed)
        assert replica.high_watermark == expected
    log.close()


def test_truncation_takes_the_high_watermark_back(replica: Replica) -> None:
    take(replica, 0, 1, 2, high_watermark=3)
    replica.log.trimmer.truncate_to(1)
    replica.on_truncated()
    assert replica.high_watermark == 1


def test_a_follower_does_not_lead(replica: Replica) -> None:
    assert (replica.leads, replica.is_resigned, replica.leader) == (False, True, LEADER)
    replica.follow(NO_LEADER, EPOCH + 1)
    assert (replica.leader, replica.leader_epoch) == (NO_LEADER, EPOCH + 1)


def test_an_offline_log_begins_again_only_where_no_leader_counts_on_it(replica: Replica) -> None:
    assert not replica.may_begin_again(EPOCH), "this leader may have heard where the log ended"
    assert replica.may_begin_again(EPOCH + 1)


@pytest.mark.parametrize(
    ("epoch", "code"), [(EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH), (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_leader_epochs_of_clients_are_checked(replica: Replica, epoch: int, code: ErrorCode) -> None:
    replica.check_leader_epoch(-1)
    replica.check_leader_epoch(EPOCH)
    with pytest.raises(KafkaError) as refused:
        replica.check_leader_epoch(epoch)
    assert refused.value.code is code


def test_a_follower_judges_no_reader_above_its_high_watermark(replica: Replica) -> None:
    take(replica, 0, 1, high_watermark=1)
    assert replica.check_reader(2, EPOCH - 1) is None
    assert replica.check_reader(1, EPOCH) is None
    with pytest.raises(KafkaError) as refused:
        replica.check_reader(3, EPOCH)
    assert refused.value.code is ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_follower_knows_where_epochs_end(replica: Replica) -> None:
    take(replica, 0, 1, high_watermark=2)
    assert replica.end_offset_for_epoch(EPOCH) == (EPOCH, 2)
    assert replica.end_offset_for_epoch(EPOCH - 1)[0] < EPOCH
    replica.follow(LEADER, EPOCH + 4)
    assert replica.end_offset_for_epoch(EPOCH + 2) == (EPOCH, 2), (
        "nothing is known of it: the last one that has records"
    )
    assert replica.end_offset_for_epoch(EPOCH + 4) == (EPOCH + 4, 2), "our own, without a record"


def test_a_follower_of_an_empty_log_removes_all_its_records(replica: Replica) -> None:
    assert replica.divergence_of_follower(5, 1) == (NO_EPOCH_IN_COMMON, 0)
    assert replica.divergence_of_follower(0, -1) is None
