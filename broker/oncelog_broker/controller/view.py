"""The controller's view of its cluster: the brokers, the topics, and the state of every partition. Pure.

The controller is the only writer of partition states, so its view is current as long as the outcome of each write is
known. After a write with an unknown outcome, the controller reads the view again. Only a task that has acquired the
controller's lock changes the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from oncelog_broker.controller.candidates import CandidateLogs
from oncelog_broker.controller.known_broker import NEVER, KnownBroker, unknown_broker
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import (
    PARTITIONS_PER_STEP,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.runtime.steps import Steps, run_steps
from oncelog_protocol.light_classes import NamedTuple


class KnownState(NamedTuple):
    """The state of a partition, the version of the state's node, and the zxid of the last write of this node."""

    state: PartitionState
    version: int
    written: int


class ClusterView:
    """The brokers, topics and partition states that the controller knows. Only a task that has acquired the
    controller's lock changes the view.
    """

    def __init__(self, *, unclean_by_default: bool = False) -> None:
        self.brokers: Mapping[int, KnownBroker] = {}
        """Every broker that is registered, or was registered earlier, by id. The mapping is replaced, never changed in
        place, so that a decision and the write of this decision use the same mapping."""
        self.live: Mapping[int, KnownBroker] = {}
        """The registered brokers among `brokers`."""
        self.staying: Mapping[int, KnownBroker] = {}
        """The live brokers that are not about to stop; only these brokers get new replicas and leaderships."""
        self.topics: dict[str, TopicAssignment] = {}
        self.topic_versions: dict[str, int] = {}
        """The version of each topic's node; a write of an assignment checks this version."""
        self.states: dict[PartitionKey, KnownState] = {}
        self.unreadable: set[PartitionKey] = set()
        """Partitions whose state cannot be parsed; the controller does not change these partitions."""
        self.unclean_by_default = unclean_by_default
        self.unclean: dict[str, bool] = {}
        """Topic name -> whether the topic allows an unclean election; contains only topics with their own setting."""
        self.candidates = CandidateLogs()
        """The log ends that brokers have reported for replicas that may be elected."""
        self.doomed: set[str] = set()
        """Names of the topics whose deletion has begun; the partitions of these topics no longer have leaders."""
        self._names: dict[bytes, str] = {}
        self._hosted: dict[int, set[PartitionKey]] = {}

    def keys(self) -> Iterator[PartitionKey]:
        """Yield every partition of every topic."""
        for name, topic in self.topics.items():
            for partition in topic.partitions:
                yield PartitionKey(name, partition)

    def keys_of(self, names: Iterable[str]) -> list[PartitionKey]:
        """Return the existing partitions of these topics."""
        return [PartitionKey(name, p) for name in names if name in self.topics for p in self.topics[name].partitions]

    def keys_on(self, brokers: Iterable[int]) -> set[PartitionKey]:
        """Return the partitions that have a replica on any of these brokers."""
        return set().union(*(self._hosted.get(broker, ()) for broker in brokers))

    def assignment(self, key: PartitionKey) -> ReplicaAssignment | None:
        """Return the assignment of a partition; None if it does not exist."""
        topic = self.topics.get(key.topic)
        return None if topic is None else topic.partitions.get(key.partition)

    def replicas(self, key: PartitionKey) -> tuple[int, ...]:
        """Return the replicas of a partition. The result is empty if the partition does not exist. It is also empty if
        the partition's state cannot be parsed, so that the controller does not change the partition.
        """
        assignment = self.assignment(key)
        return () if assignment is None or key in self.unreadable else assignment.replicas

    def allows_unclean_election(self, topic: str) -> bool:
        return self.unclean.get(topic, self.unclean_by_default)

    def topic_by_id(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def broker(self, broker: int) -> KnownBroker:
        """Return the controller's knowledge of this broker, which may never have registered."""
        return self.brokers.get(broker) or unknown_broker(broker)

    def put_topic(self, name: str, topic: TopicAssignment, version: int = 0) -> None:
        """Update the view with a topic. `version` is the version of the topic's node that was read. The states of
        partitions that the topic no longer has, or that belong to an older topic with the same name, are forgotten."""
        run_steps(self.topic_put(name, topic, version))

    def topic_put(self, name: str, topic: TopicAssignment, version: int = 0) -> Steps[None]:
        """Generator that updates the view with a topic in version `version` of its node. It pauses between partitions,
        because a topic may have thousands of them.
        """
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
        """Update the view with new assignments of partitions, as they are in this version of the topic's node. Raises
        KeyError if the topic or partition does not exist."""
        topic = self.topics[name]
        for partition, assignment in changed.items():
            self._host(PartitionKey(name, partition), topic.partitions[partition], assignment)
        self.topics[name] = replace(topic, partitions={**topic.partitions, **changed})
        self.topic_versions[name] = version

    def remove_topic(self, name: str) -> None:
        """Remove a topic from the view. An unknown topic is ignored."""
        run_steps(self.topic_removed(name))

    def topic_removed(self, name: str) -> Steps[None]:
        """Remove a topic from the view, as a generator that pauses between partitions."""
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
        """Update the view with the state of a partition; None means that the partition has no state."""
        before = self.states.get(key)
        self.unreadable.discard(key)
        if known is None:
            self.states.pop(key, None)
        else:
            self.states[key] = known
        if known is None or (known.state.leader != NO_LEADER and known != before):
            self.candidates.forget(key)

    def may_vouch(self, key: PartitionKey) -> bool:
        """Whether the state of a partition may be written without an election.

        After a write of the state, its leader and the members of its ISR count as brokers that have been registered
        without a break. An election must therefore come first if, since the last write, the leader was absent or a
        member of the ISR may have lost records.
        """
        state, written = self.states[key].state, self.states[key].written
        was_away = state.leader != NO_LEADER and not self.broker(state.leader).is_steady_since(written)
        return not was_away and not self.has_unsure(key)

    def has_unsure(self, key: PartitionKey) -> bool:
        """Whether a member of the ISR may have lost records since the state was written."""
        known = self.states[key]
        return any(self.broker(broker).is_unsure_of(known.written) for broker in known.state.isr)

    def put_unreadable(self, key: PartitionKey) -> None:
        """Mark the partition as having a state that cannot be parsed; the controller then does not change the
        partition.
        """
        self.states.pop(key, None)
        self.unreadable.add(key)

    def put_brokers(self, brokers: Iterable[KnownBroker]) -> set[int]:
        """Replace all brokers of the view by `brokers`. Returns the ids of the brokers that registered, left, or
        registered again."""
        before = self.brokers
        self._set_brokers({broker.id: _kept_stopping(broker, before) for broker in brokers})
        changed = {
            broker for broker in before.keys() | self.brokers.keys() if _differ(before.get(broker), self.broker(broker))
        }
        self.candidates.forget_brokers(changed)
        return changed

    def note_stopping(self, broker: int) -> None:
        """Mark a live broker that has requested its controlled shutdown. The mark is valid until the broker's
        registration ends; after its next registration the broker is no longer marked.
        """
        self._set_brokers({**self.brokers, broker: self.brokers[broker]._replace(is_stopping=True)})

    def keep_stopping(self, before: Mapping[int, KnownBroker]) -> None:
        """Mark the brokers again that had the stopping mark in the mapping `before`, unless they have registered again
        since.
        """
        self._set_brokers({id_: _kept_stopping(broker, before) for id_, broker in self.brokers.items()})

    def _set_brokers(self, brokers: Mapping[int, KnownBroker]) -> None:
        self.brokers = brokers
        self.live = {id_: broker for id_, broker in brokers.items() if broker.is_live}
        self.staying = {id_: broker for id_, broker in self.live.items() if not broker.is_stopping}


def _kept_stopping(broker: KnownBroker, before: Mapping[int, KnownBroker]) -> KnownBroker:
    """Return the broker in the new mapping, marked as stopping if it was stopping in the mapping `before` and still has
    the same registration.
    """
    known = before.get(broker.id)
    was_stopping = known is not None and known.is_stopping and known.epoch == broker.epoch
    return broker._replace(is_stopping=True) if was_stopping else broker


def _differ(before: KnownBroker | None, now: KnownBroker) -> bool:
    """Whether the broker registered, left, or registered again. An absent broker also counts as changed if it
    registered and left unnoticed, because it may have reported a loss of records.
    """
    was = before or unknown_broker(now.id)
    has_become_unsure = now.unsure_since not in (NEVER, was.unsure_since)
    return (was.epoch, was.rack) != (now.epoch, now.rack) or has_become_unsure
