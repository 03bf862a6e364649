"""Offsets of a consumer group: which members may commit and fetch offsets, and with which epoch (KIP-1251)."""

from __future__ import annotations

import pytest
from tests.support.consumer_groups import Client848, ConsumerDriver
from tests.support.groups import Answer

from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver()


@pytest.fixture
def pair(driver: ConsumerDriver) -> tuple[Client848, Client848]:
    """Return two members: the first one has t-0 and t-1 since epoch 2, the second one got t-2 and t-3 in epoch 3."""
    first = driver.joined()
    driver.advance(2)
    second = driver.joined()
    driver.settle(first, second)
    assert (first.epoch, second.epoch) == (3, 3)
    return first, second


def code(answer: Answer) -> ErrorCode:
    """Return the error code of the entire response, or that of its partitions."""
    if answer.error is not None:
        return answer.error
    (found,) = {p.error_code for topic in answer.response.topics for p in topic.partitions}
    return ErrorCode(found)


def commit(driver: ConsumerDriver, member: str, epoch: int, *partitions: int, version: int = 9) -> ErrorCode:
    offsets = {("t", partition): 1 for partition in partitions}
    return code(driver.commit(offsets, member_id=member, generation=epoch, version=version))


def commit_in_transaction(driver: ConsumerDriver, member: str, epoch: int, partition: int) -> ErrorCode:
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        generation_id=epoch,
        member_id=member,
        topics=[
            topic(
                name="t",
                partitions=[
                    topic.TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=1, committed_metadata=None
                    )
                ],
            )
        ],
    )
    try:
        effects = driver.machine.commit_in_transaction(request, lambda name, index: True, object())
    except KafkaError as error:
        return error.code
    ((_, response),) = effects.replies
    return ErrorCode(response.topics[0].partitions[0].error_code)


def test_a_member_commits_any_partition_in_its_current_epoch(
    driver: ConsumerDriver, pair: tuple[Client848, Client848]
) -> None:
    assert commit(driver, "m1", 3, 0, 3) is ErrorCode.NONE


def test_c16_a_member_commits_in_an_older_epoch_what_it_owned_then(
    driver: ConsumerDriver, pair: tuple[Client848, Client848]
) -> None:
    assert commit(driver, "m1", 2, 0, 1) is ErrorCode.NONE
    assert commit(driver, "m1", 1, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(driver, "m2", 2, 2) is ErrorCode.STALE_MEMBER_EPOCH, "it was another member's then"
    assert commit(driver, "m1", 2, 0, 2) is ErrorCode.STALE_MEMBER_EPOCH, "one of them refuses the whole"
    assert driver.machine.offsets.get("g", "t", 2) is None


def test_c16_a_member_may_still_commit_partitions_that_it_must_revoke(driver: ConsumerDriver) -> None:
    first = driver.joined()
    driver.advance(2)
    driver.joined()
    first.beat()
    assert commit(driver, "m1", 2, 2, 3) is ErrorCode.NONE
    first.beat()
    assert commit(driver, "m1", 2, 2) is ErrorCode.STALE_MEMBER_EPOCH


def test_an_epoch_to_come_is_stale(driver: ConsumerDriver, pair: tuple[Client848, Client848]) -> None:
    assert commit(driver, "m1", 4, 0) is ErrorCode.STALE_MEMBER_EPOCH


def test_anybody_commits_while_the_group_has_no_members(driver: ConsumerDriver) -> None:
    first = driver.joined()
    assert commit(driver, "", -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, "m9", 2, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    first.leave()
    assert commit(driver, "", -1, 0) is ErrorCode.NONE


def test_members_need_a_version_that_knows_epochs(driver: ConsumerDriver) -> None:
    driver.joined()
    assert commit(driver, "m1", 2, 0, version=8) is ErrorCode.UNSUPPORTED_VERSION


def test_a_group_that_does_not_exist_is_told_from_version_9_on(driver: ConsumerDriver) -> None:
    assert commit(driver, "m1", 2, 0, version=9) is ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(driver, "m1", 2, 0, version=8) is ErrorCode.ILLEGAL_GENERATION


def test_a_commit_does_not_keep_a_member_alive(driver: ConsumerDriver) -> None:
    driver.joined()
    driver.advance(44)
    assert commit(driver, "m1", 2, 0) is ErrorCode.NONE
    driver.advance(1)
    assert driver.consumers.members == {}


def test_s46_commits_in_transactions_name_epochs_too(driver: ConsumerDriver, pair: tuple[Client848, Client848]) -> None:
    assert commit_in_transaction(driver, "m1", 3, 3) is ErrorCode.NONE
    assert commit_in_transaction(driver, "m1", 2, 0) is ErrorCode.NONE
    assert commit_in_transaction(driver, "m2", 2, 2) is ErrorCode.ILLEGAL_GENERATION
    assert commit_in_transaction(driver, "m1", 4, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit_in_transaction(driver, "m9", 3, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_in_transaction(driver, "", -1, 0) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("member", "epoch", "expected"),
    [
        ("m1", 3, None),
        (None, -1, None),
        ("m1", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", 4, ErrorCode.STALE_MEMBER_EPOCH),
        ("m9", 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_c15_offsets_are_fetched_in_the_epoch_of_the_member(
    driver: ConsumerDriver,
    pair: tuple[Client848, Client848],
    member: str | None,
    epoch: int,
    expected: ErrorCode | None,
) -> None:
    if expected is None:
        driver.machine.check_fetch("g", member, epoch)
        return
    with pytest.raises(KafkaError) as raised:
        driver.machine.check_fetch("g", member, epoch)
    assert raised.value.code is expected


def test_groups_that_are_not_consumer_groups_do_not_look_at_epochs(driver: ConsumerDriver) -> None:
    driver.machine.check_fetch("nobody", "m9", 4)


def test_offsets_of_topics_that_are_read_do_not_expire(driver: ConsumerDriver) -> None:
    first = driver.joined()
    assert commit(driver, "m1", 2, 0) is ErrorCode.NONE
    driver.commit({("u", 0): 5}, member_id="m1", generation=2)
    driver.seconds += 8 * 24 * 3600
    first.join()
    driver._carry_out(driver.machine.expire("g"))
    assert driver.machine.offsets.get("g", "t", 0) is not None
    assert driver.machine.offsets.get("g", "u", 0) is None
    first.leave()
    driver._carry_out(driver.machine.expire("g"))
    assert driver.machine.groups == {}, "nothing is left of the group"
    assert driver.replayed().groups == {}


def test_a_group_with_members_is_not_deleted(driver: ConsumerDriver) -> None:
    first = driver.joined()
    commit(driver, "m1", 2, 0)
    with pytest.raises(KafkaError) as raised:
        driver.machine.delete("g")
    assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
    first.leave()
    driver._carry_out(driver.machine.delete("g"))
    assert driver.machine.groups == {}
    assert driver.replayed().ids() == []
