"""The processes of a run with three brokers on ZooKeeper; each broker has a proxy, through which clients and the other
brokers connect to it.

Each partition has one replica: a killed broker restarts with its records. The broker that executes the step of a fail
point (the coordinator or a leader) reaches the point, and the fault of the cell strikes this broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from broker_process import BrokerProcess
from foreign_clients import eventually
from frame_proxy import FrameProxy
from raw_client import RawClient

from kill_matrix.questions import Questions
from kill_matrix.stage import SETTINGS, Stage
from oncelog.fail_points.point import FAIL_POINTS
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.messages.produce import ProduceRequest

METADATA_VERSION = 9
NODES = (1, 2, 3)
CLUSTER_SETTINGS = {
    **SETTINGS,
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class RoutedClient:
    """Sends single requests without a client's retries, each to the broker that leads the partition or coordinates the
    group.
    """

    def __init__(self, ports: dict[int, int]) -> None:
        self._clients = {node_id: RawClient(port) for node_id, port in ports.items()}

    def close(self) -> None:
        for client in self._clients.values():
            client.socket.close()

    create_topic = RawClient.create_topic
    list_offset = RawClient.list_offset
    fetch = RawClient.fetch

    def call(self, request: Any, key: ApiKey, version: int) -> Any:
        return self._clients[self._node_for(request)].call(request, key, version)

    def _node_for(self, request: Any) -> int:
        if isinstance(request, CreateTopicsRequest):
            return self._metadata(None).controller_id
        if isinstance(request, OffsetFetchRequest):
            asked = FindCoordinatorRequest(key=request.group_id)
            return int(self._any.call(asked, ApiKey.FIND_COORDINATOR, 1).node_id)
        if isinstance(request, ProduceRequest):
            return self._leader(request.topic_data[0].name, request.topic_data[0].partition_data[0].index)
        (topic,) = request.topics
        name = getattr(topic, "topic", None) or topic.name
        asked = topic.partitions[0]
        return self._leader(name, asked.partition if hasattr(asked, "partition") else asked.partition_index)

    @property
    def _any(self) -> RawClient:
        return next(iter(self._clients.values()))

    def _metadata(self, topic: str | None) -> Any:
        topics = [] if topic is None else [MetadataRequest.MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return self._any.call(request, ApiKey.METADATA, METADATA_VERSION)

    def _leader(self, topic: str, index: int) -> int:
        """Return the leader of a partition, after waiting until the leader has the log."""
        found = [-1]

        def serves() -> bool:
            (described,) = self._metadata(topic).topics
            found[0] = next((each.leader_id for each in described.partitions if each.partition_index == index), -1)
            return found[0] >= 0 and self._has_log(found[0], topic, index)

        eventually(serves, f"{topic}-{index} is led")
        return found[0]

    def _has_log(self, node_id: int, topic: str, index: int) -> bool:
        try:
            self._clients[node_id].list_offset(topic, index)
        except AssertionError:
            return False
        return True


class ClusterStage(Stage):
    """Three brokers on ZooKeeper, a proxy for each, and the socket at which the processes ask how to continue at their
    fail points. `zookeeper` is the address and path for the cluster's metadata.
    """

    run_seconds = 90.0

    def __init__(self, directory: Path, zookeeper: str) -> None:
        super().__init__(directory)
        self.proxies = {node_id: FrameProxy() for node_id in NODES}
        self.brokers = {
            node_id: BrokerProcess(
                directory / f"data{node_id}",
                {**CLUSTER_SETTINGS, "node.id": str(node_id), "zookeeper.connect": zookeeper},
            )
            for node_id in NODES
        }
        self._asked_by = {
            node_id: Questions(
                directory / f"questions{node_id}.sock",
                lambda hit, broker=broker: self.decide(hit, broker),  # type: ignore[misc]
            )
            for node_id, broker in self.brokers.items()
        }
        self._read_of = dict.fromkeys(NODES, 0)

    @property
    def struck(self) -> BrokerProcess:
        return self.brokers[NODES[0]]

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies.values())

    async def __aenter__(self) -> Self:
        await self.questions.start()
        for node_id, broker in self.brokers.items():
            await self._asked_by[node_id].start()
            await self.proxies[node_id].start()
            broker.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{self.proxies[node_id].port}"
        await self.start_broker()
        for node_id, broker in self.brokers.items():
            self.proxies[node_id].forward_to(broker.port)
        return self

    async def start_broker(self) -> None:
        for node_id, broker in self.brokers.items():
            if not broker.is_running:
                await asyncio.to_thread(broker.start, self._asked_by[node_id].specification(FAIL_POINTS))

    def cut(self) -> None:
        """Cut all connections, also those between brokers."""
        for proxy in self.proxies.values():
            proxy.cut()

    def last_words(self) -> list[str]:
        logs = [broker.log for broker in self.brokers.values()]
        return [line for log in [*logs, self.log] for line in log.read_text().splitlines()[-20:]]

    def complaints(self) -> list[str]:
        found = []
        for node_id, broker in self.brokers.items():
            lines, self._read_of[node_id] = self._new_lines(broker, self._read_of[node_id])
            found += [f"broker {node_id}: {line}" for line in lines]
        return found

    async def with_client(self, work: Callable[[Any], object]) -> None:
        def call() -> None:
            client = RoutedClient({node_id: broker.port for node_id, broker in self.brokers.items()})
            try:
                work(client)
            finally:
                client.close()

        await asyncio.to_thread(call)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reset()
        for broker in self.brokers.values():
            if broker.is_running:
                await asyncio.to_thread(broker.stop)
        for node_id in NODES:
            await self.proxies[node_id].close()
            await self._asked_by[node_id].close()
        await self.questions.close()
