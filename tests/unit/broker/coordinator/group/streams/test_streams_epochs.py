"""The member epochs with which members of streams groups may commit and fetch offsets."""

from __future__ import annotations

import pytest
from tests.support.streams_groups import Client1071, StreamsDriver

from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

STALE = ErrorCode.STALE_MEMBER_EPOCH


@pytest.fixture
def driver() -> StreamsDriver:
    return StreamsDriver()


@pytest.fixture
def pair(driver: StreamsDriver) -> tuple[Client1071, Client1071]:
    """Return two members: the first had all four tasks in epoch 2, and each has two tasks in epoch 3."""
    first = driver.streams_joined()
    second = driver.streams_client()
    second.join()
    driver.settle_streams(first, second)
    assert (first.epoch, second.epoch) == (3, 3)
    return first, second


def number_of(client: Client1071) -> int:
    """The input partition of one of the member's tasks."""
    return min(number for _, number in client.active)


def commit(
    driver: StreamsDriver, member: str, epoch: int, partition: int, *, topic: str = "t", version: int = 9
) -> ErrorCode:
    answer = driver.commit({(topic, partition): 5}, member_id=member, generation=epoch, version=version)
    return answer.code if answer.error is not None else ErrorCode(answer.response.topics[0].partitions[0].error_code)


def commit_in_transaction(driver: StreamsDriver, member: str, epoch: int, partition: int) -> ErrorCode:
    topic_type = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        generation_id=epoch,
        member_id=member,
        topics=[
            topic_type(
                name="t",
                partitions=[
                    topic_type.TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=5, committed_metadata=""
                    )
                ],
            )
        ],
    )
    try:
        driver.machine.commit_in_transaction(request, lambda name, index: True, object())
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def fetch(driver: StreamsDriver, member: str | None, epoch: int) -> ErrorCode:
    try:
        driver.machine.check_fetch("g", member, epoch)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_s46_commits_name_the_epoch_of_the_member(driver: StreamsDriver, pair: tuple[Client1071, Client1071]) -> None:
    first, _ = pair
    assert commit(driver, "m1", 3, 3) is ErrorCode.NONE, "of any partition"
    assert commit(driver, "m1", 2, number_of(first)) is ErrorCode.NONE, "an older epoch, in which it had the task"
    assert commit(driver, "m1", 1, number_of(first)) is STALE
    assert commit(driver, "m1", 4, number_of(first)) is STALE
    assert commit(driver, "m9", 3, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, "", -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID, "the group has members"
    assert commit(driver, "m1", 3, 0, version=8) is ErrorCode.UNSUPPORTED_VERSION


def test_s46_a_task_that_went_to_another_member_is_no_longer_committed(
    driver: StreamsDriver, pair: tuple[Client1071, Client1071]
) -> None:
    _, second = pair
    assert commit(driver, "m1", 2, number_of(second)) is STALE
    assert commit(driver, "m2", 2, number_of(second)) is STALE, "it got the task in epoch 3"
    assert commit(driver, "m1", 2, 0, topic="u") is STALE, "no task reads it"


def test_tasks_that_are_to_be_given_up_are_committed(
    driver: StreamsDriver, pair: tuple[Client1071, Client1071]
) -> None:
    first, _ = pair
    had = first.active
    for _ in range(2):
        driver.streams_client().join()
    driver.advance(1.0)
    driver.streams_heartbeat(member_id="m3", member_epoch=3)
    first.idle()
    ((_, pending),) = had - first.active
    assert first.epoch == 3
    assert commit(driver, "m1", 2, pending) is ErrorCode.NONE


def test_commits_of_an_empty_group(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    client.leave()
    assert commit(driver, "", -1, 0) is ErrorCode.NONE
    assert commit(driver, "m1", 2, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_s46_commits_in_transactions_name_epochs_too(
    driver: StreamsDriver, pair: tuple[Client1071, Client1071]
) -> None:
    first, second = pair
    assert commit_in_transaction(driver, "m1", 3, 3) is ErrorCode.NONE
    assert commit_in_transaction(driver, "m1", 2, number_of(first)) is ErrorCode.NONE
    assert commit_in_transaction(driver, "m1", 2, number_of(second)) is ErrorCode.ILLEGAL_GENERATION
    assert commit_in_transaction(driver, "m1", 4, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit_in_transaction(driver, "m9", 3, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_in_transaction(driver, "", -1, 0) is ErrorCode.NONE


def test_offsets_are_fetched_in_the_epoch_of_the_member(
    driver: StreamsDriver, pair: tuple[Client1071, Client1071]
) -> None:
    assert fetch(driver, "m1", 3) is ErrorCode.NONE
    assert fetch(driver, None, -1) is ErrorCode.NONE
    assert fetch(driver, "m1", 2) is STALE
    assert fetch(driver, "m9", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_tasks_read_stay(driver: StreamsDriver) -> None:
    client = driver.streams_joined()
    commit(driver, "m1", client.epoch, 0)
    for _ in range(8 * 24):
        driver.seconds += 3_600
    driver._carry_out(driver.machine.expire("g"))
    assert driver.machine.offsets.has("g")
    client.leave()
    driver._carry_out(driver.machine.expire("g"))
    assert not driver.machine.offsets.has("g"), "an empty group reads nothing (KAFKA-19372)"
    assert "g" not in driver.machine.groups
