"""Deliveries of records, and how they ended, are counted once each."""

from __future__ import annotations

import pytest

from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_broker.sharing.acknowledgement import AckBatch, AckTerms, acknowledge
from oncelog_broker.sharing.acquisition import LogBatch, Terms, acquire
from oncelog_broker.sharing.share_counts import ShareCounts
from oncelog_broker.sharing.share_partition import SharePartition
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.share_fetch import AcknowledgeType

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
LIMIT = 2
TERMS = AckTerms("a", deadline=60.0, delivery_limit=LIMIT, renews=True, may_renew=True)


def take(share: SharePartition, count: int) -> None:
    terms = Terms("a", 30.0, count, 100, is_exact=True, delivery_limit=LIMIT, max_locks=2_000)
    acquire(share, share.next_offset(2_000) or 0, [LogBatch(0, 999)], terms)


def test_first_and_repeated_deliveries_of_all_share_partitions_are_counted_together() -> None:
    counts = ShareCounts()
    share, other = SharePartition(0, counts=counts), SharePartition(0, counts=counts)
    take(share, 5)
    take(other, 3)
    assert (counts.first_deliveries, counts.repeated_deliveries) == (8, 0)
    share.expire(30.0, 5)
    take(share, 2)
    assert (counts.first_deliveries, counts.repeated_deliveries) == (8, 2)


def test_acknowledgements_are_counted_by_type_and_refused_ones_are_not() -> None:
    share = SharePartition(0)
    take(share, 10)
    acknowledge(share, [AckBatch(0, 5, [ACCEPT]), AckBatch(6, 9, [REJECT, RELEASE, RENEW, GAP])], TERMS)
    with pytest.raises(KafkaError):
        acknowledge(share, [AckBatch(0, 5, [ACCEPT])], TERMS)
    assert share.counts.acknowledged == {ACCEPT: 6, RELEASE: 1, REJECT: 1, RENEW: 1}
    assert share.counts.lock_timeouts == 0


def test_expired_locks_and_used_up_deliveries_are_counted_but_not_what_a_closed_session_gives_back() -> None:
    share = SharePartition(0)
    take(share, 4)
    share.release("a", LIMIT)
    assert (share.counts.lock_timeouts, share.counts.used_up) == (0, 0)
    take(share, 1)
    share.expire(30.0, LIMIT)
    assert (share.counts.lock_timeouts, share.counts.used_up) == (1, 1)
    take(share, 1)
    acknowledge(share, [AckBatch(1, 1, [RELEASE])], TERMS)
    assert share.counts.used_up == 2


def test_a_lock_that_expires_during_a_write_that_fails_is_counted() -> None:
    share = SharePartition(0)
    take(share, 2)
    transition = acknowledge(share, [AckBatch(0, 1, [ACCEPT])], TERMS)
    share.expire(31.0, LIMIT)
    assert share.counts.lock_timeouts == 0
    share.finish(transition, is_kept=False, now=31.0, delivery_limit=LIMIT)
    assert (share.counts.lock_timeouts, share.counts.used_up) == (2, 0)


def test_acquired_records_are_those_without_an_acknowledgement() -> None:
    share = SharePartition(0)
    take(share, 5)
    acknowledge(share, [AckBatch(0, 1, [ACCEPT])], TERMS)
    assert share.acquired_records == 3


def test_records_that_are_not_done_are_counted_up_to_the_readable_end() -> None:
    done = [StateBatch(12, 13, DeliveryState.ACKNOWLEDGED, 1), StateBatch(16, 19, DeliveryState.ARCHIVED, 1)]
    share = SharePartition(10, done)
    assert [share.undone_below(end) for end in (9, 10, 12, 13, 15, 18, 20, 25)] == [0, 0, 2, 2, 3, 4, 4, 9]
