"""The settings of a topic must take effect in each replica's log, also settings that are changed while the cluster
runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import parse_config
from oncelog_simulation.judges.running import running

if TYPE_CHECKING:
    from oncelog_simulation.world import World

SETTLE_SECONDS: Final = 20.0
"""Virtual seconds in which the last changes of settings must have taken effect in all logs."""
LOOK_SECONDS: Final = 0.5


class Settings:
    """Compares the logs with the metadata store when the workloads have ended."""

    name = "settings"

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        """Yield the logs that have other settings than their topics."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS * world.plan.leisure):
                while wrong_settings(world):
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return wrong_settings(world)
        return ()


def wrong_settings(world: World) -> list[str]:
    """Return the logs that have other settings now than the metadata store."""
    wrong = []
    for broker in running(world):
        for partition in broker.hosted():
            path = paths.topic_config(partition.topic)
            node = world.store.tree.node(path)
            for key, value in parse_config(node.data, path).items() if node is not None else ():
                present = getattr(partition.log.config, key.replace(".", "_"), None)
                if isinstance(present, int) and present != int(value):
                    wrong.append(f"{partition.log.name}: broker {broker.number} has {key}={present}, set is {value}")
    return wrong
