"""Which acknowledgements a member of a share group may send for its records, and which are refused."""

from __future__ import annotations

import pytest

from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_broker.sharing.acknowledgement import (
    MAX_BATCHES,
    MAX_TYPES,
    AckBatch,
    AckTerms,
    acknowledge,
    check_batches,
    check_count,
)
from oncelog_broker.sharing.acquisition import LogBatch, Terms, acquire
from oncelog_broker.sharing.share_partition import SharePartition
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_fetch import AcknowledgeType

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
TERMS = AckTerms("a", deadline=60.0, delivery_limit=5, renews=False, may_renew=True)


def acquired(count: int = 10, owner: str = "a") -> SharePartition:
    share = SharePartition(0)
    give(share, count, owner)
    return share


def give(share: SharePartition, count: int, owner: str) -> None:
    terms = Terms(owner, 30.0, count, 100, is_exact=True, delivery_limit=5, max_locks=2_000)
    offset = share.next_offset(2_000)
    assert offset is not None
    acquire(share, offset, [LogBatch(0, 999)], terms)


def shown(share: SharePartition) -> list[tuple[int, int, str]]:
    return [(run.first, run.last, run.state.name) for run in share.runs.runs]


def code(share: SharePartition, *batches: AckBatch, terms: AckTerms = TERMS) -> ErrorCode:
    before = repr(share.runs.runs)
    with pytest.raises(KafkaError) as raised:
        acknowledge(share, batches, terms)
    assert repr(share.runs.runs) == before, "nothing of a refused request counts"
    assert share.outbox == []
    return raised.value.code


def test_records_keep_their_state_until_the_change_is_kept() -> None:
    share = acquired()
    transition = acknowledge(share, [AckBatch(0, 4, [ACCEPT]), AckBatch(5, 9, [REJECT])], TERMS)
    assert shown(share) == [(0, 4, "ACQUIRED"), (5, 9, "ACQUIRED")]
    assert share.next_offset(2_000) == 10
    assert (share.kept_start_offset, share.start_offset) == (10, 0)
    share.finish(transition, is_kept=True, now=1.0, delivery_limit=5)
    assert (share.start_offset, shown(share)) == (10, [])


def test_each_offset_may_have_a_type_of_its_own() -> None:
    share = acquired(4)
    transition = acknowledge(share, [AckBatch(0, 3, [RELEASE, ACCEPT, GAP, RELEASE])], TERMS)
    assert share.take_outbox() == [
        StateBatch(0, 0, AVAILABLE, 1),
        StateBatch(1, 1, ACKNOWLEDGED, 1),
        StateBatch(2, 2, ARCHIVED, 1),
        StateBatch(3, 3, AVAILABLE, 1),
    ]
    share.finish(transition, is_kept=True, now=1.0, delivery_limit=5)
    assert [state for _, _, state in shown(share)] == ["AVAILABLE", "ACKNOWLEDGED", "ARCHIVED", "AVAILABLE"]
    assert share.next_offset(2_000) == 0


def test_a_release_after_the_last_delivery_archives() -> None:
    share = SharePartition(0, [StateBatch(0, 0, AVAILABLE, 4)])
    give(share, 1, "a")
    transition = acknowledge(share, [AckBatch(0, 0, [RELEASE])], TERMS)
    share.finish(transition, is_kept=True, now=1.0, delivery_limit=5)
    assert share.start_offset == 1


def test_a_change_that_is_not_kept_leaves_the_records_with_the_member_or_gives_them_back_if_the_lock_is_over() -> None:
    share = acquired()
    transition = acknowledge(share, [AckBatch(0, 9, [ACCEPT])], TERMS)
    share.finish(transition, is_kept=False, now=29.0, delivery_limit=5)
    assert shown(share) == [(0, 9, "ACQUIRED")]
    transition = acknowledge(share, [AckBatch(0, 9, [ACCEPT])], TERMS)
    assert not share.expire(31.0, 5), "what is being kept does not expire"
    share.finish(transition, is_kept=False, now=31.0, delivery_limit=5)
    assert shown(share) == [(0, 9, "AVAILABLE")]


def test_q1_records_of_another_member_are_not_acknowledged() -> None:
    share = acquired()
    share.expire(31.0, 5)
    give(share, 10, "b")
    share.outbox.clear()
    assert code(share, AckBatch(0, 9, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    assert {run.owner for run in share.runs.runs} == {"b"}


def test_one_offset_that_is_not_acquired_refuses_the_whole() -> None:
    share = acquired(5)
    share.release("a", 5)
    give(share, 3, "a")
    share.outbox.clear()
    assert code(share, AckBatch(0, 2, [ACCEPT]), AckBatch(3, 4, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


def test_offsets_that_were_never_handed_out_are_an_invalid_request() -> None:
    assert code(acquired(), AckBatch(5, 10, [ACCEPT])) is ErrorCode.INVALID_REQUEST


def test_offsets_below_the_start_are_accepted_and_nothing_happens() -> None:
    share = acquired()
    share.move_log_start(6)
    assert acknowledge(share, [AckBatch(0, 5, [ACCEPT])], TERMS) == 0
    transition = acknowledge(share, [AckBatch(0, 9, [ACCEPT])], TERMS)
    share.finish(transition, is_kept=True, now=1.0, delivery_limit=5)
    assert share.start_offset == 10


def test_an_acknowledgement_cannot_follow_another_one() -> None:
    share = acquired()
    acknowledge(share, [AckBatch(0, 4, [ACCEPT])], TERMS)
    share.outbox.clear()
    assert code(share, AckBatch(4, 5, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


def test_a_lock_is_renewed_without_anything_to_be_kept() -> None:
    share = acquired()
    renewing = TERMS._replace(renews=True)
    assert acknowledge(share, [AckBatch(2, 3, [RENEW])], renewing) == 0
    assert share.outbox == []
    share.expire(31.0, 5)
    assert shown(share) == [(0, 1, "AVAILABLE"), (2, 3, "ACQUIRED"), (4, 9, "AVAILABLE")]
    assert share.next_deadline == 60.0


def test_a_group_may_forbid_to_renew() -> None:
    terms = TERMS._replace(renews=True, may_renew=False)
    assert code(acquired(), AckBatch(0, 9, [RENEW]), terms=terms) is ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize(
    "batches",
    [
        [AckBatch(3, 2, [ACCEPT])],
        [AckBatch(0, 4, [ACCEPT]), AckBatch(4, 5, [ACCEPT])],
        [AckBatch(5, 6, [ACCEPT]), AckBatch(0, 1, [ACCEPT])],
        [AckBatch(0, 4, [])],
        [AckBatch(0, 4, [ACCEPT, ACCEPT])],
        [AckBatch(0, 0, [5])],
        [AckBatch(0, 0, [-1])],
        [AckBatch(0, 0, [RENEW])],
        [AckBatch(-1, 0, [ACCEPT])],
    ],
)
def test_batches_that_cannot_be(batches: list[AckBatch]) -> None:
    with pytest.raises(KafkaError) as raised:
        check_batches(batches, renews=False)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_a_request_has_only_so_many_types_and_ranges_for_one_partition() -> None:
    """Other requests would wait while a larger number of types and ranges is processed."""
    last = MAX_TYPES
    share = acquired(1)
    with pytest.raises(KafkaError, match="several requests"):
        acknowledge(share, [AckBatch(0, last, bytes(last + 1))], TERMS)
    in_turn = AckBatch(0, MAX_BATCHES, [ACCEPT, REJECT] * (MAX_BATCHES // 2) + [ACCEPT])
    with pytest.raises(KafkaError, match="several requests"):
        acknowledge(share, [in_turn], TERMS)
    with pytest.raises(KafkaError, match="several requests"):
        check_count(range(MAX_BATCHES + 1))
    check_count(range(MAX_BATCHES))


def test_a_huge_range_costs_no_time() -> None:
    share = acquired()
    assert code(share, AckBatch(0, 2**62, [ACCEPT])) is ErrorCode.INVALID_REQUEST
    assert code(share, AckBatch(0, 9, [ACCEPT]), AckBatch(10, 2**63 - 1, [GAP])) is ErrorCode.INVALID_REQUEST


def test_types_of_offsets_below_the_start_do_not_count() -> None:
    share = SharePartition(5)
    give(share, 5, "a")
    acknowledge(share, [AckBatch(3, 8, [REJECT, REJECT, REJECT, REJECT, ACCEPT, ACCEPT])], TERMS)
    assert share.take_outbox() == []
    assert share.kept_start_offset == 9
