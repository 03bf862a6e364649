"""A cluster whose ZooKeeper data was lost is created again from a broker's copy of the metadata. The tests check the
first partition states, which brokers count as having all records, and creations that are interrupted at any point.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.support.hosts import host_of
from tests.support.shared_tree import SharedTree, TreeSession
from tests.support.storage import make_batch

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.controller.known_broker import KnownBroker
from oncelog_broker.identity.facts import Adoption
from oncelog_broker.identity.note import NOTE_FILE, StoreKind, read_note
from oncelog_broker.identity.refusals import Kind, StartRefused
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership import founding
from oncelog_broker.metadata.membership.founding import UNKNOWN_STORE
from oncelog_broker.metadata.membership.registration import Membership, register_broker
from oncelog_broker.metadata.model.image import NO_LEADER, ClusterImage, Topic
from oncelog_broker.metadata.model.image import PartitionState as ShownState
from oncelog_broker.metadata.model.metadata_copy import FILE, PREVIOUS_FILE, Node, encode_copy
from oncelog_broker.metadata.model.payloads import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_config,
    encode_partition_state,
    encode_topic,
    parse_partition_state,
    parse_store_identity,
    parse_topic,
)
from oncelog_broker.metadata.model.reader import read_image
from oncelog_broker.metadata.stores.store import ConnectionLost
from oncelog_broker.replication.startup_logs import ADOPTED_PRODUCER_IDS, EPOCH_LEAP, KEEP_ALL
from oncelog_broker.replication.stray_logs import set_strays_aside
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.starting.data_start import DataStart

DISK, CLOCK = RealDisk(), ManualClock()
ORDERS, BILLS = b"o" * 16, b"b" * 16


class Servers(SharedTree):
    """Replaces ZooKeeper for a member that opens its store."""

    kind = StoreKind.ZOOKEEPER

    def __init__(self, connect: str) -> None:
        super().__init__()
        self.connect_string = connect

    def place(self, home: str) -> str:
        return self.connect_string


class ZooKeepers:
    """Replaces the ZooKeeper servers: connect string -> store."""

    def __init__(self) -> None:
        self.trees: dict[str, Servers] = {}

    def at(self, connect: str) -> Servers:
        return self.trees.setdefault(connect, Servers(connect))

    def lose(self, connect: str = "zk:1") -> None:
        del self.trees[connect]


ZOOKEEPERS = ZooKeepers()


@pytest.fixture
def zookeepers() -> ZooKeepers:
    ZOOKEEPERS.trees.clear()
    return ZOOKEEPERS


class Member:
    """A broker process, with the parts of `broker.py` that start and stop it."""

    def __init__(self, node_id: int, *directories: Path, accept: str = "", connect: str = "zk:1") -> None:
        settings = {
            "node.id": str(node_id),
            "log.dirs": ",".join(map(str, directories)),
            "zookeeper.connect": connect,
            "start.accept": accept,
        }
        self.node_id = node_id
        self.start = DataStart.lock(BrokerConfig.of(settings), ZOOKEEPERS.at(connect), host_of(CLOCK, disk=DISK))
        self.store: TreeSession
        self.logs: LogManager
        self.membership: Membership

    async def open(self) -> Member:
        try:
            self.store = await self.start.open_store()  # type: ignore[assignment]
        except BaseException:
            self.start.unlock()
            raise
        cluster_id = await self.start.cluster_id(self.store)
        self.logs = self.start.open_logs(
            lambda locked: LogManager.open_locked(
                locked, node_id=self.node_id, cluster_id=cluster_id, disk=DISK, clock=CLOCK
            )
        )
        return self

    async def register(self) -> Member:
        await self.start.note_pending()
        self.membership = await register_broker(
            self.store,
            self.node_id,
            BrokerRegistration((Endpoint("PLAINTEXT", f"h{self.node_id}", 1),)),
            lambda: self.start.found_logs(self.logs, lambda _: {}),
            process=self.start.process,
        )
        await self.start.note_registered(self.membership, self.store.last_zxid)
        return self

    async def begin(self) -> Member:
        return await (await self.open()).register()

    def write(self, topic: str, *epochs: int, partition: int = 0, topic_id: bytes = ORDERS) -> None:
        opening = self.logs.begin_opening([WantedLog(topic, partition, topic_id, LogConfig())])
        opening.run()
        for log in self.logs.finish_opening(opening):
            for epoch in epochs:
                log.append_as_leader(bytearray(make_batch(b"x")), leader_epoch=epoch)  # type: ignore[union-attr]

    async def end(self) -> None:
        self.logs.close()
        await self.store.close()

    async def state(self, topic: str, partition: int = 0) -> PartitionState:
        path = paths.partition_state(topic, partition)
        return parse_partition_state((await self.store.get(path))[0], path)

    async def image(self) -> ClusterImage:
        return await read_image(self.store)


def put_copy(
    directory: Path, cluster_id: str, nodes: Mapping[str, bytes], written_ms: int = 1, name: str = FILE
) -> None:
    data = run_steps(encode_copy(cluster_id, written_ms, [Node(*each) for each in nodes.items()]))
    (directory / name).write_bytes(data)


def topic_nodes(
    name: str, topic_id: bytes, *assignments: ReplicaAssignment, epoch: int = 3, isr: tuple[int, ...] = (2,)
) -> dict[str, bytes]:
    nodes = {paths.topic(name): encode_topic(TopicAssignment(topic_id, dict(enumerate(assignments))))}
    for partition in range(len(assignments)):
        state = encode_partition_state(PartitionState(2, epoch, isr, 0))
        nodes[paths.partition_state(name, partition)] = state
    return nodes


ALL_THREE = ReplicaAssignment((1, 2, 3))


async def once(node_id: int, *directories: Path, epochs: Sequence[int] = ()) -> str:
    """Register the broker, write records, and stop the broker. Returns the id of the cluster."""
    member = await Member(node_id, *directories).begin()
    if epochs:
        member.write("orders", *epochs)
    await member.end()
    return member.membership.cluster_id


async def accepted(node_id: int, *directories: Path) -> str:
    """Start with an empty ZooKeeper; return the `start.accept` value that the refusal names."""
    with pytest.raises(StartRefused) as found:
        await Member(node_id, *directories).open()
    assert [each.kind for each in found.value.refusals] == [Kind.NEW_STORE]
    return found.value.refusals[0].accept


async def refounded(node_id: int, *directories: Path) -> Member:
    return await Member(node_id, *directories, accept=await accepted(node_id, *directories)).begin()


async def test_s70_a_re_founded_cluster_begins_with_the_copied_metadata(tmp_path: Path, zookeepers: ZooKeepers) -> None:
    cluster = await once(1, tmp_path, epochs=(5, 7))
    nodes = {
        **topic_nodes("orders", ORDERS, ALL_THREE),
        **topic_nodes("bills", BILLS, ALL_THREE, ALL_THREE, epoch=40),
        paths.topic_config("orders"): encode_config({"cleanup.policy": "compact"}),
        f"{paths.USER_CONFIGS}/anna/clients/billing": encode_config({"producer_byte_rate": "5.0"}),
        f"{paths.USER_CONFIGS}/anna": encode_config({"SCRAM-SHA-256": "salt=x"}),
    }
    del nodes[paths.partition_state("bills", 1)]  # no broker had led this partition yet
    put_copy(tmp_path, cluster, nodes)
    zookeepers.lose()
    member = await refounded(1, tmp_path)
    assert member.membership.cluster_id == cluster
    assert (member.start.verdict.adoption, member.start.verdict.is_unsure) == (Adoption.COPY, True)
    image = await member.image()
    states = [image.partition("orders", 0), image.partition("bills", 0), image.partition("bills", 1)]
    assert [state.leader_epoch for state in states if state] == [7 + EPOCH_LEAP, 40 + EPOCH_LEAP, EPOCH_LEAP]
    for state in states:
        assert state is not None
        assert (state.leader, state.isr, state.replicas) == (NO_LEADER, (1, 2, 3), (1, 2, 3))
        assert state.written < member.membership.broker_epoch, "or the founder would count as one that was never away"
    assert image.topic_configs == {"orders": {"cleanup.policy": "compact"}}
    assert dict(image.user_configs)["anna"] == {"SCRAM-SHA-256": "salt=x"}
    assert len(image.quotas) == 1
    block = json.loads((await member.store.get(paths.LATEST_PRODUCER_ID_BLOCK))[0])
    assert int(block["block_end"]) >= ADOPTED_PRODUCER_IDS
    await member.end()


async def test_s70_the_newest_copy_of_this_cluster_is_taken(tmp_path: Path, zookeepers: ZooKeepers) -> None:
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    cluster = await once(1, a, b, c)
    put_copy(a, cluster, topic_nodes("older", ORDERS, ALL_THREE), 10)
    put_copy(b, cluster, topic_nodes("newest", ORDERS, ALL_THREE), 20)
    put_copy(c, "another", topic_nodes("foreign", ORDERS, ALL_THREE), 30)
    zookeepers.lose()
    member = await refounded(1, a, b, c)
    assert list((await member.image()).topics) == ["newest"]
    await member.end()


@pytest.mark.parametrize("fault", ["none", "cut", "directory"])
async def test_s70_without_the_last_copy_the_one_before_is_taken(
    tmp_path: Path, zookeepers: ZooKeepers, fault: str
) -> None:
    """A broker was killed, or its disk failed, between two copies; a copy that is not needed prevents no start."""
    cluster = await once(1, tmp_path)
    put_copy(tmp_path, cluster, topic_nodes("orders", ORDERS, ALL_THREE), name=PREVIOUS_FILE)
    if fault == "cut":
        (tmp_path / FILE).write_bytes(b'{"version": 1}\n')
    elif fault == "directory":  # the copy cannot be read
        (tmp_path / FILE).mkdir()
    await once(1, tmp_path)
    zookeepers.lose()
    member = await refounded(1, tmp_path)
    assert list((await member.image()).topics) == ["orders"]
    await member.end()


async def test_s70_logs_of_topics_that_the_copy_does_not_know_are_taken_over(
    tmp_path: Path, zookeepers: ZooKeepers
) -> None:
    """The copy was written before the topics were created. The topics get their settings from the copy if it has them,
    and are adopted only once.
    """
    cluster = await once(1, tmp_path, epochs=(4,))
    settings = encode_config({"cleanup.policy": "compact"})
    unreadable = {paths.topic("orders"): b"nonsense", paths.topic_config("orders"): settings}
    put_copy(tmp_path, cluster, unreadable)
    zookeepers.lose()
    member = await asyncio.wait_for(refounded(1, tmp_path), 10)
    image = await member.image()
    assert image.topics["orders"].topic_id == ORDERS
    state = image.partition("orders", 0)
    assert state is not None
    assert (state.replicas, state.leader_epoch) == ((1,), 4 + EPOCH_LEAP)
    assert image.topic_configs == {"orders": {"cleanup.policy": "compact"}}
    await member.end()
    shutil.rmtree(tmp_path)
    zookeepers.lose()
    cluster = await once(1, tmp_path, epochs=(4,))
    put_copy(tmp_path, cluster, topic_nodes("bills", BILLS, ALL_THREE))
    zookeepers.lose()
    member = await refounded(1, tmp_path)
    assert (await member.image()).topic_configs == {"orders": KEEP_ALL}
    await member.end()


async def test_s70_a_replica_added_by_a_reassignment_is_not_in_sync(tmp_path: Path, zookeepers: ZooKeepers) -> None:
    """If the added replica counted as in sync, the reassignment would complete immediately, and the logs of the removed
    replicas would be deleted.
    """
    cluster = await once(1, tmp_path)
    moving = ReplicaAssignment((3, 4, 1, 2), (3, 4), (1, 2))
    put_copy(tmp_path, cluster, topic_nodes("orders", ORDERS, moving))
    zookeepers.lose()
    member = await refounded(1, tmp_path)
    assert (await member.state("orders")).isr == (1, 2)
    path = paths.topic("orders")
    assert parse_topic((await member.store.get(path))[0], path).partitions[0] == moving
    await member.end()


@pytest.mark.parametrize("how", ["a new disk is first", "no note is left"])
async def test_s70_the_founder_is_never_sure(tmp_path: Path, zookeepers: ZooKeepers, how: str) -> None:
    """The partition states must count as older than the registration of the broker that created the cluster, whatever
    its directories contain about the lost store.
    """
    old, new = tmp_path / "old", tmp_path / "new"
    cluster = await once(1, old, epochs=(1,))
    lost = read_note(DISK, str(old))
    assert lost is not None
    put_copy(old, cluster, topic_nodes("orders", ORDERS, ALL_THREE))
    zookeepers.lose()
    if how == "no note is left":
        (old / NOTE_FILE).unlink()
        (old / ".oncelog-session").write_bytes(b"{}")
    directories = [new, old] if how == "a new disk is first" else [old]
    member = await refounded(1, *directories)
    identity = parse_store_identity((await member.store.get(paths.STORE_ID))[0], "")
    assert identity.replaces == (lost.store_id if how == "a new disk is first" else UNKNOWN_STORE)
    state = (await member.image()).partition("orders", 0)
    assert state is not None
    assert not KnownBroker(1, member.membership.broker_epoch).is_steady_since(state.written)
    await member.end()


@pytest.mark.parametrize("how", ["noted", "no note", "new"])
async def test_s70_a_broker_that_joins_a_re_founded_cluster_is_unsure(
    tmp_path: Path, zookeepers: ZooKeepers, how: str
) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    cluster = await once(1, first)
    await once(2, second, epochs=(1,))
    put_copy(first, cluster, topic_nodes("orders", ORDERS, ALL_THREE))
    zookeepers.lose()
    founder = await refounded(1, first)
    if how == "no note":  # a release before 0.2 wrote the directory
        (second / NOTE_FILE).unlink()
    elif how == "new":
        shutil.rmtree(second)
    member = await Member(2, second).begin()
    assert member.start.verdict.is_unsure
    await member.end()
    assert not (await Member(2, second).begin()).start.verdict.is_unsure, "the store remembers it by now"
    await founder.end()


async def test_s70_one_of_two_simultaneous_founders_founds_the_cluster(tmp_path: Path, zookeepers: ZooKeepers) -> None:
    members = []
    for node_id in (1, 2):
        cluster = await once(node_id, tmp_path / str(node_id))
    for node_id in (1, 2):
        directory = tmp_path / str(node_id)
        put_copy(directory, cluster, topic_nodes("orders" if node_id == 1 else "bills", ORDERS, ALL_THREE))
    zookeepers.lose()
    accepts = [await accepted(node_id, tmp_path / str(node_id)) for node_id in (1, 2)]
    for node_id, accept in zip((1, 2), accepts, strict=True):
        members.append(await Member(node_id, tmp_path / str(node_id), accept=accept).open())

    async def registered(member: Member) -> Member:
        while True:
            try:
                return await member.register()
            except ConnectionLost:  # the other broker founds the cluster
                await asyncio.sleep(0)

    await asyncio.gather(*map(registered, members))
    assert sorted(member.membership.founded for member in members) == [False, True]
    assert len((await members[0].image()).topics) == 1
    assert all(member.start.verdict.is_unsure for member in members)
    for member in members:
        await member.end()


async def test_s70_a_founding_that_is_cut_short_at_any_write_is_finished(
    tmp_path: Path, zookeepers: ZooKeepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(founding, "MAX_CHUNK_BYTES", 500)
    nodes = {**topic_nodes("orders", ORDERS, ALL_THREE), **topic_nodes("bills", BILLS, ALL_THREE)}
    for is_done in (False, True):
        cuts = 0
        while True:
            directory = tmp_path / f"{is_done}{cuts}"
            cluster = await once(1, directory, epochs=(5,))
            put_copy(directory, cluster, nodes)
            zookeepers.lose()
            cut = await Member(1, directory, accept=await accepted(1, directory)).open()
            writes = 0

            def fail(_: object, at: int = cuts, done: bool = is_done, store: TreeSession = cut.store) -> None:
                nonlocal writes
                if writes == at:
                    store.lose_replies, store.lose_requests = (1, 0) if done else (0, 1)
                writes += 1

            cut.store.on_write = fail
            try:
                await cut.register()
            except ConnectionLost:
                was_cut = True
            else:
                was_cut = False
            cut.logs.close()
            cut.store.expire()
            member = await Member(1, directory).begin()
            image = await member.image()
            assert sorted(image.topics) == ["bills", "orders"]
            for topic, epoch in (("orders", 5), ("bills", 3)):
                state = image.partition(topic, 0)
                assert state is not None
                assert (state.leader, state.isr, state.leader_epoch) == (NO_LEADER, (1, 2, 3), epoch + EPOCH_LEAP)
                assert state.written < member.membership.broker_epoch
            assert await member.store.exists(paths.FOUNDING) is None
            await member.end()
            zookeepers.lose()
            cuts += 1
            if not was_cut:
                break
        assert cuts > 3


# --- partitions of other brokers in a store that does not know this broker's logs


async def test_logs_held_by_others_are_kept_until_all_logs_were_examined(
    tmp_path: Path, zookeepers: ZooKeepers
) -> None:
    """A process may have been killed before all logs were examined."""
    cluster = await once(1, tmp_path)
    put_copy(tmp_path, cluster, {})
    zookeepers.lose()
    member = await refounded(1, tmp_path)
    for _ in range(2):
        assert member.start.keeps_left_over
        await member.end()
        member = await Member(1, tmp_path).begin()
    await member.start.strays_are_aside()
    await member.end()
    member = await Member(1, tmp_path).begin()
    assert not member.start.keeps_left_over
    await member.end()


async def test_s77_logs_held_by_others_according_to_an_older_store_are_kept(
    tmp_path: Path, zookeepers: ZooKeepers
) -> None:
    await once(1, tmp_path)
    noted = json.loads((tmp_path / NOTE_FILE).read_text())
    (tmp_path / NOTE_FILE).write_text(json.dumps({**noted, "registration": 7, "zxid": 10**6}))
    with pytest.raises(StartRefused) as found:
        await Member(1, tmp_path).open()
    assert [each.kind for each in found.value.refusals] == [Kind.OLDER_STORE]
    member = await Member(1, tmp_path, accept=found.value.refusals[0].accept).begin()
    assert member.start.keeps_left_over
    member.write("orders", 1)
    await member.end()
    member = await Member(1, tmp_path).begin()
    moved_since = ShownState((2, 3), (2, 3), leader=2, leader_epoch=1)  # the store lacks this reassignment
    image = ClusterImage("c").with_topic(Topic("orders", ORDERS, {0: moved_since}))
    set_strays_aside(member.logs, image, 1, "", keeps_left_over=member.start.keeps_left_over)
    assert len(list(tmp_path.glob("orders-0.*-stray"))) == 1
    await member.end()
