"""Observe leaders and epochs, committed offsets, and the resources of broker processes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import NamedTuple

import psutil
from raw_client import LIST_OFFSETS_VERSION
from raw_transactions import committed_offset
from replicated_cluster import METADATA_VERSION, ReplicatedCluster

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History
from soak.progress import Progress

CALL_SECONDS = 2.0
"""Limit in seconds for a request; if a broker does not respond in this time, the next request is sent at the next
observation.
"""


class Observer(ABC):
    """Makes an observation every `seconds`, in a separate thread."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._seconds = seconds
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(60)

    def _work(self) -> None:
        try:
            while not self._is_over.wait(self._seconds):
                self.look()
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def look(self) -> None: ...


class LeaderObserver(Observer):
    """Observes one broker: whether it leads the partition, and which leader its metadata names."""

    def __init__(self, cluster: ReplicatedCluster, node_id: int, places: list[Place], history: History) -> None:
        super().__init__(f"observer of the leaders by broker {node_id}", 0.3)
        self._cluster = cluster
        self._node_id = node_id
        self._places = places
        self._history = history

    def look(self) -> None:
        try:
            self._look()
        except OSError:
            pass

    def _look(self) -> None:
        topics = sorted({place.topic for place in self._places})
        asked = MetadataRequest.MetadataRequestTopic
        metadata = MetadataRequest(topics=[asked(name=name) for name in topics], allow_auto_topic_creation=False)
        with self._cluster.client(self._node_id, CALL_SECONDS) as client:
            for topic in client.call(metadata, ApiKey.METADATA, METADATA_VERSION).topics:
                for part in topic.partitions:
                    if part.leader_id >= 0:
                        self._note(Place(topic.name, part.partition_index), part.leader_epoch, part.leader_id)
            for topic in client.call(_latest(self._places), ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION).topics:
                for part in topic.partitions:
                    if part.error_code == ErrorCode.NONE:
                        self._note(Place(topic.name, part.partition_index), part.leader_epoch, self._node_id)

    def _note(self, place: Place, epoch: int, leader: int) -> None:
        self._history.led(place, epoch, leader)


def _latest(places: list[Place]) -> ListOffsetsRequest:
    """Return a request to which only a leader responds, and whose response contains the epoch in which it leads."""
    asked = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            asked(
                name=place.topic,
                partitions=[asked.ListOffsetsPartition(partition_index=place.index, timestamp=LATEST_TIMESTAMP)],
            )
            for place in places
        ],
    )


class OffsetObserver(Observer):
    """Requests the committed offsets of any group, repeatedly."""

    def __init__(self, cluster: ReplicatedCluster, groups: dict[str, list[Place]], history: History) -> None:
        super().__init__("observer of the committed offsets", 1.0)
        self._cluster = cluster
        self._groups = groups
        self._history = history

    def look(self) -> None:
        for group in self._groups:
            try:
                self.committed(group)
            except (OSError, IndexError):  # no broker is running at the moment
                pass

    def committed(self, group: str) -> dict[Place, int]:
        """Return the committed offsets of those partitions whose coordinator responds at this moment. Raises
        OSError.
        """
        request = FindCoordinatorRequest(key=group, key_type=CoordinatorType.GROUP)
        found = {}
        with self._cluster.client(self._cluster.up[0], CALL_SECONDS) as client:
            answer = client.call(request, ApiKey.FIND_COORDINATOR, 2)
        if answer.error_code:
            return {}
        with self._cluster.client(answer.node_id, CALL_SECONDS) as client:
            for place in self._groups[group]:
                asked = self._history.now()
                code, offset = committed_offset(client, group, place.topic, stable=True, partition=place.index)
                if code == ErrorCode.NONE:
                    self._history.offset_read(group, place, offset, asked=asked)
                    found[place] = offset
        return found


class Use(NamedTuple):
    at: float
    broker: int
    pid: int
    descriptors: int
    megabytes: int
    """Resident memory of a process in MB."""


class UseObserver(Observer):
    def __init__(self, cluster: ReplicatedCluster, progress: Progress) -> None:
        super().__init__("observer of the processes", 2.0)
        self._cluster = cluster
        self._progress = progress
        self._own = psutil.Process()
        self.uses: list[Use] = []
        """Measurements of the descriptors and the memory of each process; broker 0 stands for the process of the
        clients.
        """

    def look(self) -> None:
        self._note(0, self._own)
        for node_id, broker in self._cluster.brokers.items():
            if broker.is_running:
                try:
                    self._note(node_id, psutil.Process(broker.pid))
                except psutil.NoSuchProcess:
                    pass

    def _note(self, node_id: int, process: psutil.Process) -> None:
        use = Use(self._progress.now, node_id, process.pid, process.num_fds(), process.memory_info().rss // 1_000_000)
        self.uses.append(use)
