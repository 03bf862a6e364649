"""Follows the states of all partitions in the metadata store: which have a leader, and which have all replicas in sync.

The states are read from each committed write, so that a check costs nothing, however many partitions there are.
"""

from __future__ import annotations

from collections import Counter

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import parse_partition_state
from oncelog_broker.metadata.stores.tree import Changes
from oncelog_simulation.scale.size import REPLICAS


class PartitionStates:
    """The partitions of the cluster, according to the store."""

    def __init__(self) -> None:
        self._leaders: dict[str, int] = {}
        """The leader of each partition, by the path of its state; NO_LEADER if it has none."""
        self._led: Counter[int] = Counter()
        """Number of partitions by leader, and of those that have none."""
        self._in_sync: dict[str, list[int]] = {}
        """The in-sync replicas of each partition."""
        self._counted: Counter[int] = Counter()
        """Number of partitions in which each broker is in sync."""
        self._behind: set[str] = set()
        """The partitions with a replica that is not in sync."""

    def note(self, changes: Changes) -> None:
        """Note a committed write."""
        for path, node in changes.items():
            if node is None or not path.endswith("/state") or not path.startswith(paths.TOPICS):
                continue
            state = parse_partition_state(node.data, path)
            before = self._leaders.get(path)
            if before is not None:
                self._led[before] -= 1
            self._leaders[path] = state.leader
            self._led[state.leader] += 1
            self._counted.subtract(self._in_sync.get(path, ()))
            self._in_sync[path] = list(state.isr)
            self._counted.update(state.isr)
            (self._behind.add if len(state.isr) < REPLICAS else self._behind.discard)(path)

    @property
    def partitions(self) -> int:
        """Number of partitions that have a state."""
        return len(self._leaders)

    def are_led_without(self, brokers: set[int]) -> bool:
        """Whether each partition has a leader, and none of these brokers is a leader."""
        return not any(self._led[broker] for broker in (NO_LEADER, *brokers))

    def count_on_none_of(self, brokers: set[int]) -> bool:
        """Whether none of these brokers is in sync in any partition."""
        return not any(self._counted[broker] for broker in brokers)

    @property
    def are_in_sync(self) -> bool:
        """Whether each partition has a leader, and all its replicas are in sync."""
        return not self._led[NO_LEADER] and not self._behind
