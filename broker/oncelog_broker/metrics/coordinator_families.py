"""Groups that this broker coordinates: kafka.coordinator.group:type=GroupMetadataManager."""

from __future__ import annotations

from collections import Counter
from typing import Final

from oncelog_broker.coordinator.group.states import GroupState
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


@families.gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups with members, and empty groups that had members."
)
def groups(source: Source) -> Samples:
    yield Sample(NO_LABELS, sum(len(machine.groups) for machine in source.services.groups.runtime.machines()))


def _declare(name: str, state: GroupState) -> None:
    @families.gauge(f"kafka_coordinator_group_groupmetadatamanager_numgroups{name}", f"Groups that are {state.value}.")
    def read(source: Source) -> Samples:
        found: Counter[GroupState] = Counter()
        for machine in list(source.services.groups.runtime.machines()):
            states = [group.state for group in machine.groups.values()]
            for start in range(0, len(states), GROUPS_PER_STEP):
                found.update(states[start : start + GROUPS_PER_STEP])
                yield None
        yield Sample(NO_LABELS, found[state])


for _of_state in OF_STATES:
    _declare(*_of_state)
