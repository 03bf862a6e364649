"""Metrics of the groups that this broker coordinates: kafka.coordinator.group:type=GroupMetadataManager."""

from __future__ import annotations

from collections import Counter
from typing import Final

from oncelog_broker.coordinator.group.classic_group import ClassicGroup
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupState
from oncelog_broker.coordinator.group.share.share_group import ShareGroup, ShareGroupState
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup, StreamsGroupState
from oncelog_broker.metrics.family import NO_LABELS, Families, Sample, Samples
from oncelog_broker.metrics.source import Source

families = Families()

GROUPS_PER_STEP: Final = 500
OF_STATES: Final = (
    ("stable", GroupState.STABLE),
    ("empty", GroupState.EMPTY),
    ("preparingrebalance", GroupState.PREPARING_REBALANCE),
    ("completingrebalance", GroupState.COMPLETING_REBALANCE),
    ("dead", GroupState.DEAD),
)
STREAMS_STATE_NAMES: Final = {StreamsGroupState.NOT_READY: "not_ready"}
"""The names of group states that Kafka's metrics spell differently from the lower-case names in the protocol."""
PROTOCOLS: Final = ("classic", "consumer", "share", "streams")


@families.gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups with members, and empty groups that had members."
)
def groups(source: Source) -> Samples:
    yield Sample(NO_LABELS, sum(len(machine.groups) for machine in source.services.groups.runtime.machines()))


def _declare(name: str, state: GroupState) -> None:
    @families.gauge(
        f"kafka_coordinator_group_groupmetadatamanager_numgroups{name}",
        f"Groups of the classic protocol that are {state.value}.",
    )
    def read(source: Source) -> Samples:
        found: Counter[GroupState] = Counter()
        for machine in list(source.services.groups.runtime.machines()):
            states = [group.state for group in machine.groups.values() if isinstance(group, ClassicGroup)]
            for start in range(0, len(states), GROUPS_PER_STEP):
                found.update(states[start : start + GROUPS_PER_STEP])
                yield None
        yield Sample(NO_LABELS, found[state])


for _of_state in OF_STATES:
    _declare(*_of_state)


@families.gauge("kafka_server_group_coordinator_metrics_group_count", "Groups of each protocol.", "protocol")
def groups_of_protocols(source: Source) -> Samples:
    found: Counter[str] = Counter()
    for machine in list(source.services.groups.runtime.machines()):
        found.update(group.kind for group in machine.groups.values())
        yield None
    for protocol in PROTOCOLS:
        yield Sample({"protocol": protocol}, found[protocol])


@families.gauge(
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    "Groups of the consumer protocol in each state.",
    "state",
)
def consumer_groups(source: Source) -> Samples:
    found: Counter[ConsumerGroupState] = Counter()
    for machine in list(source.services.groups.runtime.machines()):
        for group in list(machine.groups.values()):
            if isinstance(group, ConsumerGroup):
                found[group.state] += 1
                yield None
    for state in ConsumerGroupState:
        yield Sample({"state": state.value.lower()}, found[state])


@families.gauge("kafka_server_group_coordinator_metrics_share_group_count", "Share groups in each state.", "state")
def share_groups(source: Source) -> Samples:
    found: Counter[ShareGroupState] = Counter()
    for machine in list(source.services.groups.runtime.machines()):
        found.update(group.state for group in machine.groups.values() if isinstance(group, ShareGroup))
        yield None
    for state in ShareGroupState:
        yield Sample({"state": state.value.lower()}, found[state])


@families.gauge("kafka_server_group_coordinator_metrics_streams_group_count", "Streams groups in each state.", "state")
def streams_groups(source: Source) -> Samples:
    found: Counter[StreamsGroupState] = Counter()
    for machine in list(source.services.groups.runtime.machines()):
        for group in list(machine.groups.values()):
            if isinstance(group, StreamsGroup):
                found[group.state] += 1
                yield None
    for state in StreamsGroupState:
        yield Sample({"state": STREAMS_STATE_NAMES.get(state, state.value.lower())}, found[state])
