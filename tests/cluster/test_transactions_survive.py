"""Tests transactions whose coordinator, or the leader of one of whose partitions, is killed at a point of their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from crash_points import CrashPoints
from final_state import settle_and_check
from raw_transactions import RawTransactions, committed_offset
from recording_clients import PRODUCERS
from replicated_cluster import ReplicatedCluster

from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

LIBRARIES = pytest.mark.parametrize("library", PRODUCERS)
CLINGS_TO_COORDINATORS = {"librdkafka"}
"""librdkafka 2.16 waits for ever for a group's coordinator that it knew, if that broker has died and left the metadata:
it neither sends the TxnOffsetCommit nor looks up the coordinator again (see `clinging`).
"""
POINTS = ("prepare-logged", "reply-sent", "marker-sent", "marker-written", "complete-logged")
SOAK = pytest.mark.soak
MOMENTS = [
    pytest.param("before", "prepare-logged", marks=SOAK),
    ("after", "prepare-logged"),
    ("after", "reply-sent"),
    pytest.param("before", "marker-sent", marks=SOAK),
    ("after", "marker-written"),
    pytest.param("before", "complete-logged", marks=SOAK),
    pytest.param("after", "complete-logged", marks=SOAK),
]


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashPoints]:
    with CrashPoints(tmp_path_factory.mktemp("points"), POINTS) as points:
        yield points


@pytest.fixture(scope="module")
def asking(
    chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory, points: CrashPoints
) -> Iterator[ReplicatedCluster]:
    """Yield a cluster whose brokers wait at their fail points for the test."""
    directory = tmp_path_factory.mktemp("asking")
    with ReplicatedCluster(directory, chroots(), fail_points=points.specification) as cluster:
        yield cluster
    cluster.check_logs()


@pytest.mark.parametrize(("when", "point"), MOMENTS)
@LIBRARIES
@pytest.mark.parametrize("commits", [True, pytest.param(False, marks=SOAK)], ids=["commit", "abort"])
def test_c4_a_broker_dies_at_the_end_of_a_transaction(
    asking: ReplicatedCluster,
    points: CrashPoints,
    history: History,
    topic: str,
    library: str,
    when: str,
    point: str,
    commits: bool,
) -> None:
    """Either all records of the transaction are visible or none, according to the response to the producer, and the
    transactional id can begin the next transaction.
    """
    asking.mend()
    asking.create_topic(topic, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    places = [Place(topic, index) for index in range(3)]
    asking.coordinator(topic)
    with PRODUCERS[library](asking.addresses, history, "anna", topic) as producer:
        for is_struck in (False, True, False):
            producer.begin()
            for place in places:
                producer.send(place)
            if library not in CLINGS_TO_COORDINATORS or asking.all_are_up:
                producer.send_offset("group", places[0], len(history.commits) + 1)
            producer.flush()
            if is_struck:
                points.arm(when, point)
            (producer.commit if commits else producer.abort)()
            if is_struck:
                assert points.struck.wait(60), "no broker came to that point"
                asking.note_death()
    settle_and_check(asking, history, topic)
    assert len(history.sends) == 9
    assert sum(map(len, history.final.values())) == (9 if commits else 0)


def test_c5_coordinator_state_survives_the_death_of_all_coordinators(
    cluster: ReplicatedCluster, history: History, topic: str
) -> None:
    """All brokers are killed before any high watermark was checkpointed: the new leaders begin with a high watermark of
    0, and load everything nevertheless. No committed offset goes back, and no transactional id gets the producer id of
    another transactional id.
    """
    cluster.create_topic(topic, (1, 2, 3))
    place = Place(topic)
    names = [f"{topic}-{number}" for number in range(6)]
    identities = {name: initialised(cluster, name) for name in names}
    with PRODUCERS["oncelog"](cluster.addresses, history, "anna", topic) as producer:
        for offset in (1, 2, 3):
            producer.begin()
            producer.send(place)
            producer.flush()
            producer.send_offset(topic, place, offset)
            producer.commit()
    cluster.kill(1, 2, 3)
    for node_id in cluster.brokers:
        checkpoint = cluster.brokers[node_id].data / "replication-offset-checkpoint"
        checkpoint.unlink(missing_ok=True)
    cluster.start(1, 2, 3)
    again = {name: initialised(cluster, name) for name in names}
    for name in names:
        assert again[name].producer_id == identities[name].producer_id
        assert again[name].epoch > identities[name].epoch
    assert len({identity.producer_id for identity in again.values()}) == len(names)
    asked = history.now()
    offset = cluster.until(lambda: committed(cluster, topic, topic), "the group's offsets are loaded")
    history.offset_read(topic, place, offset, asked=asked)
    settle_and_check(cluster, history, topic)


def initialised(cluster: ReplicatedCluster, name: str):  # type: ignore[no-untyped-def]
    """Return the producer id and epoch that the transactional id gets now."""

    def take() -> object:
        with cluster.client(cluster.coordinator(name), 60) as client:
            transactions = RawTransactions(client, name)
            return transactions.producer if transactions.init() == 0 else None

    return cluster.until(take, f"{name} is initialised")


def committed(cluster: ReplicatedCluster, group: str, topic: str) -> int:
    """Return the committed offset of partition 0; 0 if there is none, or no coordinator responds."""
    with cluster.client(cluster.coordinator(group, CoordinatorType.GROUP)) as client:
        code, offset = committed_offset(client, group, topic, stable=True)
    return 0 if code else max(offset, 0)
