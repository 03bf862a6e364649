"""A GroupMachine and members of share groups (KIP-932) that send it heartbeats as clients do; extends `ConsumerDriver`.

The driver records what the machine requests from share coordinators: `begun` has the share partitions whose state is to
be initialized. `begin_states` tells the machine that the share coordinators have initialized these states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.consumer_groups import ConsumerDriver, Partitions, label_of
from tests.support.groups import Answer

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.share.heartbeat import ShareHeartbeat
from oncelog_broker.coordinator.group.share.share_group import ShareGroup
from oncelog_broker.coordinator.group.share.share_step import InitializeStates
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


@dataclass
class Client932:
    """One client of a share group. Its member id, epoch and partitions come from the responses to its heartbeats;
    `reads` are its assigned share partitions.
    """

    driver: ShareDriver
    member_id: str
    topics: tuple[str, ...] = ("t",)
    group_id: str = "g"
    epoch: int = 0
    reads: Partitions = frozenset()
    interval_ms: int = 0
    last: Answer = field(default_factory=Answer)

    def join(self) -> Answer:
        self.epoch, self.reads = 0, frozenset()
        return self.send(subscribed_topic_names=list(self.topics))

    def beat(self) -> Answer:
        return self.send()

    def subscribe(self, *topics: str) -> Answer:
        self.topics = topics
        return self.send(subscribed_topic_names=list(topics))

    def leave(self) -> Answer:
        answer = self.driver.share_heartbeat(group_id=self.group_id, member_id=self.member_id, member_epoch=-1)
        self.epoch, self.reads = 0, frozenset()
        return answer

    def send(self, **said: Any) -> Answer:
        said.setdefault("member_epoch", self.epoch)
        answer = self.last = self.driver.share_heartbeat(group_id=self.group_id, member_id=self.member_id, **said)
        if answer.code is ErrorCode.NONE:
            response: ShareGroupHeartbeatResponse = answer.response
            self.epoch, self.interval_ms = response.member_epoch, response.heartbeat_interval_ms
            if response.assignment is not None:
                self.reads = self.driver.partitions_in(response.assignment.topic_partitions)
        return answer


class ShareDriver(ConsumerDriver):
    """Drives a GroupMachine and members of share groups; the cluster has the topics "t" with four partitions and "u"
    with two.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.begun: list[InitializeStates] = []
        super().__init__(*arguments, **named)

    @property
    def share_group(self) -> ShareGroup:
        group = self.machine.groups["g"]
        assert isinstance(group, ShareGroup)
        return group

    def share_heartbeat(self, *, client_id: str = "c", group_id: str = "g", **said: Any) -> Answer:
        request = ShareGroupHeartbeatRequest(group_id=group_id, **said)
        asked = Client(client_id, "/127.0.0.1")
        return self.run(lambda answer: self.machine.share.heartbeat(ShareHeartbeat(request, asked, answer)))

    def _carry_out(self, effects: Effects) -> None:
        super()._carry_out(effects)
        self.begun += effects.ends

    def begin_states(self, *failed: tuple[str, int]) -> list[tuple[str, int, int]]:
        """Tell the machine that the requested states are initialized, except for the partitions in `failed`. Returns
        (topic, partition, start offset) of each requested initialization.
        """
        asked = []
        for wanted in self.begun:
            done: dict[bytes, frozenset[int]] = {}
            lost: dict[bytes, frozenset[int]] = {}
            for topic_id, starts in wanted.starts.items():
                name = label_of(topic_id)
                asked += [(name, partition, start) for partition, start in starts.items()]
                lost[topic_id] = frozenset(number for number in starts if (name, number) in failed)
                done[topic_id] = frozenset(starts) - lost[topic_id]
            self._carry_out(self.machine.share.on_initialized(wanted.group_id, done, lost))
        self.begun.clear()
        return asked

    def share_client(self, member_id: str | None = None, **what: Any) -> Client932:
        return Client932(self, member_id or f"m{next(self.numbers)}", **what)

    def share_joined(self, **what: Any) -> Client932:
        """Create a client, let it join, and let it read its assigned share partitions."""
        client = self.share_client(**what)
        assert client.join().code is ErrorCode.NONE
        self.begin_states()
        self.advance(1.0)
        client.beat()
        return client

    def settle_shares(self, *clients: Client932, rounds: int = 4) -> None:
        """Let all members send a heartbeat each second until each member has its target assignment."""
        for _ in range(rounds):
            self.advance(1.0)
            for client in clients:
                if client.beat().code is not ErrorCode.NONE:
                    client.join()
            self.begin_states()
            self.run_jobs()
