"""Three brokers and an ensemble, with a proxy between each two brokers, and between each broker and ZooKeeper."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from failing_machines import machines_that_fail
from peer_network import PeerNetwork
from replicated_cluster import ReplicatedCluster
from tests.support.zookeeper.cutting_proxy import CuttingProxy

from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.local_cluster.java import find_java
from oncelog_broker.local_cluster.server_config import Timing
from oncelog_broker.local_cluster.zookeeper_jars import provide_jars

SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "zookeeper.connection.timeout.ms": "60000",
    "replica.lag.time.max.ms": "3000",
    "log.segment.bytes": "1048576",
    "group.min.session.timeout.ms": "1000",
}
HANDS = 6


class Stage:
    """A context manager that starts and stops brokers, ensemble and proxies. Enter and leave the stage in the same
    thread, because the
    ZooKeeper servers end with that thread.
    """

    def __init__(self, directory: Path, zookeepers: int) -> None:
        self.directory = directory
        self.ensemble = Ensemble(
            directory / "zookeeper",
            find_java(),
            provide_jars(print),
            size=zookeepers,
            timing=Timing(tick=250, least_session=500),
            is_synced=False,
            dies_with_us=True,
        )
        self.hands: ThreadPoolExecutor
        """The threads that execute the faults. The threads run until the end, because a restarted ZooKeeper server ends
        with the thread that has started it.
        """
        self.cluster: ReplicatedCluster
        self.network: PeerNetwork
        self.ways_to_zookeeper: dict[int, CuttingProxy] = {}
        """Broker id -> the proxy between this broker and ZooKeeper."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.hands = stack.enter_context(ThreadPoolExecutor(HANDS))
            self.ensemble.start()
            stack.callback(self.ensemble.kill)
            self.cluster = ReplicatedCluster(self.directory, self.ensemble.connect_string, SETTINGS)
            self.network = stack.enter_context(PeerNetwork(self.cluster.peer_ports))
            self.cluster.advertise_to_peers(self.network.ports)
            for node_id, broker in self.cluster.brokers.items():
                proxy = stack.enter_context(CuttingProxy(self.ensemble.connect_string))
                self.ways_to_zookeeper[node_id] = proxy
                broker.settings["zookeeper.connect"] = proxy.connect_string
                broker.log_level = "info"
            stack.enter_context(machines_that_fail(self.directory))
            stack.enter_context(self.cluster)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
