"""A group of the consumer protocol keeps its invariants under any sequence of heartbeats, lost responses, dead members,
restarts, failed writes and topic changes.

Clients may take a while to revoke partitions, and read these partitions until the revocation. Clients believe every
response, and rejoin when
they are fenced. A fenced client may keep reading until it learns that it is fenced, but its commits are refused because
their epoch is old.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.consumer_groups import REBALANCE_TIMEOUT_MS, Client848, ConsumerDriver, Partitions, label_of, topic
from tests.support.examples import examples
from tests.support.groups import Answer, state_of

from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupState
from oncelog_protocol.errors import ErrorCode

CLIENTS = st.integers(0, 4)
TOPICS = st.sampled_from([("t",), ("t", "u"), ("u",), ("u", "v"), ()])


class SlowClient(Client848):
    """A client that keeps reading its revoked partitions until a step makes it release them. After an error response
    the client sends all fields of the heartbeat.
    """

    reads: Partitions = frozenset()
    has_failed = False

    def join(self) -> Answer:
        self.reads = frozenset()
        return super().join()

    def beat(self, **said: Any) -> Answer:
        """Send a heartbeat; if the client believes that it is not a member, the heartbeat asks to join."""
        if self.epoch <= 0:
            return self.join()
        if self.has_failed:
            said |= {
                "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
                "subscribed_topic_names": list(self.topics or ()),
            }
        return self.send(topic_partitions=self.driver.named_partitions(self.reads), **said)

    def idle(self) -> Answer:
        return self.beat() if self.epoch <= 0 else super().idle()

    def believe(self, answer: Answer) -> Answer:
        super().believe(answer)
        self.has_failed = answer.code is not ErrorCode.NONE
        fenced = answer.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
        self.reads = frozenset() if fenced or answer.code in FATAL else self.reads | self.owns
        return answer

    def let_go(self) -> None:
        self.reads = self.owns


FATAL = {
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = ConsumerDriver(GroupConfig(consumer_max_size=4), [topic("t", 5), topic("u", 2), topic("v", 1)])
        self.incarnations = {"t": 0, "u": 0, "v": 0}
        self.clients = [
            SlowClient(self.driver, f"c{number}", instance_id=f"i{number}" if number >= 3 else None)
            for number in range(5)
        ]
        self.lives = 0
        self.epochs: list[int] = []
        self.owners: dict[tuple[bytes, int, int], str] = {}
        """(Topic id, partition, epoch) -> the member that owned the partition in that epoch, by instance id or member
        id.
        """

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.driver.machine.groups.get("g")
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    # --- steps of clients

    @rule(number=CLIENTS, topics=TOPICS)
    def join(self, number: int, topics: tuple[str, ...]) -> None:
        client = self.clients[number]
        client.topics = topics
        client.join()

    @rule(number=CLIENTS)
    def restart_client(self, number: int) -> None:
        """Start a new client process that does not know the state of its predecessor."""
        self.lives += 1
        client = self.clients[number]
        client.member_id, client.reads, client.owns = f"c{number}.{self.lives}", frozenset(), frozenset()
        client.join()

    @rule(number=CLIENTS)
    def beat(self, number: int) -> None:
        self.clients[number].beat()

    @rule(number=CLIENTS)
    def idle(self, number: int) -> None:
        self.clients[number].idle()

    @rule(number=CLIENTS)
    def lose_an_answer(self, number: int) -> None:
        """Deliver a heartbeat to the group and lose the response."""
        client = self.clients[number]
        if client.epoch <= 0:
            return
        client.has_failed = True
        self.driver.consumer_heartbeat(
            member_id=client.member_id,
            member_epoch=client.epoch,
            topic_partitions=self.driver.named_partitions(client.reads),
        )

    @rule(number=CLIENTS)
    def let_go(self, number: int) -> None:
        self.clients[number].let_go()

    @rule(number=CLIENTS, topics=TOPICS)
    def subscribe(self, number: int, topics: tuple[str, ...]) -> None:
        self.clients[number].subscribe(*topics)

    @rule(number=CLIENTS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        client.reads = frozenset()
        client.leave()

    @rule(number=st.integers(3, 4))
    def leave_for_a_while(self, number: int) -> None:
        client = self.clients[number]
        client.reads = frozenset()
        client.leave(-2)

    # --- steps of the broker

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 29.0, 50.0]))
    def time_passes(self, seconds: float) -> None:
        self.driver.advance(seconds)

    @rule(name=st.sampled_from(["t", "u", "v"]), partitions=st.integers(1, 6))
    def topics_change(self, name: str, partitions: int) -> None:
        """Add partitions to a topic, or delete and re-create the topic if it would have fewer partitions."""
        topic_id = self.driver.view.id_of(name)
        if topic_id is not None and partitions < self.driver.view.partitions_of(topic_id):
            self.incarnations[name] += 1
            self.driver.set_topics(without=[name])
        self.driver.set_topics(topic(name, partitions, incarnation=self.incarnations[name]))

    @rule()
    def appends_fail(self) -> None:
        self.driver.fail_appends = True

    @precondition(lambda self: self.driver.fail_appends)
    @rule()
    def appends_work(self) -> None:
        self.driver.fail_appends = False

    @rule()
    def restart(self) -> None:
        self.driver.fail_appends = False
        self.driver.restart()

    @rule()
    def a_step_raises(self) -> None:
        self.driver.fail()

    # --- invariants

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        if self.group is None:
            return
        found: dict[tuple[bytes, int], str] = {}
        for member in self.group.members.values():
            for current in (member.assigned, member.pending_revocation):
                for topic_id, partitions in current.items():
                    for partition in partitions:
                        assert found.setdefault((topic_id, partition), member.member_id) == member.member_id
                        assert self.group.owners[topic_id][partition] == member.member_id
        assert sum(map(len, self.group.owners.values())) == len(found)

    @invariant()
    def in_one_epoch_a_partition_has_one_owner_ever(self) -> None:
        for member in () if self.group is None else self.group.members.values():
            if member.epoch <= 0:
                continue
            for topic_id, partitions in member.assigned.items():
                for partition in partitions:
                    who = member.instance_id or member.member_id
                    assert self.owners.setdefault((topic_id, partition, member.epoch), who) == who

    @invariant()
    def members_do_not_read_what_others_read(self) -> None:
        if self.group is None:
            return
        reads: set[tuple[str, int]] = set()
        for client in self.clients:
            member = self.group.members.get(client.member_id)
            if member is None or client.epoch <= 0 or member.epoch < 0:
                continue  # this member was fenced, and learns it from the response to its next heartbeat
            if client.epoch not in (member.epoch, member.previous_epoch):
                continue
            assert not client.reads & reads
            reads |= client.reads

    @invariant()
    def epochs_do_not_fall(self) -> None:
        group = self.group
        if group is None:
            return
        assert all(member.epoch <= group.assignment_epoch for member in group.members.values())
        assert group.assignment_epoch <= group.epoch
        assert self.epochs[-1:] <= [group.epoch]
        self.epochs.append(group.epoch)

    @invariant()
    def the_log_says_all(self) -> None:
        assert state_of(self.driver.replayed()) == state_of(self.driver.machine)

    def teardown(self) -> None:
        """Check that all members reach their target assignments when only heartbeats are sent from now on."""
        self.driver.fail_appends = False
        if self.group is None:
            return
        here = [client for client in self.clients if client.member_id in self.group.members]
        for _ in range(16):  # longer than the session timeout, so that the group removes dead members
            self.driver.advance(5.0)
            for client in here:
                client.let_go()
                if client.beat().code is not ErrorCode.NONE:
                    if client.instance_id is not None:
                        client.leave(-2)
                    client.join()
        if here:
            assert self.group.state is ConsumerGroupState.STABLE
            read = {name for client in here if client.topics for name in client.topics}
            partitions = {
                (label_of(topic_id), number)
                for topic_id in self.driver.view.ids_of(read)
                for number in range(self.driver.view.partitions_of(topic_id))
            }
            owned = sorted(each for client in here for each in client.owns)
            assert self.group.members.keys() == {client.member_id for client in here}
            assert owned == sorted(partitions)


ConsumerGroups.TestCase.settings = settings(examples(60, of=200), stateful_step_count=40)
TestConsumerGroups = ConsumerGroups.TestCase
