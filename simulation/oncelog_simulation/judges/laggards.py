"""A replica that has fallen behind must leave the ISR in time, because it would otherwise block every acks=all request.
The judge requires this only while the leader, the controller and the metadata store can work with one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from oncelog_broker.config.broker_keys import REPLICA_LAG_TIME_MAX_MS
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import parse_controller
from oncelog_simulation.judges.running import Running, running
from oncelog_simulation.judges.truth import Key

if TYPE_CHECKING:
    from oncelog_simulation.world import World

MORE_SECONDS: Final = 5.0
"""Virtual seconds that are allowed in addition to replica.lag.time.max.ms, because leaders check only at half of this
interval, and then send a request to the controller.
"""
LATE_SECONDS: Final = 0.5
"""If a packet between two machines arrives later than this, a fault that is over still delays their streams."""
CUTS: Final = ("partition", "one-way partition")
"""These faults cut only the links between the struck machines, which can still work with all others; any other fault
may stop a struck machine.
"""


class Laggards:
    """Checks the followers of all led partitions."""

    name = "laggards"

    def __init__(self) -> None:
        self._since: dict[tuple[int, Key, int], float] = {}
        """For each leader, partition and follower, the virtual time since which the follower has lagged while nothing
        has prevented its removal from the ISR.
        """

    def look_closely(self, world: World) -> Iterable[str]:
        """Yield the followers that should have left the ISR before now."""
        lagging: dict[tuple[int, Key, int], float] = {}
        wrong: list[str] = []
        more = MORE_SECONDS * world.plan.leisure
        for broker in running(world):
            behind = _behind(broker)
            controller = _controller(world) if behind else None
            if controller is None or not _can_work(world, broker.number, controller):
                continue
            for key, follower, name in behind:
                lag = (broker.number, key, follower)
                since = lagging[lag] = self._since.get(lag, world.now)
                if world.now - since > more:
                    wrong.append(f"{name}: broker {follower} is behind and in sync for {more:g} s more than it may be")
                    lagging[lag] = world.now  # so that this is reported only once in MORE_SECONDS
        self._since = lagging
        return wrong

    async def conclude(self, world: World) -> Iterable[str]:
        return ()


def _behind(broker: Running) -> list[tuple[Key, int, str]]:
    """Return the partition, the broker id and the log's name of each follower that should not be in the ISR."""
    without_all = [
        (partition, follower, progress.last_caught_up)
        for partition in broker.parts.replication.replicas.led()
        for follower, progress in partition.followers.items()
        if progress.log_end_offset != partition.log.log_end_offset and follower in partition.isr
    ]
    if not without_all or broker.machine.broker is None:
        return []
    limit, now = broker.machine.broker.config[REPLICA_LAG_TIME_MAX_MS] / 1000, broker.machine.clock.monotonic()
    return [
        ((partition.topic_id, partition.index), follower, partition.log.name)
        for partition, follower, caught_up in without_all
        if now - caught_up > limit
    ]


def _controller(world: World) -> int | None:
    node = world.store.tree.node(paths.CONTROLLER)
    return None if node is None else parse_controller(node.data, paths.CONTROLLER).broker_id


def _can_work(world: World, leader: int, controller: int) -> bool:
    """Return whether no fault separates leader, controller and store from one another, or delays their packets."""
    names = {f"broker-{leader}", f"broker-{controller}"}
    if not all(world.brokers[name].is_serving for name in names):
        return False
    for strike in world.striking:
        struck = set(strike.machines)
        if any(name.startswith("store") for name in struck):
            return False
        if names <= struck if strike.fault in CUTS and len(names) > 1 else names & struck and strike.fault not in CUTS:
            return False
    return not _are_late(world, names)


def _are_late(world: World, brokers: Collection[str]) -> bool:
    """Return whether packets between these brokers, or between them and the store, are still delayed by a fault."""
    others = [*brokers, *(server.host.name for server in world.store.servers)]
    ends = [(broker, other) for broker in brokers for other in others if broker != other]
    links = [world.network.link(*each) for pair in ends for each in (pair, pair[::-1])]
    return any(link.last_arrival > world.now + LATE_SECONDS for link in links)
