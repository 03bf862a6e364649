"""A process that replaces a broker under `oncelog cluster`: it registers in ZooKeeper, listens on its port, and lists
the registered brokers.

Tests that are only about the processes run this module as a program with the options of `oncelog serve`.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from kazoo.client import KazooClient
from tests.support.fake_broker import FakeBroker

from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse

IDS = "/brokers/ids"
SESSION_SECONDS = 60.0
"""The session timeout in seconds; it is the longest that the server grants, so that a paused broker keeps its session.
"""


class StandInBroker(FakeBroker):
    def __init__(self, node_id: int, port: int, zookeeper: KazooClient) -> None:
        super().__init__()
        self.node_id, self.port, self.zookeeper = node_id, port, zookeeper
        self.handlers[MetadataRequest] = lambda _: self.registered()

    def register(self) -> None:
        self.zookeeper.start(60)
        value = json.dumps({"port": self.port}).encode()
        path = f"{IDS}/{self.node_id}"
        if self.zookeeper.exists(path):
            self.zookeeper.delete(path)  # delete the registration that a killed predecessor left
        self.zookeeper.create(path, value, ephemeral=True, makepath=True)

    def registered(self) -> MetadataResponse:
        brokers = []
        for node_id in map(int, self.zookeeper.get_children(IDS)):
            port = json.loads(self.zookeeper.get(f"{IDS}/{node_id}")[0])["port"]
            brokers.append(MetadataResponse.MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port))
        return MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=self.node_id, topics=[])


async def main(settings: dict[str, str]) -> None:
    port = int(settings["listeners"].rpartition(":")[2])
    zookeeper = KazooClient(settings["zookeeper.connect"], timeout=SESSION_SECONDS)
    broker = StandInBroker(int(settings["node.id"]), port, zookeeper)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await asyncio.to_thread(broker.register)
    await broker.start()
    await stop.wait()
    await broker.stop()
    await asyncio.to_thread(zookeeper.stop)
    zookeeper.close()


if __name__ == "__main__":
    asyncio.run(main(dict(value.split("=", 1) for flag, value in zip(sys.argv[1::2], sys.argv[2::2], strict=True))))
