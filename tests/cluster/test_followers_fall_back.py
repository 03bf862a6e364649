"""Tests followers that must truncate the end of their logs, or have lost the end."""

from __future__ import annotations

import json
import os
from pathlib import Path

from final_state import settle_and_check, stored_batches
from peer_network import PeerNetwork
from raw_client import produce_request
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster
from tests.support.storage import make_batch

from oncelog_broker.replication.peers import Purpose
from oncelog_protocol.api import ApiKey
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

FETCHES = (Purpose.FETCH,)
LARGE = 400_000
"""Size of a record in bytes; a few records of this size fill all buffers between a leader and a follower that does not
read.
"""
LARGE_RECORDS = 12


def test_c17_a_log_is_cut_under_the_eyes_of_its_readers(
    partitioned: ReplicatedCluster, network: PeerNetwork, history: History, topic: str
) -> None:
    """A leader sends its followers records that only it has, directly from its files, and the network delays them. Then
    the leader is paused, and another broker leads when the old leader continues. The old leader must truncate records
    that it is still sending, and must survive that.
    """
    cluster = partitioned
    cluster.create_topic(topic, (1, 2, 3))
    place = Place(topic)
    leader = cluster.until_led(topic).leader
    ways = [(node_id, leader) for node_id in (1, 2, 3) if node_id != leader]
    written = 0
    while True:
        values = [b"large/%d/" % number + os.urandom(LARGE) for number in range(written, written + LARGE_RECORDS)]
        requests = [produce_request(*place, make_batch(value), acks=1) for value in values]
        network.hold(*ways, purposes=FETCHES)
        with cluster.client(leader, 60) as client:
            for value, request in zip(values, requests, strict=True):
                history.send("large", place, value)
                client.call(request, ApiKey.PRODUCE, 9)
        written += LARGE_RECORDS
        with cluster.paused(leader):
            if cluster.isr_in_store(topic, 0) == {1, 2, 3}:
                new = cluster.until_led(topic, but_by=leader).leader
                write(cluster, history, place, new)
                break
        # On a busy machine both followers were silent for too long and left the ISR, so no other replica could lead.
        network.let_pass(*ways)
        cluster.until_whole(topic)
    cluster.until(lambda: len(stored_batches(cluster, leader, place)) < written, "the old leader has cut its log")
    network.let_pass(*ways)
    cluster.until_whole(topic)
    assert cluster.brokers[leader].is_running
    settle_and_check(cluster, history, topic)


def write(cluster: ReplicatedCluster, history: History, place: Place, leader: int) -> None:
    """Write a record to the new leader, from which the followers fetch."""
    send = history.send("raw", place, b"raw/0")
    with cluster.client(leader, 60) as client:
        answer = client.call(produce_request(*place, make_batch(b"raw/0"), acks=-1), ApiKey.PRODUCE, 9)
    (answered,) = answer.responses[0].partition_responses
    if answered.error_code == 0:
        history.acknowledged(send, answered.base_offset)


def test_c13_a_follower_comes_back_without_the_end_of_its_log(
    cluster: ReplicatedCluster, history: History, topic: str
) -> None:
    """The machine of a follower in the ISR crashed, so the follower has lost the end of its log. The follower returns
    before its absence is noticed, and the leader dies: the follower must not lead, because it lacks records of the ISR.
    """
    cluster.create_topic(topic, (1, 2, 3))
    place = Place(topic)
    assert cluster.until_led(topic).leader == 1, "the machine stopped the first leader"
    with PRODUCERS["oncelog"](cluster.addresses, history, "anna") as producer:
        with Writer(producer, place) as writer:
            writer.until_more(30)
        cluster.until_whole(topic)
        cluster.kill(2)
        lose_the_end(cluster.brokers[2].data, place)
        cluster.start(2)
        cluster.kill(1)
        assert cluster.until_led(topic, but_by=1).leader == 3 or fetched(cluster, place)
        with Writer(producer, place) as writer:
            writer.until_more(10)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)


def fetched(cluster: ReplicatedCluster, place: Place) -> bool:
    """Return whether broker 2 may lead because this broker had fetched its lost records again just before broker 1
    died.
    """
    return len(stored_batches(cluster, 2, place)) >= len(stored_batches(cluster, 3, place))


def lose_the_end(data: Path, place: Place) -> None:
    """Truncate half of the log and change the boot id, as after a crash of the machine."""
    (file,) = (data / str(place)).glob("*.log")
    os.truncate(file, file.stat().st_size // 2)
    trace = data / ".oncelog-session"
    found = json.loads(trace.read_text())
    found["boot"] = "another"
    trace.write_text(json.dumps(found))
