"""What the controller knows of its cluster: who lives, in which incarnation, and the state of every partition. Pure.

The controller is the only writer of partition states, so its view is current for as long as it knows the outcome of
each of its writes; what it does not know it reads again. Changed in place, by whoever has the controller's turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from oncelog_broker.controller.candidates import CandidateLogs
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import (
    PARTITIONS_PER_STEP,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.runtime.steps import Steps, run_steps


class LiveBroker(NamedTuple):
    """A registered broker. `epoch` is the zxid of its registration."""

    id: int
    epoch: int
    rack: str | None = None


class KnownState(NamedTuple):
    """A partition's state, the version of its node, and the zxid of its last write."""

    state: PartitionState
    version: int
    written: int


class ClusterView:
    """See the module's docstring."""

    def __init__(self, *, unclean_by_default: bool = False) -> None:
        self.brokers: dict[int, LiveBroker] = {}
        self.incarnations: dict[int, int] = {}
        """Broker id -> version of the node that counts its registrations; also of brokers that are away. Read before
        `brokers`, so that it is never newer than what is known of the broker."""
        self.unsure: dict[int, int] = {}
        """Broker id -> the epoch of its last registration after which it may lack the end of its logs (the machine had
        gone down); also of brokers that are away. A state that is newer was decided with that in mind."""
        self.stopping: dict[int, int] = {}
        """Broker id -> epoch of the registration whose broker has said that it is about to stop. It is in sync nowhere
        unless nobody else is, leads nothing that another one can, and gets nothing new."""
        self.topics: dict[str, TopicAssignment] = {}
        self.topic_versions: dict[str, int] = {}
        """Of the topics' nodes: what a change of an assignment must name."""
        self.states: dict[PartitionKey, KnownState] = {}
        self.unreadable: set[PartitionKey] = set()
        """Partitions whose state cannot be read: the controller does not change them."""
        self.unclean_by_default = unclean_by_default
        self.unclean: dict[str, bool] = {}
        """Of the topics that say it: whether they would rather lose records than wait for a replica in sync."""
        self.candidates = CandidateLogs()
        """The log ends that brokers have reported for replicas that may be elected."""
        self.doomed: set[str] = set()
        """Topics whose deletion has begun: nothing of them is led any more."""
        self._names: dict[bytes, str] = {}
        self._hosted: dict[int, set[PartitionKey]] = {}

    def keys(self) -> Iterator[PartitionKey]:
        """Every partition that a topic has."""
        for name, topic in self.topics.items():
            for partition in topic.partitions:
                yield PartitionKey(name, partition)

    def keys_of(self, names: Iterable[str]) -> list[PartitionKey]:
        """The partitions of these topics, as far as they exist."""
        return [PartitionKey(name, p) for name in names if name in self.topics for p in self.topics[name].partitions]

    def keys_on(self, brokers: Iterable[int]) -> set[PartitionKey]:
        """The partitions that have a replica on any of these brokers."""
        return set().union(*(self._hosted.get(broker, ()) for broker in brokers))

    def assignment(self, key: PartitionKey) -> ReplicaAssignment | None:
        """None for a partition that does not exist."""
        topic = self.topics.get(key.topic)
        return None if topic is None else topic.partitions.get(key.partition)

    def replicas(self, key: PartitionKey) -> tuple[int, ...]:
        """Empty for a partition that does not exist, or whose state cannot be read: nothing must be done."""
        assignment = self.assignment(key)
        return () if assignment is None or key in self.unreadable else assignment.replicas

    def allows_unclean_election(self, topic: str) -> bool:
        return self.unclean.get(topic, self.unclean_by_default)

    def topic_by_id(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    @property
    def staying(self) -> Mapping[int, LiveBroker]:
        """Those who live and are not about to stop: who may be given something new."""
        if not self.stopping:
            return self.brokers
        return {id_: broker for id_, broker in self.brokers.items() if id_ not in self.stopping}

    def note_stopping(self, stopping: Mapping[int, int]) -> None:
        """These brokers are about to stop, each in the registration with that epoch: a later one is there to stay."""
        of_both = {**self.stopping, **stopping}
        self.stopping = {id_: epoch for id_, epoch in of_both.items() if self._epoch_of(id_) == epoch}

    def _epoch_of(self, broker: int) -> int | None:
        registered = self.brokers.get(broker)
        return None if registered is None else registered.epoch

    def put_topic(self, name: str, topic: TopicAssignment, version: int = 0) -> None:
        """A topic as it is now, in that version of its node. States of partitions that it has no more, or of an older
        topic, are forgotten."""
        run_steps(self.topic_put(name, topic, version))

    def topic_put(self, name: str, topic: TopicAssignment, version: int = 0) -> Steps[None]:
        """`put_topic` in steps: a topic may have thousands of partitions."""
        before = self.topics.get(name)
        if before is not None and (
            before.topic_id != topic.topic_id or not before.partitions.keys() <= topic.partitions.keys()
        ):
            yield from self.topic_removed(name)
            before = None
        known = {} if before is None else before.partitions
        self.topics[name] = topic
        self.topic_versions[name] = version
        if topic.topic_id is not None:
            self._names[topic.topic_id] = name
        for number, (partition, assignment) in enumerate(topic.partitions.items()):
            if known.get(partition) != assignment:
                self._host(PartitionKey(name, partition), known.get(partition), assignment)
            if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                yield None

    def _host(self, key: PartitionKey, before: ReplicaAssignment | None, now: ReplicaAssignment) -> None:
        for broker in () if before is None else before.replicas:
            self._hosted[broker].discard(key)
        for broker in now.replicas:
            self._hosted.setdefault(broker, set()).add(key)

    def put_assignments(self, name: str, changed: Mapping[int, ReplicaAssignment], version: int) -> None:
        """Partitions of a topic have other replicas since that version of its node. KeyError: there is no such topic,
        or partition."""
        topic = self.topics[name]
        for partition, assignment in changed.items():
            self._host(PartitionKey(name, partition), topic.partitions[partition], assignment)
        self.topics[name] = replace(topic, partitions={**topic.partitions, **changed})
        self.topic_versions[name] = version

    def remove_topic(self, name: str) -> None:
        """Harmless for a topic that is not known."""
        run_steps(self.topic_removed(name))

    def topic_removed(self, name: str) -> Steps[None]:
        """`remove_topic` in steps."""
        topic = self.topics.pop(name, None)
        self.topic_versions.pop(name, None)
        self.doomed.discard(name)
        if topic is None:
            return
        if topic.topic_id is not None:
            self._names.pop(topic.topic_id, None)
        for number, (partition, assignment) in enumerate(topic.partitions.items()):
            key = PartitionKey(name, partition)
            self.states.pop(key, None)
            self.unreadable.discard(key)
            for broker in assignment.replicas:
                self._hosted[broker].discard(key)
            if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                yield None

    def put_state(self, key: PartitionKey, known: KnownState | None) -> None:
        """The state of a partition, None while it has none."""
        before = self.states.get(key)
        self.unreadable.discard(key)
        if known is None:
            self.states.pop(key, None)
        else:
            self.states[key] = known
        if known is None or (known.state.leader != NO_LEADER and known != before):
            self.candidates.forget(key)

    def may_vouch(self, key: PartitionKey) -> bool:
        """Whether the state of a partition may be written though nobody is elected. A state vouches for those that it
        names: they count as brokers that have been there ever since. So an election comes first where the leader was
        away, or one of the ISR may have lost records, since the state was written."""
        state, written = self.states[key].state, self.states[key].written
        leader = self.brokers.get(state.leader)
        was_away = state.leader != NO_LEADER and (leader is None or leader.epoch > written)
        return not was_away and not self.has_unsure(key)

    def has_unsure(self, key: PartitionKey) -> bool:
        """Whether one of the ISR may have lost records since the state was written."""
        known = self.states[key]
        return any(self.unsure.get(broker, -1) > known.written for broker in known.state.isr)

    def put_unreadable(self, key: PartitionKey) -> None:
        """Note that the partition has a state that cannot be read."""
        self.states.pop(key, None)
        self.unreadable.add(key)

    def put_brokers(
        self, brokers: Mapping[int, LiveBroker], incarnations: Mapping[int, int], unsure: Mapping[int, int]
    ) -> set[int]:
        """Those who live now, the incarnations of all that ever did, and which of them are unsure since when; the ids
        of all that came, went, or came again."""
        changed = {
            broker for broker in self.brokers.keys() | brokers.keys() if self.brokers.get(broker) != brokers.get(broker)
        }
        # One that came and went again may have said so, too.
        changed |= {broker for broker, since in unsure.items() if self.unsure.get(broker) != since}
        self.candidates.forget_brokers(changed)
        self.brokers, self.incarnations, self.unsure = dict(brokers), dict(incarnations), dict(unsure)
        self.note_stopping({})
        return changed
