"""The in-sync replicas and the registered brokers, read directly from the leader of the simulated metadata store.

Brokers learn of changes in the metadata store later than this judge. The rules for in-sync replicas apply from the
moment at which the state is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import parse_partition_state, parse_topic

if TYPE_CHECKING:
    from oncelog_simulation.world import World

Key = tuple[bytes, int]
"""Type of a partition's key: topic id and partition index."""


class TrueState(NamedTuple):
    """The state of one partition."""

    topic: str
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    written: int
    """The zxid of the state's last write: a broker whose registration has a higher zxid was away since that write."""


class Truth:
    """The state of all partitions and brokers at the last `update`."""

    def __init__(self) -> None:
        self.states: dict[Key, TrueState] = {}
        self.registered: dict[int, int] = {}
        """The zxid of each broker's registration, which is its broker epoch, by broker id."""
        self.zxid = -1
        """The zxid of the last write that was read."""
        self._topics: dict[str, tuple[int, bytes]] = {}
        """The zxid of the topic's node, and the topic id, by topic name."""

    def update(self, world: World) -> list[Key]:
        """Read the writes since the last call; returns the partitions whose state has changed."""
        if world.store.zxid == self.zxid:
            return []
        self.zxid = world.store.zxid
        tree, before = world.store.tree, self.states
        self.states, changed = {}, []
        for name in tree.children(paths.TOPICS) if tree.node(paths.TOPICS) is not None else ():
            topic_id = self._topic_id(world, name)
            at = paths.partitions(name)
            for index in map(int, tree.children(at) if tree.node(at) is not None else ()):
                path = paths.partition_state(name, index)
                node = tree.node(path)
                if node is None:
                    continue
                known = before.get((topic_id, index))
                if known is None or known.written != node.stat.mzxid:
                    state = parse_partition_state(node.data, path)
                    known = TrueState(name, tuple(state.isr), state.leader, state.leader_epoch, node.stat.mzxid)
                    changed.append((topic_id, index))
                self.states[topic_id, index] = known
        brokers = tree.children(paths.BROKER_IDS) if tree.node(paths.BROKER_IDS) is not None else ()
        nodes = {int(name): tree.node(paths.broker_id(int(name))) for name in brokers}
        self.registered = {broker: node.stat.czxid for broker, node in nodes.items() if node is not None}
        return changed

    def _topic_id(self, world: World, name: str) -> bytes:
        path = paths.topic(name)
        node = world.store.tree.node(path)
        assert node is not None, f"{name} has partitions and no node"
        known = self._topics.get(name)
        if known is None or known[0] != node.stat.czxid:
            known = self._topics[name] = node.stat.czxid, parse_topic(node.data, path).topic_id or b""
        return known[1]
