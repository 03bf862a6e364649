"""Several broker processes that form a cluster, and connections to each of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from broker_process import BrokerProcess
from foreign_clients import eventually
from raw_client import RawClient
from raw_transactions import RawTransactions

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from oncelog_protocol.messages.metadata import MetadataRequest

ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
}
METADATA_VERSION = 9


class BrokerCluster:
    """A cluster of broker processes with the ids 1 to `size`. A context manager that starts and stops the brokers."""

    def __init__(self, directory: Path, zookeeper: str, *, size: int, settings: dict[str, str] | None = None) -> None:
        self.brokers = {
            node_id: BrokerProcess(
                directory / f"broker{node_id}",
                {**ONE_REPLICA, "node.id": str(node_id), "zookeeper.connect": zookeeper, **(settings or {})},
            )
            for node_id in range(1, size + 1)
        }
        self._clients: dict[int, RawClient] = {}

    def __enter__(self) -> Self:
        try:
            for broker in self.brokers.values():
                broker.start()
            everywhere = set(self.brokers)
            for node_id in self.brokers:
                eventually(lambda: self._known_to(node_id) == everywhere, "all brokers know of each other")  # noqa: B023
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the brokers without an orderly stop, in which a leader would wait for followers that were stopped before
        it.
        """
        for client in self._clients.values():
            client.socket.close()
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()

    def check_logs(self) -> None:
        for broker in self.brokers.values():
            assert "Traceback" not in broker.log.read_text()

    @property
    def addresses(self) -> str:
        """Bootstrap servers."""
        return ",".join(broker.address for broker in self.brokers.values())

    def client(self, node_id: int) -> RawClient:
        """Return a connection to a broker; the connection lasts until that broker is killed."""
        if node_id not in self._clients:
            self._clients[node_id] = RawClient(self.brokers[node_id].port)
        return self._clients[node_id]

    def kill(self, node_id: int) -> None:
        """kill -9."""
        self.brokers[node_id].kill()
        if node_id in self._clients:
            self._clients.pop(node_id).socket.close()

    def restart(self, node_id: int) -> None:
        """Restart a broker that was killed; return when it serves requests."""
        self.brokers[node_id].start()

    @contextmanager
    def paused(self, node_id: int) -> Iterator[None]:
        """Pause the broker with SIGSTOP, and let it continue with SIGCONT at the end of the block."""
        os.kill(self.brokers[node_id].pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.brokers[node_id].pid, signal.SIGCONT)

    def _metadata(self, node_id: int, topic: str | None = None) -> Any:
        topics = [] if topic is None else [MetadataRequest.MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return self.client(node_id).call(request, ApiKey.METADATA, METADATA_VERSION)

    def _known_to(self, node_id: int) -> set[int]:
        return {broker.node_id for broker in self._metadata(node_id).brokers}

    def create_topic(self, name: str, partitions: int) -> dict[int, int]:
        """Create a topic with one replica for each partition; return a dict from partition to leader when every broker
        knows the same leaders.
        """
        asked = next(iter(self.brokers))
        controller = self._metadata(asked).controller_id
        self.client(controller).create_topic(name, partitions)
        eventually(lambda: len(set(map(str, self._leaders(name)))) == 1, "all know the leaders")
        leaders = self._leaders(name)[0]
        assert len(leaders) == partitions
        for index, leader in leaders.items():
            eventually(lambda: self._is_served(leader, name, index), "the leader has its log")  # noqa: B023
        return leaders

    def _is_served(self, leader: int, topic: str, index: int) -> bool:
        try:
            self.client(leader).list_offset(topic, index)
        except AssertionError:
            return False
        return True

    def delete_topic(self, name: str) -> None:
        """Delete the topic through the controller; return when no broker shows it any more."""
        controller = self._metadata(next(iter(self.brokers))).controller_id
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
        (answer,) = self.client(controller).call(request, ApiKey.DELETE_TOPICS, 4).responses
        assert answer.error_code == 0, answer

    def _leaders(self, topic: str) -> list[dict[int, int]]:
        """Return for each broker the partition leaders that it knows."""
        found = []
        for node_id in self.brokers:
            (described,) = self._metadata(node_id, topic).topics
            found.append({each.partition_index: each.leader_id for each in described.partitions if each.leader_id >= 0})
        return found

    def coordinator_of(self, key: str, kind: CoordinatorType = CoordinatorType.TRANSACTION) -> int:
        """Return the id of the broker that coordinates a transactional id or a group."""
        request = FindCoordinatorRequest(key=key, key_type=kind)
        found: list[Any] = []

        def ask() -> bool:
            found[:] = [self.client(min(self.brokers)).call(request, ApiKey.FIND_COORDINATOR, 2)]
            return bool(found[0].error_code == 0)

        eventually(ask, "there is a coordinator")
        return int(found[0].node_id)

    def key_coordinated_by(self, node_id: int, prefix: str, kind: CoordinatorType = CoordinatorType.TRANSACTION) -> str:
        """Return a transactional id, or the name of a group, that this broker coordinates."""
        for number in range(1000):
            if self.coordinator_of(f"{prefix}-{number}", kind) == node_id:
                return f"{prefix}-{number}"
        raise AssertionError(f"broker {node_id} coordinates nothing")


class ClusterTransactions(RawTransactions):
    """Sends the requests of one transactional id, each to the right broker. `leaders` are the leaders of the topic's
    partitions.
    """

    def __init__(self, cluster: BrokerCluster, transactional_id: str, *, is_v2: bool) -> None:
        self.cluster = cluster
        self.leaders: dict[tuple[str, int], int] = {}
        self.coordinator = cluster.coordinator_of(transactional_id)
        super().__init__(cluster.client(self.coordinator), transactional_id, is_v2=is_v2)

    def know(self, topic: str, leaders: dict[int, int]) -> None:
        self.leaders.update({(topic, index): leader for index, leader in leaders.items()})

    def produce(self, topic: str, partition: int = 0, **options: Any) -> int:
        self.client = self.cluster.client(self.leaders[topic, partition])
        try:
            return super().produce(topic, partition, **options)
        finally:
            self.client = self.cluster.client(self.coordinator)

    def reconnect(self) -> None:
        """Connect again to the coordinator after it was killed and restarted."""
        self.client = self.cluster.client(self.coordinator)
