"""Damaged logs that no broker can replace by a copy, so that judges cannot require progress of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog_simulation.judges.running import running

if TYPE_CHECKING:
    from oncelog_simulation.world import World


def has_only_damaged(world: World) -> bool:
    """Return whether a partition's only in-sync replica has a flipped bit in its log, according to any broker.

    If the other replicas have lost the damaged batch, for example because their disks have failed too, they cannot copy
    the partition, and the operator cannot replace the disk with the flipped bit. As long as that is so, a client may
    wait for a partition of this disk forever.
    """
    only = {
        (state.isr[0], f"{topic.name}-{index}")
        for broker in running(world)
        for topic in broker.image.topics.values()
        for index, state in topic.partitions.items()
        if len(state.isr) == 1
    }
    damaged = {(world.brokers[name].number, log) for name, logs in world.rotted.items() for log in logs}
    return bool(only & damaged)
