"""Tests what happens when more brokers die than allowed: a replica that lacks records is elected only if an operator
has requested that.
"""

from __future__ import annotations

from final_state import settle_and_check
from raw_client import produce_request
from replicated_cluster import ReplicatedCluster
from tests.support.storage import make_batch

from oncelog_protocol.api import ApiKey
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind


def write(cluster: ReplicatedCluster, history: History, place: Place, leader: int, value: bytes, acks: int = 1) -> None:
    """Write one record with a new producer that sends no other record."""
    send = history.send("raw", place, value)
    with cluster.client(leader, 60) as client:
        answer = client.call(produce_request(*place, make_batch(value), acks), ApiKey.PRODUCE, 9)
    (answered,) = answer.responses[0].partition_responses
    assert answered.error_code == 0, answered
    history.acknowledged(send, answered.base_offset)


def only_1_has_everything(cluster: ReplicatedCluster, history: History, topic: str) -> Place:
    """Prepare a partition whose last record only broker 1 has: the other brokers died before that record was written.
    Broker 1 is then stopped, and the others are restarted.
    """
    place = Place(topic)
    assert cluster.until_led(topic).leader == 1
    write(cluster, history, place, 1, b"raw/0", acks=-1)
    cluster.kill(2, 3)
    cluster.until_isr(topic, {1})
    write(cluster, history, place, 1, b"raw/1")
    cluster.kill(1)
    cluster.start(2, 3)
    cluster.until_registered(2, 3)
    return place


def test_c22_no_unclean_election_unless_it_is_allowed(cluster: ReplicatedCluster, history: History, topic: str) -> None:
    """The partition has no leader until the replica that has all records returns."""
    cluster.create_topic(topic, (1, 2, 3))
    only_1_has_everything(cluster, history, topic)
    cluster.until(lambda: cluster.part(topic).leader == -1, "there is no leader")
    cluster.create_topic(f"{topic}-after", (2, 3))  # if a topic is created, the controller works again
    assert cluster.part(topic).leader == -1
    cluster.start(1)
    assert cluster.until_led(topic).leader == 1
    settle_and_check(cluster, history, topic)


def test_c22_an_unclean_election_loses_records_and_no_more(
    cluster: ReplicatedCluster, history: History, topic: str
) -> None:
    """Only the records that no other replica has are lost, as the operator has requested; the returning replica
    discards them.
    """
    cluster.create_topic(topic, (1, 2, 3), unclean_leader_election_enable="true")
    place = only_1_has_everything(cluster, history, topic)
    new = cluster.until_led(topic, but_by=1)
    write(cluster, history, place, new.leader, b"raw/2")
    cluster.start(1)
    settle_and_check(cluster, history, topic, apart_from=(Kind.LOST,))
    assert [value for _, value in history.final[place]] == [b"raw/0", b"raw/2"]
