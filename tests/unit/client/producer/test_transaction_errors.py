"""The table of error codes, tested code by code, and whether the transactional id may have had another owner (S90)."""

from __future__ import annotations

import pytest
from tests.support.fake_transactions import FakeCoordinator
from tests.support.transactional_producers import GROUP, OFFSETS, commit_one, started

from oncelog.errors import FatalError, KafkaError
from oncelog.producer.producer import Producer
from oncelog.producer.transaction_errors import (
    MAX_EPOCHS_BY_ONE_REQUEST,
    RULES,
    End,
    Meaning,
    is_forgotten,
    meaning_of,
    rule_of,
)
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.producer_id import MAX_EPOCH, ProducerIdAndEpoch

# Error code -> its meaning, for the codes that are neither in FATAL nor in AGAIN.
SPECIAL = {
    ErrorCode.NONE: Meaning.DONE,
    ErrorCode.CONCURRENT_TRANSACTIONS: Meaning.CONCURRENT,
    ErrorCode.NOT_COORDINATOR: Meaning.MOVED,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Meaning.MOVED,
    ErrorCode.PRODUCER_FENCED: Meaning.FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: Meaning.FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Meaning.FATAL,
    ErrorCode.UNKNOWN_PRODUCER_ID: Meaning.ABORTABLE,
    ErrorCode.TRANSACTION_ABORTABLE: Meaning.ABORTABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Meaning.ABORTABLE,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Meaning.ABORTABLE,
    ErrorCode.ILLEGAL_GENERATION: Meaning.ABORTABLE,
    ErrorCode.UNKNOWN_MEMBER_ID: Meaning.ABORTABLE,
    ErrorCode.REBALANCE_IN_PROGRESS: Meaning.ABORTABLE,
    ErrorCode.FENCED_INSTANCE_ID: Meaning.ABORTABLE,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: Meaning.ABORTABLE,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Meaning.ABORTABLE,
}
AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}
FATAL = {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}


@pytest.mark.parametrize("code", list(ErrorCode))
def test_s44_each_error_code_has_its_meaning(code: ErrorCode) -> None:
    expected = SPECIAL.get(code, Meaning.AGAIN if code.retriable else Meaning.FATAL)
    assert meaning_of(code) is expected
    assert (code in AGAIN) <= (expected is Meaning.AGAIN)
    assert (code in FATAL) <= (expected is Meaning.FATAL)


# WRITES: the meaning of each Produce error that is not abortable. ENDS: what ends the transaction if EndTxn does not.
# REPEATED: the non-retriable codes after which another transaction may succeed.
WRITES = {
    ErrorCode.NONE: Meaning.DONE,
    ErrorCode.PRODUCER_FENCED: Meaning.FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Meaning.FATAL,
}
ENDS = {
    ErrorCode.PRODUCER_FENCED: End.NONE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: End.NONE,
    ErrorCode.INVALID_PRODUCER_EPOCH: End.NEXT_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID: End.NEXT_EPOCH,
}
REPEATED = {
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


@pytest.mark.parametrize("code", list(ErrorCode))
def test_s90_every_code_is_held_against_the_question(code: ErrorCode) -> None:
    rule = rule_of(code)
    assert rule.why
    assert rule.write is WRITES.get(code, Meaning.ABORTABLE)
    assert rule.end is ENDS.get(code, End.END_TXN)
    assert rule.is_repeated is (code.retriable or code in REPEATED)
    # If a producer can no longer end any transaction, `transaction` must not repeat the block, and no error counts as
    # abortable.
    if rule.end is End.NONE:
        assert {rule.answer, rule.write} <= {Meaning.FENCED, Meaning.FATAL}
        assert not rule.is_repeated


def test_s90_codes_of_the_table_are_no_defaults() -> None:
    assert all(code in SPECIAL or code in FATAL | REPEATED for code in RULES)


@pytest.mark.parametrize(
    ("had", "given", "forgotten"),
    [
        (ProducerIdAndEpoch(7, 3), ProducerIdAndEpoch(7, 4), False),
        (ProducerIdAndEpoch(7, 3), ProducerIdAndEpoch(7, 6), False),
        (ProducerIdAndEpoch(7, 3), ProducerIdAndEpoch(8, 0), True),
        (ProducerIdAndEpoch(7, MAX_EPOCH), ProducerIdAndEpoch(8, 0), False),
        (ProducerIdAndEpoch(7, MAX_EPOCH - MAX_EPOCHS_BY_ONE_REQUEST), ProducerIdAndEpoch(8, 0), False),
        (ProducerIdAndEpoch(7, MAX_EPOCH - MAX_EPOCHS_BY_ONE_REQUEST - 1), ProducerIdAndEpoch(8, 0), True),
    ],
)
def test_s90_a_new_producer_id_shows_that_the_old_one_was_forgotten(
    had: ProducerIdAndEpoch, given: ProducerIdAndEpoch, forgotten: bool
) -> None:
    """If the epoch is exhausted, the coordinator gives a new producer id to the same owner (S35)."""
    assert is_forgotten(had, given) is forgotten


async def tries(producer: Producer, kind: str) -> None:
    if kind == "a record":
        await commit_one(producer, b"zombie")
        return
    async with producer.transaction():
        await producer.send_offsets(OFFSETS, GROUP)


@pytest.mark.parametrize("leader", ["knows the epoch", "has forgotten it", "has forgotten the producer"])
@pytest.mark.parametrize("kind", ["a record", "offsets"])
async def test_s90_a_producer_that_was_fenced_never_commits_again(
    coordinator: FakeCoordinator, kind: str, leader: str
) -> None:
    """Another producer took the transactional id over, and the coordinator has since forgotten both producers.

    The producer first gets the partition leader's error. Afterwards the coordinator, like Apache Kafka's, would give
    the transactional id to the old producer again.
    """
    async with started(coordinator) as zombie:
        await commit_one(zombie, b"before")
        async with started(coordinator) as owner:
            await commit_one(owner, b"owner")
            coordinator.forget()
            if leader != "knows the epoch":
                coordinator.logs.clear()
            if leader == "has forgotten the producer":
                coordinator.script[ProduceRequest] = [ErrorCode.UNKNOWN_PRODUCER_ID]
            for _ in range(3):
                with pytest.raises(KafkaError) as caught:
                    await tries(zombie, kind)
            assert isinstance(caught.value, FatalError)
            assert caught.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert caught.value.message.count("start a new producer") == 1
            assert coordinator.committed == {("topic", 0): [b"before", b"owner"]}
            assert not coordinator.offsets
            with pytest.raises(KafkaError):  # the producer cannot know whether it is still the owner
                await commit_one(owner, b"again")
            with pytest.raises(FatalError):
                await commit_one(owner, b"again")
    async with started(coordinator) as new:
        await commit_one(new, b"new")
    assert coordinator.committed["topic", 0] == [b"before", b"owner", b"new"]
