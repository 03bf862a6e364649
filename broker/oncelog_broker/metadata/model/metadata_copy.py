"""Writes and reads the copy of the cluster's metadata that each broker keeps in its first data directory.

The copy is read only when the metadata store was lost and a cluster is founded again from the data directories of its
brokers (`restoring.py`). Without the copy, settings, users, ACLs, quotas, and the assignment of partitions to brokers
would be lost.

- `metadata-copy.jsonl` is written a second after a change, at most every ten seconds, and at a clean shutdown.
- `metadata-copy.previous.jsonl` is the last copy of the previous process.

The first line has the cluster id and the time of writing; the last line has the number of nodes. A copy without that
last line was cut short, and is not used. Each line between the first line and the last line has the path and the data
of one node. SCRAM keys of users are among the data, so only the broker's user may read the file.

The copy omits registrations, the controller and incarnations, which belong to sessions, and producer ids, which are in
the logs. The states of partitions may be seconds old: leader and ISR are hints, never proof.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Iterator, Mapping
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.acl_payload import encode_acls
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import ClusterImage, Topic
from oncelog_broker.metadata.model.payloads import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_config,
    encode_partition_state,
    topic_encoded_in_steps,
)
from oncelog_broker.runtime.disk import Disk
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.steps import LightJob, Steps, run_steps
from oncelog_protocol.light_classes import NamedTuple, dataclass
from oncelog_protocol.uuids import ZERO_UUID

FILE: Final = "metadata-copy.jsonl"
PREVIOUS_FILE: Final = "metadata-copy.previous.jsonl"
FORMAT_VERSION: Final = 1
SETTLE_SECONDS: Final = 1.0
"""The number of seconds between a change and the write of a copy. The delay lets one copy include several changes,
because changes often come in groups.
"""
REST_SECONDS: Final = 9.0
"""Seconds between two attempts to write a copy."""
STATES_PER_STEP: Final = 200
COPIED: Final = (
    "topics",
    "topic_configs",
    "broker_configs",
    "user_configs",
    "group_configs",
    "client_metrics",
    "acls",
    "quotas",
)
"""The parts of a cluster image that the copy contains."""

_log = logging.getLogger(__name__)


class Node(NamedTuple):
    """A persistent node of the store."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class MetadataCopy:
    """A copy that was read from its file. `nodes` maps path to data, without parents that have no data. `written_ms` is
    the wall clock time of writing.
    """

    cluster_id: str
    written_ms: int
    nodes: Mapping[str, bytes]


def nodes_of(image: ClusterImage) -> Steps[list[Node]]:
    """Return the persistent nodes from which this cluster image was read, in slices of work, because there may be
    thousands of partitions.
    """
    nodes: list[Node] = []
    for topic in image.topics.values():
        yield from _nodes_of_topic(topic, nodes)
    for name, settings in image.topic_configs.items():
        nodes.append(Node(paths.topic_config(name), encode_config(settings)))
        yield None
    nodes += [Node(paths.broker_config(id_), encode_config(found)) for id_, found in image.broker_configs.items()]
    nodes += [Node(paths.group_config(group), encode_config(found)) for group, found in image.group_configs.items()]
    nodes += [
        Node(paths.client_metrics_config(name), encode_config(found)) for name, found in image.client_metrics.items()
    ]
    for path, settings in _entity_settings(image).items():
        nodes.append(Node(path, encode_config(settings)))
        yield None
    for pattern, entries in image.acls.items():
        if entries:  # skip an empty pattern, because its node could not be read
            nodes.append(Node(paths.acls(pattern), encode_acls(entries)))
        yield None
    return nodes


def _nodes_of_topic(topic: Topic, nodes: list[Node]) -> Steps[None]:
    assignment = {
        index: ReplicaAssignment(state.replicas, state.adding_replicas, state.removing_replicas)
        for index, state in topic.partitions.items()
    }
    topic_id = None if topic.topic_id == ZERO_UUID else topic.topic_id
    data = yield from topic_encoded_in_steps(TopicAssignment(topic_id, assignment))
    nodes.append(Node(paths.topic(topic.name), data))
    for index, state in topic.partitions.items():
        if state.leader_epoch >= 0:
            written = PartitionState(state.leader, state.leader_epoch, state.isr, controller_epoch=0)
            nodes.append(Node(paths.partition_state(topic.name, index), encode_partition_state(written)))
        if index % STATES_PER_STEP == 0:
            yield None


def _entity_settings(image: ClusterImage) -> dict[str, dict[str, str]]:
    """Return the settings of users, client ids and addresses, by the path of their node. A user's node has both
    credentials and quotas.
    """
    settings = {paths.user_config(user): dict(found) for user, found in image.user_configs.items()}
    for entity, values in image.quotas.items():
        of_entity = settings.setdefault(paths.quotas(entity), {})
        for key, value in values.items():
            of_entity.setdefault(key.value, str(value))
    return settings


def encode_copy(cluster_id: str, written_ms: int, nodes: list[Node]) -> Steps[bytes]:
    """Return the content of the file with the copy of the metadata."""
    lines = [_line({"version": FORMAT_VERSION, "cluster_id": cluster_id, "written_ms": written_ms})]
    for number, node in enumerate(nodes):
        lines.append(f'{{"path":{quoted(node.path)},"data":{quoted(node.data.decode())}}}\n'.encode())
        if number % STATES_PER_STEP == 0:
            yield None
    lines.append(_line({"nodes": len(nodes)}))
    return b"".join(lines)


def _line(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def read_copy(disk: Disk, directory: str) -> MetadataCopy | None:
    """Read the newest complete copy in a data directory. The copy is read from `metadata-copy.jsonl` or, if that file
    is not complete, from `metadata-copy.previous.jsonl`. Returns None if neither file is complete. A damaged copy is
    only logged as a warning, so that the broker can start.
    """
    for name in (FILE, PREVIOUS_FILE):
        path = os.path.join(directory, name)
        try:
            if disk.exists(path):
                return _parsed(disk.read_file(path))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            _log.warning("%s is not a complete copy of the cluster's metadata and is not used: %s", path, error)
    return None


def _parsed(data: bytes) -> MetadataCopy:
    """Parse the content of a copy. Raises ValueError, KeyError, TypeError, RecursionError if the copy is damaged."""
    lines = data.decode().splitlines()  # the JSON is ASCII, so "\n" is the only line break
    if len(lines) < 2:
        raise ValueError("the file is truncated")
    header, end = json.loads(lines[0]), json.loads(lines[-1])
    if header["version"] != FORMAT_VERSION:
        raise ValueError(f"version {header['version']!r:.40}, only {FORMAT_VERSION} is supported")
    nodes = dict(_parsed_nodes(lines[1:-1]))
    if end["nodes"] != len(nodes):
        raise ValueError("the file is truncated")
    return MetadataCopy(str(header["cluster_id"]), int(header["written_ms"]), nodes)


def _parsed_nodes(lines: list[str]) -> Iterator[tuple[str, bytes]]:
    for line in lines:
        document = json.loads(line)
        path, data = document["path"], document["data"]
        if not isinstance(path, str) or not isinstance(data, str):
            raise TypeError(f"not a node: {line:.80}")
        yield path, data.encode()


class MetadataCopier:
    """Writes one broker's copy of the metadata each time the cluster image has changed."""

    def __init__(self, metadata: MetadataCache, directory: str, host: Host) -> None:
        self._metadata = metadata
        self._directory = directory
        self._disk = host.disk
        self._clock = host.clock
        self._tasks = host.tasks
        self._slices = host.slices
        self._changed = asyncio.Event()
        self._is_first = True
        """Whether the file still has the copy that the previous process wrote."""
        self._has_failed = False

    def start(self) -> None:
        """Write a copy now and after each change, until the broker's tasks are cancelled."""
        self._changed.set()
        self._metadata.subscribe(self._on_image)
        self._tasks.supervise("copy of the metadata", self._follow)

    async def finish(self) -> None:
        """Write a last copy if something has changed since the previous copy was written. Call this when the broker
        stops, after its tasks have ended.
        """
        if self._changed.is_set():
            await self._written(asyncio.to_thread(run_steps, self._steps(self._metadata.image)))

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        if any(getattr(old, part) is not getattr(new, part) for part in COPIED):
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            await self._write()
            await asyncio.sleep(REST_SECONDS)

    async def _write(self) -> None:
        self._changed.clear()
        answer = self._slices.run(self._steps(self._metadata.image))
        if answer is not None:
            await self._written(answer)

    async def _written(self, answer: Awaitable[None]) -> None:
        """Wait for an attempt to write a copy. If the attempt fails, another attempt follows after REST_SECONDS; only
        the first of several failures is logged.
        """
        try:
            await answer
        except OSError as error:
            self._changed.set()
            if not self._has_failed:
                _log.warning("the copy of the cluster's metadata could not be written: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False

    def _steps(self, image: ClusterImage) -> Steps[None]:
        nodes = yield from nodes_of(image)
        data = yield from encode_copy(image.cluster_id, self._clock.now_ms(), nodes)
        yield LightJob(partial(self._replace, data))

    def _replace(self, data: bytes) -> None:
        """Replace the file so that a complete copy exists at every moment, even if a write fails or the process is
        killed. Raises OSError.
        """
        path = os.path.join(self._directory, FILE)
        if self._is_first and self._disk.exists(path):
            before = self._disk.read_file(path)
            self._disk.replace_file(os.path.join(self._directory, PREVIOUS_FILE), before, private=True)
        self._is_first = False
        self._disk.replace_file(path, data, private=True)
