"""Three broker processes with three replicas of each partition; tests kill, pause and restart the brokers, and observe
them from outside.

A live broker reports the state of the cluster in Metadata responses; every `until_...` method waits for a certain
state, with a generous limit.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from broker_process import BrokerProcess
from foreign_clients import eventually
from kazoo.client import KazooClient
from raw_client import RawClient
from secured_cluster import SECRETS, settings_of

from oncelog_broker.local_cluster.ports import LOOPBACK, OwnPort, own_ports
from oncelog_broker.metadata import paths
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from oncelog_protocol.messages.metadata import MetadataRequest

T = TypeVar("T")

SESSION_MS = 2000
"""Session timeout of a broker in milliseconds. A broker that is delayed for longer than this loses its leaderships; the
tests tolerate that.
"""
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "replica.fetch.backoff.ms": "200",
    "auto.create.topics.enable": "false",
    "listener.security.protocol.map": "PEER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PEER",
}
BROKERS = (1, 2, 3)
CALL_SECONDS = 10.0
"""Limit in seconds for one request of an observer, since a paused broker does not respond."""
WAIT_SECONDS = 90.0
METADATA_VERSION = 9
CREATED = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
NOT_YET = {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REPLICATION_FACTOR}
"""Errors after which the creation of a topic is repeated; the last error occurs if a broker that waited for a processor
has just lost its registration.
"""


class Part(NamedTuple):
    """Leader, leader epoch and ISR of a partition, as one broker knows them."""

    leader: int
    """-1: none."""
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ReplicatedCluster:
    """A context manager that starts and stops the cluster."""

    def __init__(
        self, directory: Path, zookeeper: str, settings: dict[str, str] | None = None, *, fail_points: str = ""
    ) -> None:
        """`fail_points` is the value of ONCELOG_FAIL_POINTS for all brokers."""
        self.zookeeper = zookeeper
        self.fail_points = dict.fromkeys(BROKERS, fail_points)
        self.peer_ports: dict[int, int] = {}
        """Broker id -> the port on which this broker listens for the other brokers."""
        self._own_ports: list[OwnPort] = []
        self.brokers = {node_id: self._broker(directory, node_id, settings or {}) for node_id in BROKERS}
        self.paused_ids: set[int] = set()
        self._store: KazooClient | None = None

    def _broker(self, directory: Path, node_id: int, settings: dict[str, str]) -> BrokerProcess:
        both = own_ports(2)
        self._own_ports += both
        port, peer_port = [each.number for each in both]
        self.peer_ports[node_id] = peer_port
        listeners = f"PEER://{LOOPBACK}:{peer_port},PLAINTEXT://{LOOPBACK}:{port}"
        own = {"node.id": str(node_id), "zookeeper.connect": self.zookeeper, "listeners": listeners}
        secured = settings_of(directory, self.zookeeper)
        broker = BrokerProcess(
            directory / f"broker{node_id}", {**SETTINGS, **own, **secured, **settings}, log_level="info"
        )
        broker.port = port  # clients may connect to this port before the broker starts
        return broker

    def advertise_to_peers(self, ports: dict[int, int]) -> None:
        """Let the other brokers connect through proxies at these ports, so that a proxy can read their requests; call
        this method before the brokers start.
        """
        for node_id, port in ports.items():
            settings = self.brokers[node_id].settings
            settings["listener.security.protocol.map"] = SETTINGS["listener.security.protocol.map"]
            _, _, for_clients = settings["listeners"].rpartition(",")
            settings["advertised.listeners"] = f"PEER://{LOOPBACK}:{port},{for_clients}"

    def __enter__(self) -> Self:
        try:
            self.start(*BROKERS)
            self.until_registered(*BROKERS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the brokers instead of stopping them, because nobody reads what they would still write."""
        if self._store is not None:
            self._store.stop()
            self._store.close()
            self._store = None
        for node_id, broker in self.brokers.items():
            if broker.is_running:
                self.go_on(node_id)
                broker.kill()

    def check_logs(self) -> None:
        for broker in self.brokers.values():
            logged = broker.log.read_text()
            _, found, what = logged.partition("Traceback")
            assert not found, f"broker {broker.settings['node.id']}: {what[:3000]}"
            assert not any(secret in logged for secret in SECRETS)

    # --- actions on brokers

    def start(self, *node_ids: int) -> None:
        """Start these brokers; return when they serve requests."""
        with ThreadPoolExecutor(len(node_ids)) as pool:
            list(pool.map(lambda node_id: self.brokers[node_id].start(self.fail_points[node_id]), node_ids))

    def kill(self, *node_ids: int) -> None:
        """kill -9."""
        for node_id in node_ids:
            self.brokers[node_id].kill()
            self.paused_ids.discard(node_id)

    def note_death(self) -> int:
        """Return the id of the broker that has died at a fail point."""
        node_id = self.until(
            lambda: next((node_id for node_id, broker in self.brokers.items() if not broker.is_running), 0),
            "one has died",
        )
        self.brokers[node_id].wait_killed()
        return node_id

    def pause(self, node_id: int) -> None:
        """SIGSTOP."""
        self.paused_ids.add(node_id)
        os.kill(self.brokers[node_id].pid, signal.SIGSTOP)

    def go_on(self, node_id: int) -> None:
        """SIGCONT."""
        os.kill(self.brokers[node_id].pid, signal.SIGCONT)
        self.paused_ids.discard(node_id)

    @contextmanager
    def paused(self, node_id: int) -> Iterator[None]:
        self.pause(node_id)
        try:
            yield
        finally:
            if node_id in self.paused_ids:
                self.go_on(node_id)

    def mend(self) -> None:
        """Start all stopped brokers; return when they know each other."""
        for node_id in list(self.paused_ids):
            self.go_on(node_id)
        down = [node_id for node_id, broker in self.brokers.items() if not broker.is_running]
        if down:
            self.start(*down)
        self.until_registered(*BROKERS)

    # --- queries

    @property
    def addresses(self) -> str:
        """Bootstrap servers."""
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def up(self) -> list[int]:
        return [
            node_id for node_id, broker in self.brokers.items() if broker.is_running and node_id not in self.paused_ids
        ]

    @property
    def all_are_up(self) -> bool:
        return len(self.up) == len(self.brokers)

    def client(self, node_id: int, timeout: float = CALL_SECONDS) -> RawClient:
        """Return a new connection to this broker, which the caller must close."""
        return RawClient(self.brokers[node_id].port, timeout)

    def ask(self, request: Any, key: ApiKey, version: int, node_id: int | None = None) -> Any:
        """Send a request to this broker, or to any running broker. Raises OSError."""
        with self.client(node_id or self.up[0]) as client:
            return client.call(request, key, version)

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Wait for a true value of `condition` and return it. If a broker dies or does not run yet, its errors count as
        no value.
        """

        def look() -> T | None:
            try:
                return condition()
            except OSError:
                return None

        return eventually(look, what, WAIT_SECONDS)  # type: ignore[return-value]

    def metadata(self, topic: str | None = None, node_id: int | None = None) -> Any:
        topics = [] if topic is None else [MetadataRequest.MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return self.ask(request, ApiKey.METADATA, METADATA_VERSION, node_id)

    def until_registered(self, *node_ids: int) -> None:
        """Wait until each live broker knows exactly these brokers."""
        for asked in self.up:
            self.until(
                lambda: {broker.node_id for broker in self.metadata(node_id=asked).brokers} == set(node_ids),  # noqa: B023
                f"broker {asked} knows of {node_ids}",
            )

    def controller(self) -> int:
        return int(self.until(lambda: max(0, self.metadata().controller_id), "there is a controller"))

    def parts(self, topic: str, node_id: int | None = None) -> dict[int, Part]:
        (described,) = self.metadata(topic, node_id).topics
        return {
            part.partition_index: Part(
                part.leader_id, part.leader_epoch, tuple(part.replica_nodes), tuple(part.isr_nodes)
            )
            for part in described.partitions
        }

    def part(self, topic: str, index: int = 0) -> Part:
        return self.parts(topic)[index]

    def until_led(self, topic: str, index: int = 0, *, but_by: int | None = None, by: int | None = None) -> Part:
        """Wait until a broker leads the partition and serves requests; `by` requires this broker, `but_by` excludes
        this broker, by default any broker will do.
        """

        def look() -> Part | None:
            part = self.parts(topic).get(index)
            if part is None or part.leader < 0 or part.leader == but_by or part.leader not in self.up:
                return None
            if by is not None and part.leader != by:
                return None
            with self.client(part.leader) as client:
                try:
                    client.list_offset(topic, index)
                except AssertionError:
                    return None
            return part

        return self.until(look, f"{topic}-{index} is led, not by {but_by}")  # type: ignore[return-value]

    def topics(self) -> list[str]:
        """Return all topics, including internal topics."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self.until(lambda: self.ask(request, ApiKey.METADATA, METADATA_VERSION), "somebody knows the topics")
        return [topic.name for topic in answer.topics]

    def until_whole(self, *topics: str, node_id: int | None = None) -> None:
        """Wait until all replicas of all partitions are in sync, either according to this broker, or according to the
        metadata in ZooKeeper. The metadata of a broker may be slightly old: a replica that has left the ISR in the
        meantime may lack acknowledged records.
        """
        for topic in topics:
            self.until(
                lambda: self._is_whole(topic, node_id),  # noqa: B023
                f"all replicas of {topic} are in sync" + ("" if node_id is None else f", as broker {node_id} knows"),
            )

    def _is_whole(self, topic: str, node_id: int | None) -> bool:
        parts = self.parts(topic, node_id)
        if not parts or not all(part.leader >= 0 and set(part.isr) == set(part.replicas) for part in parts.values()):
            return False
        return node_id is not None or all(
            self.isr_in_store(topic, index) == set(part.replicas) for index, part in parts.items()
        )

    def isr_in_store(self, topic: str, index: int) -> set[int]:
        """Return the ISR in the partition's state in ZooKeeper, from which all brokers read it."""
        if self._store is None:
            self._store = KazooClient(self.zookeeper, timeout=60)
            self._store.start(WAIT_SECONDS)
        content, _ = self._store.retry(self._store.get, paths.partition_state(topic, index))
        return set(json.loads(content)["isr"])

    def until_isr(self, topic: str, isr: set[int], index: int = 0) -> None:
        self.until(lambda: set(self.part(topic, index).isr) == isr, f"the ISR of {topic}-{index} is {isr}")

    def coordinator(self, key: str, kind: CoordinatorType = CoordinatorType.TRANSACTION, but: int | None = None) -> int:
        """Return the broker that coordinates a transactional id or a group; wait until it is another broker than
        `but`.
        """

        def look() -> int:
            answer = self.ask(FindCoordinatorRequest(key=key, key_type=kind), ApiKey.FIND_COORDINATOR, 2)
            return 0 if answer.error_code or answer.node_id == but else int(answer.node_id)

        return self.until(look, f"{key} has a coordinator")

    # --- topics

    def create_topic(self, name: str, *replicas: Sequence[int], waits: bool = True, **configs: str) -> None:
        """Create a topic; `replicas` lists the brokers of each partition, the preferred leader first, and defaults to
        one partition on any brokers.

        Configuration keys are written with underscores in place of dots. With `waits` the method returns when all
        replicas are in sync.
        """
        wanted = CreateTopicsRequest.CreatableTopic
        topic = wanted(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                wanted.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                for index, ids in enumerate(replicas)
            ],
            configs=[wanted.CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
        )

        def create() -> bool:
            """Create the topic; repeat the request if the controller has just changed, or if the outcome of the request
            is unknown.
            """
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            answer = self.ask(request, ApiKey.CREATE_TOPICS, 5, self.controller()).topics[0]
            assert answer.error_code in CREATED | NOT_YET, answer
            return answer.error_code in CREATED

        self.until(create, f"{name} is created")
        if not waits:
            return
        self.until_whole(name)
        for index in self.parts(name):
            self.until_led(name, index)
