"""Lists all faults by name, and has the function that ends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog_simulation.faults import clocks, disks, leadership, lost_disks, network, processes, store
from oncelog_simulation.faults.fault import Fault
from oncelog_simulation.world import World

FAULTS: Final[Mapping[str, Fault]] = {
    name: fault
    for room in (processes, clocks, network, leadership, store, disks, lost_disks)
    for name, fault in room.FAULTS.items()
}


def end_all(world: World) -> None:
    """Undo the effects of all faults that still last."""
    world.network.mend_all()
    for machine in world.brokers.values():
        machine.disk_troubles.end()
        machine.clock.drift(1.0)
        machine.resume()
        machine.let_start()
    for client in world.clients.values():
        client.clock.drift(1.0)
        client.resume()
    for server in world.store.servers:
        server.lag = 0.0
        world.store.start_server(server)
    world.store.regain_quorum()
