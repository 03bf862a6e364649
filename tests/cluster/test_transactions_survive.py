"""Tests that coordinators load everything when all brokers have died at once."""

from __future__ import annotations

import pytest
from final_state import settle_and_check
from raw_transactions import RawTransactions, committed_offset
from recording_clients import PRODUCERS
from replicated_cluster import ReplicatedCluster

from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History


@pytest.mark.soak
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
