"""Tests every kind of wrong start with real processes: a start is either refused or corrected, and in both cases a
message says so.

Each mistake is made, then corrected. After the correction every acknowledged record is in the log at its offset, and
the broker accepts more records. A start of two brokers with the same address is tested in another file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from broker_process import BrokerProcess
from elections import until_preferred_lead
from final_state import batches_in, digests
from foreign_clients import eventually
from kazoo.client import KazooClient
from raw_client import RawClient
from replicated_cluster import BROKERS, ReplicatedCluster
from two_disks import PARTITIONS, SETTINGS, TOPIC, Ledger, TwoDisks, accepted_by, swap

from oncelog_broker.local_cluster.ensemble import Ensemble

INTERNAL = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@contextmanager
def kazoo(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect, timeout=60)
    client.start(60)
    yield client
    client.stop()
    client.close()


class Scene(NamedTuple):
    """A stopped broker whose data directories exist, with copies of their earlier contents."""

    broker: TwoDisks
    older: Path
    """The path of a copy of the broker's data directories, made when half of the records were written."""
    foreign: Path
    """A data directory of another broker in another cluster."""
    ledger: Ledger

    def notes_where_it_is(self) -> None:
        """Let the broker record the new paths of its directories, because the directories were copied."""
        self.broker.start()
        self.broker.process.stop()

    def goes_on(self) -> None:
        """Check that the running broker has all records and accepts more."""
        self.ledger.check()
        self.ledger.write()
        self.ledger.check()

    def is_right(self, *directories: Path) -> None:
        self.broker.start(*directories)
        self.goes_on()
        self.broker.process.stop()
        self.broker.start(*directories)
        self.goes_on()


def with_a_past(process: BrokerProcess, directory: Path) -> Scene:
    broker = TwoDisks(process, directory)
    ledger = Ledger(lambda: process.address)
    broker.start()
    ledger.create()
    ledger.write()
    process.stop()
    older = broker.save("older")
    broker.start()
    ledger.write()
    process.stop()
    for each in (broker.a, broker.b):
        assert len(list(each.glob(f"{TOPIC}-*"))) == PARTITIONS / 2
    return Scene(broker, older, directory.parent / "foreign" / "a", ledger)


def alone_at(directory: Path) -> BrokerProcess:
    process = BrokerProcess(directory / "log", SETTINGS)
    process.settings.pop("zookeeper.connect", None)  # other tests of this process may have set this variable
    return process


# --- one broker alone


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    place = tmp_path_factory.mktemp("alone")
    foreign = place / "foreign"
    foreign.mkdir()
    other = TwoDisks(alone_at(foreign), foreign)
    other.start()
    other.process.stop()
    (place / "broker").mkdir()
    return with_a_past(alone_at(place / "broker"), place / "broker")


@pytest.fixture
def alone(past: Scene, tmp_path: Path) -> Iterator[Scene]:
    """Yield a copy of the broker, so that each test begins with the same data."""
    for each in (past.broker.a, past.broker.b):
        shutil.copytree(each, tmp_path / each.name)
    process = alone_at(tmp_path)
    ledger = Ledger(lambda: process.address)
    ledger.acknowledged = {partition: list(values) for partition, values in past.ledger.acknowledged.items()}
    yield Scene(TwoDisks(process, tmp_path), past.older, past.foreign, ledger)
    if process.is_running:
        process.kill()


def test_s70_e41_a_broker_alone_starts_with_its_directories_in_another_order(alone: Scene) -> None:
    alone.is_right(alone.broker.b, alone.broker.a)


def test_s70_a_broker_alone_starts_with_a_new_disk_named_first(alone: Scene) -> None:
    alone.is_right(alone.broker.directory / "new", alone.broker.a, alone.broker.b)


def test_s70_a_broker_alone_starts_with_its_disks_swapped(alone: Scene) -> None:
    swap(alone.broker.a, alone.broker.b)
    alone.is_right()


def test_s72_e41_a_broker_alone_starts_without_its_store(alone: Scene) -> None:
    (alone.broker.a / "metadata.db").unlink()
    alone.is_right()
    assert "the metadata store of this broker is missing" in alone.broker.said()


def test_s71_a_broker_alone_starts_with_an_older_store(alone: Scene) -> None:
    shutil.copy(alone.older / "a" / "metadata.db", alone.broker.a)
    # write without idempotence, because other tests check whether producer ids are reused
    alone.ledger.is_idempotent = False
    alone.is_right()
    assert "is older than" in alone.broker.said()


def test_s73_a_broker_alone_starts_with_a_newer_store(alone: Scene) -> None:
    newest = (alone.broker.a / "metadata.db").read_bytes()
    with (
        alone.broker.replaced(alone.broker.a, alone.older / "a"),
        alone.broker.replaced(alone.broker.b, alone.older / "b"),
    ):
        (alone.broker.a / "metadata.db").write_bytes(newest)
        assert "older than the metadata store" in alone.broker.refused()
    alone.is_right()


@pytest.mark.parametrize("which", ["a", "b"])
def test_s70_a_broker_alone_starts_with_a_missing_directory(alone: Scene, which: str) -> None:
    other, missing = (alone.broker.b, alone.broker.a) if which == "a" else (alone.broker.a, alone.broker.b)
    alone.notes_where_it_is()
    refusal = alone.broker.refused(other)
    assert f"{missing} was a data directory of this broker; log.dirs no longer lists it" in refusal
    assert not (alone.broker.b / "metadata.db").exists()
    alone.is_right()


@pytest.mark.parametrize("which", ["a", "b"])
def test_s70_a_broker_alone_starts_with_an_empty_directory(alone: Scene, which: str) -> None:
    empty = alone.broker.directory / which
    alone.notes_where_it_is()
    with alone.broker.replaced(empty, None):
        assert f"{empty} is empty" in alone.broker.refused()
    alone.is_right()


def test_s73_a_broker_alone_starts_with_an_older_directory(alone: Scene) -> None:
    with alone.broker.replaced(alone.broker.b, alone.older / "b"):
        refusal = alone.broker.refused()
        assert f"{alone.broker.b} is older than the metadata store" in refusal
    alone.is_right()


def test_s70_a_broker_alone_starts_with_a_directory_of_another_broker(alone: Scene) -> None:
    with alone.broker.replaced(alone.broker.b, alone.foreign):
        assert f"{alone.broker.b} belongs to cluster" in alone.broker.refused()
    alone.is_right()


def test_s70_a_broker_alone_starts_as_another_node(alone: Scene) -> None:
    """Someone has edited meta.properties in both directories, as for a clone of the broker."""
    files = {path: path.read_text() for path in (each / "meta.properties" for each in (alone.broker.a, alone.broker.b))}
    for path, text in files.items():
        assert "node.id=1\n" in text
        path.write_text(text.replace("node.id=1\n", "node.id=77\n"))
    alone.broker.process.settings["node.id"] = "77"
    try:
        refusal = alone.broker.refused()
    finally:
        del alone.broker.process.settings["node.id"]
        for path, text in files.items():
            path.write_text(text)
    assert "were data directories of broker 1, and this is broker 77" in refusal
    assert "start.accept=other-node:" in refusal
    alone.is_right()


def test_a_broker_alone_is_started_twice_in_one_directory(alone: Scene) -> None:
    alone.broker.start()
    second = alone_at(alone.broker.directory / "second")
    second.log.parent.mkdir()
    second.data = Path(f"{alone.broker.directory / 'new'},{alone.broker.b}")
    with pytest.raises(AssertionError, match="is locked by another process"):
        second.start()
    second.kill()
    assert not (alone.broker.directory / "new" / "metadata.db").exists()
    alone.goes_on()


def test_s70_a_broker_alone_starts_in_the_cluster_of_others(alone: Scene, zookeeper: str) -> None:
    with kazoo(zookeeper) as client:
        client.create("/cluster/id", b'{"version":"1","id":"another"}', makepath=True)
    alone.broker.process.settings["zookeeper.connect"] = zookeeper
    assert "to another: configure another data directory" in alone.broker.refused()
    with kazoo(zookeeper) as client:
        assert client.get_children("/") == ["cluster"], "nothing was changed there"
    del alone.broker.process.settings["zookeeper.connect"]
    alone.is_right()


def test_s70_e41_a_broker_alone_moves_to_zookeeper(alone: Scene, zookeeper: str) -> None:
    """It is no mistake to move a broker to ZooKeeper: the broker keeps all its data. After that, the broker does not
    move back to a local store by mistake.
    """
    alone.broker.process.settings |= {"zookeeper.connect": zookeeper, **INTERNAL}
    alone.is_right()
    alone.broker.process.stop()
    assert not (alone.broker.a / "metadata.db").exists()
    del alone.broker.process.settings["zookeeper.connect"]
    assert "zookeeper.connect is not set" in alone.broker.refused()


# --- one broker with ZooKeeper


@pytest.fixture
def member(past: Scene, new_chroot: Callable[[], str], tmp_path: Path) -> Iterator[Scene]:
    (tmp_path / "broker").mkdir()
    process = BrokerProcess(
        tmp_path / "broker" / "log",
        {"zookeeper.connect": new_chroot(), "zookeeper.session.timeout.ms": "2000", **INTERNAL, **SETTINGS},
    )
    yield with_a_past(process, tmp_path / "broker")._replace(foreign=past.foreign)
    if process.is_running:
        process.kill()


def test_s70_e40_a_member_starts_with_a_wrong_chroot(member: Scene, zookeeper: str) -> None:
    settings = member.broker.process.settings
    right = settings["zookeeper.connect"]
    settings["zookeeper.connect"] = zookeeper
    refusal = member.broker.refused()
    assert (
        f"with metadata in ZooKeeper at {right}, but the ZooKeeper at {zookeeper} does not have its metadata" in refusal
    )
    with kazoo(zookeeper) as client:
        assert client.get_children("/") == [], "nothing was made there"
    settings["zookeeper.connect"] = right
    member.is_right()


def test_s70_a_member_re_founds_the_cluster_in_an_empty_zookeeper(member: Scene) -> None:
    with kazoo(member.broker.process.settings["zookeeper.connect"]) as client:
        for name in client.get_children("/"):
            client.delete(f"/{name}", recursive=True)
    refusal = member.broker.refused()
    assert "or ZooKeeper has lost its data" in refusal
    member.broker.process.settings["start.accept"] = accepted_by(refusal)
    member.is_right()


def test_s70_a_member_starts_alone(member: Scene) -> None:
    settings = member.broker.process.settings
    right = settings.pop("zookeeper.connect")
    for directories in ((member.broker.a, member.broker.b), (member.broker.b, member.broker.a)):
        assert f"Set zookeeper.connect={right}" in member.broker.refused(*directories)
    assert not list(member.broker.directory.rglob("metadata.db"))
    settings["zookeeper.connect"] = right
    member.is_right()


def test_s70_a_member_starts_with_another_order_and_a_new_disk(member: Scene) -> None:
    member.broker.start(member.broker.b, member.broker.a)
    member.goes_on()
    member.broker.process.kill()
    new = member.broker.directory / "new"
    member.broker.start(new, member.broker.b, member.broker.a)
    member.goes_on()
    member.broker.process.kill()
    swap(member.broker.a, member.broker.b)
    member.is_right(new, member.broker.b, member.broker.a)
    assert "unsure" not in member.broker.said()


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_s73_a_member_starts_with_a_lost_directory(member: Scene, how: str) -> None:
    """Partitions that may have been in the lost directory stay offline, also at the next start, and are served again
    when the directory returns.
    """
    lost = member.broker.b
    gone = {int(path.name.rpartition("-")[2]) for path in lost.glob(f"{TOPIC}-*")}
    with member.broker.replaced(lost, None):
        for _ in range(2):
            member.broker.start(*((member.broker.a,) if how == "missing" else ()))
            assert f"{lost} was a data directory of this broker" in member.broker.said()
            with RawClient(member.broker.process.port) as client:
                others = set(range(PARTITIONS)) - gone
                eventually(lambda client=client, others=others: others <= served(client), "the others are served")
                assert served(client) == others
            member.broker.process.stop()
    member.is_right()


def served(client: RawClient) -> set[int]:
    """Return the partitions of the topic for which the broker reports an end offset."""
    found = set()
    for partition in range(PARTITIONS):
        with suppress(AssertionError):
            client.list_offset(TOPIC, partition)
            found.add(partition)
    return found


def test_s73_a_member_starts_with_older_directories(member: Scene) -> None:
    """The cluster has only this broker, so no other broker has a copy of its records."""
    for broken in ((member.broker.b,), (member.broker.a, member.broker.b)):
        with ExitStack() as copies:
            for each in broken:
                copies.enter_context(member.broker.replaced(each, member.older / each.name))
            assert "no other replica of" in member.broker.refused()
    member.is_right()


def test_s70_a_member_starts_with_a_directory_of_another_broker(member: Scene) -> None:
    with member.broker.replaced(member.broker.b, member.foreign):
        assert f"{member.broker.b} belongs to cluster" in member.broker.refused()
    member.is_right()


def test_two_members_start_with_one_directory_or_one_id(member: Scene) -> None:
    member.broker.start()
    settings = {**member.broker.process.settings, "listeners": "PLAINTEXT://127.0.0.1:0"}
    second = BrokerProcess(member.broker.directory / "second", settings)
    second.data = member.broker.b
    with pytest.raises(AssertionError, match="is locked by another process"):
        second.start()
    second.kill()
    second.data = member.broker.directory / "new"
    with pytest.raises(AssertionError, match="broker id 1 is in use by another live broker"):
        second.start()
    second.kill()
    member.goes_on()


# --- one of three brokers


class Three(NamedTuple):
    """Three running brokers that have all records."""

    cluster: ReplicatedCluster
    brokers: dict[int, TwoDisks]
    ledger: Ledger

    @property
    def first(self) -> TwoDisks:
        """The broker of the cluster on which the test makes the mistake."""
        return self.brokers[1]

    def kill(self) -> None:
        self.cluster.kill(1)

    def others_go_on(self) -> None:
        """Check that the other two brokers have every acknowledged record and accept more."""
        for partition in range(PARTITIONS):
            self.cluster.until_led(TOPIC, partition, but_by=1)
        self.ledger.check()
        self.ledger.write()

    def is_right(self, *directories: Path) -> None:
        """Check that the broker returns, that all replicas are equal, and that records are readable where it leads."""
        self.first.start(*directories)
        self.is_whole()

    def is_whole(self) -> None:
        self.cluster.until_registered(*BROKERS)
        self.ledger.write()
        self.cluster.until_whole(TOPIC)
        self.ledger.check()
        assert len({self.stored(node_id) for node_id in BROKERS}) == 1
        until_preferred_lead(self.cluster, TOPIC)
        self.ledger.check()

    def stored(self, node_id: int) -> tuple[object, ...]:
        """Return the records of the topic on a broker's disks."""
        places = [each for place in self.directories(node_id) for each in place.glob(f"{TOPIC}-?")]
        return tuple(digests(batches_in(place)) for place in sorted(places, key=lambda place: place.name))

    def directories(self, node_id: int) -> list[Path]:
        return [Path(each) for each in str(self.brokers[node_id].process.data).split(",")]


@pytest.fixture(scope="module")
def three_of_module(chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    place = tmp_path_factory.mktemp("three")
    cluster = ReplicatedCluster(place, chroots(), SETTINGS)
    brokers = {node_id: TwoDisks(cluster.brokers[node_id], place / f"disks{node_id}") for node_id in BROKERS}
    ledger = Ledger(lambda: ",".join(cluster.brokers[node_id].address for node_id in cluster.up))
    with cluster:
        ledger.create((1, 2, 3))
        cluster.until_whole(TOPIC)
        ledger.write()
        yield Three(cluster, brokers, ledger)
    cluster.check_logs()


@pytest.fixture
def three(three_of_module: Three) -> Three:
    three_of_module.cluster.mend()
    three_of_module.cluster.until_whole(TOPIC)
    return three_of_module


def test_s70_e40_one_broker_of_three_starts_with_a_wrong_chroot(three: Three, zookeeper: str) -> None:
    three.kill()
    settings = three.first.process.settings
    right, settings["zookeeper.connect"] = settings["zookeeper.connect"], zookeeper
    assert f"the ZooKeeper at {zookeeper} does not have its metadata" in three.first.refused()
    three.others_go_on()
    settings["zookeeper.connect"] = right
    three.is_right()


def test_s70_one_broker_of_three_starts_alone(three: Three) -> None:
    three.kill()
    settings = three.first.process.settings
    right = settings.pop("zookeeper.connect")
    assert "zookeeper.connect is not set" in three.first.refused()
    three.others_go_on()
    settings["zookeeper.connect"] = right
    three.is_right()


def test_s70_one_broker_of_three_starts_with_swapped_and_reordered_disks(three: Three) -> None:
    three.kill()
    swap(three.first.a, three.first.b)
    three.others_go_on()
    said = len(three.first.said())
    three.is_right()
    three.kill()
    three.is_right(three.first.b, three.first.a)
    assert "unsure" not in three.first.said()[said:]


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_s73_one_broker_of_three_starts_with_a_lost_directory(three: Three, how: str) -> None:
    """The broker lost its data directories, and fetches all records again from the other brokers."""
    three.kill()
    lost = three.first.b
    aside = lost.with_name("lost")
    lost.rename(aside)
    three.others_go_on()
    if how == "missing":
        three.is_right(three.first.a)
        three.kill()
        shutil.rmtree(aside)
        lost.mkdir()
        three.is_right()
    else:
        lost.mkdir()
        three.is_right()
        shutil.rmtree(aside)
    assert f"{lost} was a data directory of this broker" in three.first.said()
    for _ in range(2):
        said = len(three.first.said())
        three.kill()
        three.first.start(*three.directories(1))
    assert "was a data directory" not in three.first.said()[said:], "it has everything again"
    three.is_whole()


def test_s73_e42_one_broker_of_three_starts_with_older_directories(three: Three) -> None:
    """All brokers go down, and the broker with the older state starts first."""
    three.kill()
    older = three.first.save("older")
    three.is_right()
    three.ledger.write()
    three.cluster.kill(*BROKERS)
    for each in (three.first.a, three.first.b):
        shutil.rmtree(each)
        shutil.move(older / each.name, each)
    three.first.start()
    assert "are older than the metadata store" in three.first.said()
    three.cluster.start(2, 3)
    three.cluster.until_registered(*BROKERS)
    three.cluster.kill(1)
    three.others_go_on()
    three.is_right()


def test_s70_two_brokers_of_three_start_with_exchanged_directories(three: Three) -> None:
    three.cluster.kill(1, 2)
    swap(three.first.b, three.brokers[2].b)
    assert "belongs to broker 2, this is broker 1" in three.first.refused()
    assert "belongs to broker 1, this is broker 2" in three.brokers[2].refused()
    swap(three.first.b, three.brokers[2].b)
    three.cluster.start(2)
    three.others_go_on()
    three.is_right()


def test_one_broker_of_three_is_started_twice(three: Three) -> None:
    """A second broker process starts with the same directory, and then with the same broker id."""
    settings = {**three.first.process.settings, "listeners": "PLAINTEXT://127.0.0.1:0,PEER://127.0.0.1:0"}
    second = BrokerProcess(three.first.directory / "second", settings)
    second.data = three.first.b
    with pytest.raises(AssertionError, match="is locked by another process"):
        second.start()
    second.kill()
    second.data = three.first.directory / "new"
    with pytest.raises(AssertionError, match="broker id 1 is in use by another live broker"):
        second.start()
    second.kill()
    three.ledger.write()
    three.ledger.check()


def test_s70_e40_three_brokers_start_with_an_empty_zookeeper(three: Three, zookeeper: str) -> None:
    three.cluster.kill(*BROKERS)
    right = three.cluster.zookeeper
    for broker in three.brokers.values():
        broker.process.settings["zookeeper.connect"] = zookeeper
        assert "or ZooKeeper has lost its data" in broker.refused()
        broker.process.settings["zookeeper.connect"] = right
    three.cluster.start(*BROKERS)
    three.is_whole()


# --- a ZooKeeper that was restored from a backup


class Backups:
    """Copies of the data of a separate ZooKeeper, made while it is stopped."""

    def __init__(self, ensemble: Ensemble, place: Path) -> None:
        self._ensemble = ensemble
        self._place = place
        self.connect = f"{ensemble.connect_string}/oncelog"

    def save(self, name: str) -> None:
        shutil.copytree(self._ensemble.server(1).data, self._place / name)

    def put_back(self, name: str) -> None:
        self._ensemble.stop()
        shutil.rmtree(self._ensemble.server(1).data)
        shutil.copytree(self._place / name, self._ensemble.server(1).data)
        self._ensemble.start()


@pytest.fixture
def backups(zookeeper_factory: Callable[..., Ensemble], tmp_path: Path) -> Backups:
    return Backups(zookeeper_factory(), tmp_path)


def test_s70_a_member_starts_with_an_older_zookeeper(backups: Backups, tmp_path: Path) -> None:
    settings = {"zookeeper.connect": backups.connect, "zookeeper.session.timeout.ms": "6000", **INTERNAL, **SETTINGS}
    process = BrokerProcess(tmp_path / "log", settings)
    broker, ledger = TwoDisks(process, tmp_path / "disks"), Ledger(lambda: process.address)
    member = Scene(broker, tmp_path, tmp_path, ledger)
    broker.start()
    ledger.create()
    ledger.write()
    process.stop()
    backups.save("older")
    broker.start()
    ledger.write()
    process.stop()
    backups.save("newest")
    backups.put_back("older")
    refusal = broker.refused()
    assert f"the metadata store at {backups.connect} is older than {broker.a} and {broker.b}" in refusal
    backups.put_back("newest")
    broker.start()
    member.goes_on()
    process.stop()
    backups.put_back("older")
    process.settings["start.accept"] = accepted_by(broker.refused())
    ledger.is_idempotent = False  # write without idempotence, because other tests check whether producer ids are reused
    member.is_right()
    process.kill()


def test_s70_three_brokers_start_with_an_older_zookeeper(backups: Backups, tmp_path: Path) -> None:
    """With the older ZooKeeper data no broker starts; after the newest data are restored, all brokers start with all
    records.
    """
    cluster = ReplicatedCluster(tmp_path, backups.connect, {**SETTINGS, "zookeeper.session.timeout.ms": "6000"})
    brokers = {node_id: TwoDisks(cluster.brokers[node_id], tmp_path / f"disks{node_id}") for node_id in BROKERS}
    ledger = Ledger(lambda: cluster.addresses)
    three = Three(cluster, brokers, ledger)
    with cluster:
        ledger.create((1, 2, 3))
        ledger.write()
        cluster.kill(*BROKERS)
        backups.save("older")
        cluster.start(*BROKERS)
        three.is_whole()
        cluster.kill(*BROKERS)
        backups.save("newest")
        backups.put_back("older")
        for broker in brokers.values():
            assert f"the metadata store at {backups.connect} is older than" in broker.refused()
        backups.put_back("newest")
        cluster.start(*BROKERS)
        three.is_whole()
    cluster.check_logs()
