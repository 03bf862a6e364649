"""Performs elections that a client requests (ElectLeaders, KIP-460) or that the controller starts to rebalance leaders.
Pure.

Source: Kafka's KafkaController.processReplicaLeaderElection and checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncelog_broker.controller.candidates import OFFLINE
from oncelog_broker.controller.election import Decision, preferred_state
from oncelog_broker.controller.partition_decisions import PartitionChange, election_of, is_led, partition_outcome
from oncelog_broker.controller.view import ClusterView
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple


def requested_election(
    view: ClusterView, key: PartitionKey, kind: ElectionType, controller_epoch: int
) -> PartitionChange:
    """Return the change that performs an election of this kind (preferred or unclean) for one partition.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED (the preferred replica leads already; for an
    unclean election: any replica leads), PREFERRED_LEADER_NOT_AVAILABLE (the preferred replica is away, about to stop,
    or not in sync), ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    replicas, known = view.replicas(key), view.states.get(key)
    if not replicas or known is None or key.topic in view.doomed:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unknown partition {key.topic}-{key.partition}.")
    if kind is ElectionType.PREFERRED:
        if known.state.leader == replicas[0] and is_led(view, key):
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"Broker {replicas[0]} leads already.")
        elected = preferred_state(election_of(view, key, controller_epoch))
        # The partition may have no leader because its leader's log is offline. The new leader must therefore have
        # reported that its own log is open.
        is_offline = known.state.leader == NO_LEADER and view.candidates.end_of(key, replicas[0]) in (None, OFFLINE)
        if elected is None or is_offline:
            message = f"Broker {replicas[0]} is not in sync, or is not registered, or is stopping."
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
        return PartitionChange(key, elected, known.version)
    if is_led(view, key):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"Broker {known.state.leader} leads.")
    decision = partition_outcome(view, key, controller_epoch, unclean=True)
    if not isinstance(decision, Decision) or decision.state.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"None of the brokers {list(replicas)} can lead.")
    return PartitionChange(key, decision.state, known.version, may_lose=decision.may_lose)


class Imbalance(NamedTuple):
    """The leadership balance of one broker: the partitions whose preferred leader is this broker, and how many of them
    another broker leads now.
    """

    preferred: int
    elsewhere: list[PartitionKey]

    def exceeds(self, percentage: int) -> bool:
        """Whether other brokers lead more than `percentage` percent of the partitions whose preferred leader is this
        broker (leader.imbalance.per.broker.percentage).
        """
        return len(self.elsewhere) * 100 > self.preferred * percentage


def imbalances(view: ClusterView) -> Iterator[tuple[int, Imbalance] | None]:
    """Yields (broker, imbalance) for every live preferred leader. Before that, yields None as a pause while the
    partitions are counted.
    """
    preferred: dict[int, int] = dict.fromkeys(view.live, 0)
    elsewhere: dict[int, list[PartitionKey]] = {broker: [] for broker in view.live}
    for key, known in view.states.items():
        replicas = view.replicas(key)
        if replicas and replicas[0] in preferred and key.topic not in view.doomed:
            preferred[replicas[0]] += 1
            if known.state.leader != replicas[0]:
                elsewhere[replicas[0]].append(key)
        yield None
    for broker, count in preferred.items():
        yield broker, Imbalance(count, elsewhere[broker])
