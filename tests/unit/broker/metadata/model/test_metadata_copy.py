"""The copy of the metadata restores the same cluster, and an incomplete copy is rejected."""

import asyncio
import json
import os
import stat
from dataclasses import replace

import pytest
from tests.support.hosts import host_of
from tests.support.shared_tree import SharedTree

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model import metadata_copy
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.metadata.model.metadata_copy import (
    FILE,
    PREVIOUS_FILE,
    MetadataCopier,
    encode_copy,
    nodes_of,
    read_copy,
)
from oncelog_broker.metadata.model.payloads import encode_cluster_id, encode_config
from oncelog_broker.metadata.model.reader import read_image
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.acls import AclEntry, AclOperation, AclPermission, PatternType, ResourcePattern, ResourceType
from oncelog_protocol.quotas import DEFAULT, QuotaEntity, QuotaKey

ODD_NAMES = ("anna", "O=Ünïcode, CN=a/b", ".", "\u2028line")


def whole_image() -> ClusterImage:
    partitions = {
        0: PartitionState((1, 2, 3), (1, 3), 1, 7, 4, (3,), (2,), 99),
        1: PartitionState((2, 3)),
    }
    image = ClusterImage("cluster").with_topics([Topic("orders", b"o" * 16, partitions), Topic("old", bytes(16), {})])
    image = image.with_topic_configs({"orders": {"retention.ms": "-1", "cleanup.policy": "compact"}})
    image = image.with_broker_configs({None: {"log.cleaner.threads": "1"}, 2: {"log.cleaner.threads": "2"}})
    image = image.with_user_configs(
        {name: {"SCRAM-SHA-256": f"salt={name}", "producer_byte_rate": "10.0"} for name in ODD_NAMES}
        | {None: {"request_percentage": "5.5"}}
    )
    image = image.with_quotas(
        {
            QuotaEntity("anna", DEFAULT): {QuotaKey.CONSUMER_BYTE_RATE: 20.0},
            QuotaEntity(client_id="billing"): {QuotaKey.PRODUCER_BYTE_RATE: 30.5},
            QuotaEntity(ip="10.0.0.1"): {QuotaKey.CONNECTION_CREATION_RATE: 4.0},
        }
    )
    image = image.with_client_metrics({name: {"metrics": "*", "match": f"client_id={name}"} for name in ODD_NAMES})
    entry = AclEntry("User:anna", "*", AclOperation.READ, AclPermission.ALLOW)
    return image.with_acls(
        {
            ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL): frozenset({entry}),
            ResourcePattern(ResourceType.GROUP, "bill", PatternType.PREFIXED): frozenset({entry}),
            ResourcePattern(ResourceType.GROUP, "unreadable", PatternType.LITERAL): frozenset(),
        }
    )


def without_versions(image: ClusterImage) -> ClusterImage:
    """Return the image without versions and zxids, which belong to the original store, and without unreadable ACLs,
    which a copy does not contain.
    """
    topics = [
        replace(topic, partitions={i: replace(p, partition_epoch=0, written=0) for i, p in topic.partitions.items()})
        for topic in image.topics.values()
    ]
    acls = {pattern: entries for pattern, entries in image.acls.items() if entries}
    return replace(image.with_topics(topics), acls=acls)


async def test_the_nodes_of_an_image_make_that_image_again() -> None:
    image = whole_image()
    store = SharedTree().connect()
    await store.create(paths.CLUSTER_ID, encode_cluster_id("cluster"), make_parents=True)
    for node in run_steps(nodes_of(image)):
        await store.create(node.path, node.data, make_parents=True)
    assert without_versions(await read_image(store)) == without_versions(image)


def copied(disk, directory, image: ClusterImage) -> bytes:
    data = run_steps(encode_copy(image.cluster_id, 17, run_steps(nodes_of(image))))
    disk.replace_file(os.path.join(directory, FILE), data)
    return data


def test_a_written_metadata_copy_is_read_back(tmp_path) -> None:
    copied(RealDisk(), str(tmp_path), whole_image())
    found = read_copy(RealDisk(), str(tmp_path))
    assert found is not None
    assert (found.cluster_id, found.written_ms) == ("cluster", 17)
    assert found.nodes == dict(run_steps(nodes_of(whole_image())))


def test_a_missing_metadata_copy_is_none(tmp_path) -> None:
    assert read_copy(RealDisk(), str(tmp_path)) is None


def test_a_copy_that_was_cut_anywhere_is_not_read(tmp_path, caplog) -> None:
    data = copied(RealDisk(), str(tmp_path), whole_image())
    for size in range(0, len(data) - 1, 7):
        (tmp_path / FILE).write_bytes(data[:size])
        assert read_copy(RealDisk(), str(tmp_path)) is None, size
    assert "not a complete copy" in caplog.text


@pytest.mark.parametrize(
    ("line", "by"),
    [
        (0, {"version": 2, "cluster_id": "c", "written_ms": 1}),
        (0, {"version": 1}),
        (1, {"path": 5, "data": ""}),
        (1, ["path"]),
        (-1, {"nodes": 1}),
    ],
)
def test_nonsense_is_not_read(tmp_path, line, by) -> None:
    lines = copied(RealDisk(), str(tmp_path), whole_image()).splitlines()
    lines[line] = json.dumps(by).encode()
    (tmp_path / FILE).write_bytes(b"\n".join(lines) + b"\n")
    assert read_copy(RealDisk(), str(tmp_path)) is None


class WatchedDisk(RealDisk):
    """Notifies the event loop of each attempt to write a copy, and refuses the write while `is_full`."""

    def __init__(self) -> None:
        self.is_full = False
        self.tries: asyncio.Queue[bool] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    def replace_file(self, path, data, *, is_durable=True, private=False):
        try:
            if self.is_full:
                raise OSError(28, "No space left on device", path)
            super().replace_file(path, data, is_durable=is_durable, private=private)
        finally:
            self._loop.call_soon_threadsafe(self.tries.put_nowait, not self.is_full)


class Copying:
    """A copier that follows a store, with its tasks, and without a pause between two copies."""

    def __init__(self, directory, monkeypatch) -> None:
        monkeypatch.setattr(metadata_copy, "SETTLE_SECONDS", 0.0)
        monkeypatch.setattr(metadata_copy, "REST_SECONDS", 0.0)
        self.directory = str(directory)
        self.disk = WatchedDisk()
        self.store = SharedTree().connect()
        self.tasks = Tasks()

    async def begin(self) -> MetadataCopier:
        clock = ManualClock()
        await self.store.create(paths.CLUSTER_ID, encode_cluster_id("cluster"), make_parents=True)
        self.metadata = await MetadataCache.start(self.store)
        copier = MetadataCopier(self.metadata, self.directory, host_of(clock, self.tasks, disk=self.disk))
        copier.start()
        return copier

    async def set(self, topic: str, settings: dict[str, str]) -> None:
        await self.store.create(paths.topic_config(topic), encode_config(settings), make_parents=True)
        await self.metadata.wait_for(lambda image: topic in image.topic_configs)

    async def until_copied(self, topic: str) -> None:
        while paths.topic_config(topic) not in self.read():
            assert await self.disk.tries.get()

    async def end(self) -> None:
        await self.tasks.close()
        await self.metadata.close()

    def read(self) -> dict[str, bytes]:
        found = read_copy(RealDisk(), self.directory)
        return {} if found is None else dict(found.nodes)


async def test_the_copy_follows_the_image(tmp_path, monkeypatch) -> None:
    copying = Copying(tmp_path, monkeypatch)
    await copying.begin()
    await copying.set("orders", {"retention.ms": "1"})
    await copying.until_copied("orders")
    await copying.set("bills", {"retention.ms": "2"})
    await copying.until_copied("bills")
    assert stat.S_IMODE(os.stat(tmp_path / FILE).st_mode) == 0o600
    await copying.end()


async def test_a_stop_writes_the_last_change_and_a_start_keeps_the_copy_before(tmp_path, monkeypatch) -> None:
    (tmp_path / FILE).write_bytes(b"of the process before")
    copying = Copying(tmp_path, monkeypatch)
    copier = await copying.begin()
    await copying.tasks.close()
    await copying.set("orders", {"retention.ms": "1"})
    await copier.finish()
    assert list(copying.read()) == [paths.topic_config("orders")]
    assert (tmp_path / PREVIOUS_FILE).read_bytes() == b"of the process before"
    await copying.end()


async def test_a_copy_that_could_not_be_written_is_written_later(tmp_path, monkeypatch, caplog) -> None:
    copying = Copying(tmp_path, monkeypatch)
    copying.disk.is_full = True
    await copying.begin()
    for _ in range(3):
        assert not await copying.disk.tries.get()
    assert caplog.text.count("could not be written") == 1
    copying.disk.is_full = False
    while not await copying.disk.tries.get():
        pass
    assert (tmp_path / FILE).exists()
    await copying.end()
