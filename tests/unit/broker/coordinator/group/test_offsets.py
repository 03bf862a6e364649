"""Committed offsets: which requests may commit, when offsets expire, and how offsets of open transactions count."""

import pytest
from tests.support.groups import GroupDriver

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.offsets import CommittedOffsets
from oncelog_broker.coordinator.group.records import offset_record
from oncelog_broker.coordinator.runtime import CoordinatorRuntime
from oncelog_broker.log.config import LogConfig
from oncelog_protocol.coordinator_records.consumer_offsets import OffsetCommitValue
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest

DAY = 24 * 3600.0
RANGE_OF_T = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
"""The encoded subscription of a member to the topic t."""


@pytest.fixture
def driver():
    return GroupDriver()


def codes(answer):
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in answer.response.topics
        for partition in topic.partitions
    }


def committed(driver, topic="t", partition=0, group_id="g"):
    found = driver.machine.offsets.get(group_id, topic, partition)
    return None if found is None else found.offset


def expire(driver, group_id="g"):
    """Run the expiry of the group's offsets once. Returns the number of records that the expiry logged."""
    before = len(driver.log)
    driver.run(lambda answer: driver.machine.expire(group_id))
    return len(driver.log) - before


class TestCommit:
    def test_anybody_may_commit_to_a_group_without_members(self, driver):
        assert codes(driver.commit({("t", 0): 5, ("u", 1): 6})) == {("t", 0): 0, ("u", 1): 0}
        assert committed(driver) == 5
        assert committed(driver, "u", 1) == 6
        assert driver.machine.groups == {}  # the group has committed offsets but no members

    def test_only_members_may_commit_to_a_group_with_members(self, driver):
        (member,) = driver.stable()
        assert driver.commit({("t", 0): 5}).code is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.commit({("t", 0): 5}, member_id="x", generation=1).code is ErrorCode.UNKNOWN_MEMBER_ID
        assert (
            driver.commit({("t", 0): 5}, member_id=member.member_id, generation=0).code is ErrorCode.ILLEGAL_GENERATION
        )
        assert codes(driver.commit({("t", 0): 5}, member_id=member.member_id, generation=1)) == {("t", 0): 0}
        driver.leave(member.member_id)
        assert codes(driver.commit({("t", 0): 6})) == {("t", 0): 0}

    def test_a_commit_with_a_generation_of_a_missing_group_is_refused(self, driver):
        asked = {"member_id": "x", "generation": 3}
        assert driver.commit({("t", 0): 5}, version=8, **asked).code is ErrorCode.ILLEGAL_GENERATION
        assert driver.commit({("t", 0): 5}, version=9, **asked).code is ErrorCode.GROUP_ID_NOT_FOUND

    def test_members_may_commit_while_joining_and_not_while_the_assignment_is_pending(self, driver):
        leader, follower = driver.stable(2)
        joined = driver.join(leader.member_id)
        assert codes(driver.commit({("t", 0): 5}, member_id=follower.member_id, generation=2)) == {("t", 0): 0}
        driver.join(follower.member_id)
        answer = driver.commit({("t", 0): 6}, member_id=follower.member_id, generation=joined.response.generation_id)
        assert answer.code is ErrorCode.REBALANCE_IN_PROGRESS
        assert committed(driver) == 5

    def test_each_committed_partition_has_its_own_result(self, driver):
        assert codes(driver.commit({("t", 0): 5, ("gone", 0): 6})) == {
            ("t", 0): 0,
            ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert codes(driver.commit({("t", 0): 7}, metadata="x" * 4097)) == {
            ("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE
        }
        assert committed(driver) == 5
        driver.commit({("t", 0): 7}, metadata="ü" * 2048)
        assert driver.machine.offsets.get("g", "t", 0).metadata == "ü" * 2048

    def test_null_metadata_is_kept_as_empty_text(self, driver):
        driver.commit({("t", 0): 7}, metadata=None)
        assert driver.machine.offsets.get("g", "t", 0).metadata == ""

    def test_a_commit_that_cannot_be_logged_changes_nothing(self, driver):
        driver.fail_appends = True
        assert driver.commit({("t", 0): 5}).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(driver) is None


class TestExpiry:
    """Committed offsets expire by the rules of KIP-211, with a retention of 7 days."""

    def test_offsets_of_a_group_without_members_expire_counting_from_each_commit(self, driver):
        driver.commit({("t", 0): 1})
        driver.advance(DAY)
        driver.commit({("t", 1): 1})
        driver.advance(6 * DAY - 1)
        assert expire(driver) == 0
        driver.advance(1)
        assert expire(driver) == 1
        assert committed(driver) is None
        assert committed(driver, "t", 1) == 1
        driver.advance(DAY)
        expire(driver)
        assert list(driver.machine.known()) == []

    def test_offsets_expire_counting_from_the_departure_of_the_last_member(self, driver):
        (member,) = driver.stable()
        driver.commit({("t", 0): 1}, member_id=member.member_id, generation=1)
        driver.leave(member.member_id)
        driver.advance(7 * DAY - 1)
        assert expire(driver) == 0
        driver.advance(1)
        assert expire(driver) == 2  # two records: a tombstone of the offset, and one of the group
        assert driver.machine.groups == {}
        assert list(driver.replayed().known()) == []

    def test_a_returning_member_stops_the_expiry_of_offsets(self, driver):
        (member,) = driver.stable()
        driver.commit({("t", 0): 1}, member_id=member.member_id, generation=1)
        driver.leave(member.member_id)
        driver.advance(7 * DAY)
        _, joined = driver.join_new(session_ms=1_800_000)
        driver.sync(joined.response, {})
        assert expire(driver) == 0

    def test_offsets_of_topics_that_a_stable_group_no_longer_reads_expire(self, driver):
        _, joined = driver.join_new(protocols=[("range", RANGE_OF_T)])
        driver.sync(joined.response, {})
        member_id = joined.response.member_id
        driver.commit({("t", 0): 1, ("u", 0): 1}, member_id=member_id, generation=1)
        driver.timers.cancel(("session", "g", member_id))
        driver.advance(7 * DAY)
        assert expire(driver) == 1
        assert committed(driver, "t") == 1
        assert committed(driver, "u") is None

    def test_no_offset_expires_while_the_subscription_is_unknown(self, driver):
        (member,) = driver.stable()
        driver.commit({("t", 0): 1}, member_id=member.member_id, generation=1)
        driver.timers.cancel(("session", "g", member.member_id))
        driver.advance(70 * DAY)
        assert expire(driver) == 0

    def test_offsets_expire_by_the_retention_that_the_client_asked_for(self, driver):
        driver.commit({("t", 0): 1}, retention_ms=5_000)
        driver.advance(4.9)
        assert expire(driver) == 0
        driver.advance(0.2)
        assert expire(driver) == 1

    def test_an_empty_group_without_offsets_is_removed_at_once(self, driver):
        (member,) = driver.stable()
        driver.leave(member.member_id)
        assert expire(driver) == 1
        assert driver.machine.groups == {}

    def test_an_empty_group_stays_while_a_transaction_commits_offsets_of_it(self, driver):
        (member,) = driver.stable()
        driver.leave(member.member_id)
        value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=driver.now_ms)
        driver.machine.replay(offset_record("g", "t", 0, value), 100, 7)
        assert expire(driver) == 0
        driver.machine.replay_end_transaction(7, committed=False)
        assert expire(driver) == 1

    def test_many_offsets_expire_in_several_steps(self, driver):
        driver.commit({("t", partition): 1 for partition in range(700)})
        driver.advance(8 * DAY)
        assert [expire(driver) for _ in range(3)] == [500, 200, 0]


class TestDelete:
    def delete_group(self, driver, group_id="g"):
        def operation(answer):
            effects = driver.machine.delete(group_id)
            effects.reply(answer, OffsetDeleteRequest(group_id=group_id, topics=[]))
            return effects

        return driver.run(operation)

    def delete_offsets(self, driver, *wanted):
        topic_type = OffsetDeleteRequest.OffsetDeleteRequestTopic
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[
                topic_type(name=topic, partitions=[topic_type.OffsetDeleteRequestPartition(partition_index=partition)])
                for topic, partition in wanted
            ],
        )

        def exists(topic: str, partition: int) -> bool:
            return topic in ("t", "u") and partition < 2

        return driver.run(lambda answer: driver.machine.delete_offsets(request, exists, answer))

    def test_a_group_is_deleted_with_its_offsets(self, driver):
        (member,) = driver.stable()
        driver.commit({("t", 0): 1, ("t", 1): 1}, member_id=member.member_id, generation=1)
        assert self.delete_group(driver).code is ErrorCode.NON_EMPTY_GROUP
        driver.leave(member.member_id)
        assert self.delete_group(driver).error is None
        assert list(driver.machine.known()) == []
        assert list(driver.replayed().known()) == []
        assert self.delete_group(driver).code is ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_group_that_has_only_offsets_is_deleted(self, driver):
        driver.commit({("t", 0): 1})
        assert self.delete_group(driver).error is None
        assert list(driver.machine.known()) == []

    def test_single_offsets_are_deleted(self, driver):
        driver.commit({("t", 0): 1, ("u", 0): 1})
        answer = self.delete_offsets(driver, ("t", 0), ("t", 1), ("t", 9), ("gone", 0))
        assert codes(answer) == {
            ("t", 0): ErrorCode.NONE,
            ("t", 1): ErrorCode.NONE,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert committed(driver) is None
        assert committed(driver, "u") == 1

    def test_offsets_of_subscribed_topics_are_not_deleted(self, driver):
        _, joined = driver.join_new(protocols=[("range", RANGE_OF_T)])
        driver.sync(joined.response, {})
        driver.commit({("t", 0): 1, ("u", 0): 1}, member_id=joined.response.member_id, generation=1)
        answer = self.delete_offsets(driver, ("t", 0), ("u", 0))
        assert codes(answer) == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): ErrorCode.NONE}
        assert committed(driver) == 1

    def test_offsets_of_other_protocol_types_are_not_deleted(self, driver):
        _, joined = driver.join_new(protocol_type="connect")
        driver.sync(joined.response, {})
        assert self.delete_offsets(driver, ("t", 0)).code is ErrorCode.NON_EMPTY_GROUP

    def test_deleting_offsets_of_a_missing_group_is_refused(self, driver):
        assert self.delete_offsets(driver, ("t", 0)).code is ErrorCode.GROUP_ID_NOT_FOUND


def forget(driver, group_id, before):
    return driver.machine.forget_topics(group_id, frozenset({"t"}), before)


class TestDeletedTopics:
    def test_offsets_of_a_deleted_topic_are_removed_and_those_of_its_successor_kept(self, driver):
        driver.commit({("t", 0): 1, ("t", 1): 1, ("u", 0): 1})
        driver.commit({("t", 0): 2}, group_id="h")
        deleted_at = len(driver.log)
        driver.commit({("t", 1): 9})
        for group_id in driver.machine.ids():
            driver.run(lambda answer, group_id=group_id: forget(driver, group_id, deleted_at))
        assert committed(driver) is None
        assert committed(driver, "t", 1) == 9
        assert committed(driver, "u") == 1
        assert committed(driver, group_id="h") is None
        assert [forget(driver, group_id, deleted_at).records for group_id in ("g", "h")] == [[], []]

    def test_many_offsets_of_one_group_are_removed_in_several_steps(self, driver):
        """A single batch with the tombstones of all offsets could be larger than a segment, and then no offset would be
        removed.
        """
        driver.commit({("t", partition): 1 for partition in range(700)})
        deleted_at, logged = len(driver.log), []
        for _ in range(3):
            driver.run(lambda answer: forget(driver, "g", deleted_at))
            logged.append(len(driver.log) - deleted_at)
        assert logged == [500, 700, 700]


class TestTransactions:
    """Tests how a replay of the log restores offsets that were committed in a transaction (S37)."""

    def replay(self, offsets: CommittedOffsets, offset: int, record_offset: int, producer_id: int = -1):
        value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0)
        offsets.replay(offset_record("g", "t", 0, value).key, value, record_offset, producer_id)

    def test_transactional_offsets_are_pending_until_the_marker(self):
        offsets = CommittedOffsets()
        self.replay(offsets, 5, 10, producer_id=7)
        assert offsets.get("g", "t", 0) is None
        assert offsets.is_pending("g", "t", 0)
        assert not offsets.is_pending("g", "t", 1)
        offsets.replay_end_transaction(7, committed=True)
        assert offsets.get("g", "t", 0).offset == 5
        assert not offsets.is_pending("g", "t", 0)

    def test_transactional_offsets_are_dropped_by_an_abort(self):
        offsets = CommittedOffsets()
        self.replay(offsets, 4, 9)
        self.replay(offsets, 5, 10, producer_id=7)
        self.replay(offsets, 6, 11, producer_id=7)
        self.replay(offsets, 7, 12, producer_id=8)
        offsets.replay_end_transaction(7, committed=False)
        assert offsets.get("g", "t", 0).offset == 4
        assert offsets.is_pending("g", "t", 0)
        offsets.replay_end_transaction(8, committed=False)
        assert not offsets.is_pending("g", "t", 0)
        offsets.replay_end_transaction(9, committed=True)
        assert offsets.get("g", "t", 0).offset == 4

    def test_transactional_offsets_do_not_replace_later_commits(self):
        offsets = CommittedOffsets()
        self.replay(offsets, 5, 10, producer_id=7)
        self.replay(offsets, 9, 11)
        offsets.replay_end_transaction(7, committed=True)
        assert offsets.get("g", "t", 0).offset == 9

    def test_pending_transactional_offsets_keep_an_offset_from_expiring(self):
        offsets = CommittedOffsets()
        self.replay(offsets, 4, 9)
        self.replay(offsets, 5, 10, producer_id=7)
        assert offsets.expired("g", now_ms=10, retention_ms=5, empty_since_ms=None) == []
        offsets.replay_end_transaction(7, committed=False)
        assert offsets.expired("g", now_ms=10, retention_ms=5, empty_since_ms=None) == [("t", 0)]


def test_tombstones_leave_nothing_behind():
    offsets = CommittedOffsets()
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=0)
    record = offset_record("g", "t", 0, value)
    offsets.replay(record.key, value, 0, -1)
    offsets.replay(record.key, None, 1, -1)
    offsets.replay(record.key, None, 2, -1)
    assert offsets._groups == {}


def test_the_config_is_kafkas():
    assert GroupConfig().offsets_retention_ms == 7 * DAY * 1000


@pytest.mark.parametrize("operation", ["expire", "forget_topics"])
async def test_tombstones_of_long_ids_are_logged_in_as_many_batches_as_it_takes(internal_topic, operation):
    """A single batch with all tombstones would be refused repeatedly, and no offset would ever expire."""
    internal_topic.config = LogConfig(cleanup_policy=frozenset({"compact"}), max_message_bytes=50_000)
    runtime = CoordinatorRuntime(
        "__consumer_offsets",
        lambda index: GroupMachine(GroupConfig(), internal_topic.clock.now_ms, str),
        internal_topic,
        internal_topic.host,
    )
    runtime.on_image(internal_topic.lead())
    group_id = "g" * 20_000
    shard = runtime.shard(group_id)
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=internal_topic.clock.now_ms())
    for partition in range(8):
        effects = Effects()
        effects.append(offset_record(group_id, "t", partition, value))
        runtime.step(shard, lambda machine, effects=effects: effects)
    internal_topic.advance(8 * DAY)
    if operation == "expire":
        assert runtime.step(shard, lambda machine: machine.expire(group_id)) == 8
    else:
        assert runtime.step(shard, lambda machine: machine.forget_topics(group_id, frozenset({"t"}), 8)) == 8
    assert not shard.machine.offsets.groups()
