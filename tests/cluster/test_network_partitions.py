"""Tests a network that delays traffic between brokers, while ZooKeeper and the clients reach all of them."""

from __future__ import annotations

from threading import Thread

import pytest
from final_state import settle_and_check, stored_batches
from peer_network import PeerNetwork
from raw_client import RawClient, produce_request
from raw_transactions import new_producer_id
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster
from tests.support.storage import make_batch

from oncelog_broker.replication.peers import Purpose
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_testing.history.events import Place, Send
from oncelog_testing.history.recorder import History

LIBRARIES = pytest.mark.parametrize("library", PRODUCERS)
PRODUCE_VERSION = 9
REPLICAS = (1, 2, 3)
FROM_FOLLOWERS = ((2, 1), (3, 1))
"""The directions of the followers' requests to broker 1."""
FETCHES = (Purpose.FETCH,)
IN_FLIGHT = 7
"""The number of batches in flight, more than the five batches of a producer that a log remembers: only by its sequence
is the oldest batch recognised as a duplicate.
"""
LOOKS = 4
"""The number of sequential requests after which a broker has read everything sent earlier on other connections."""


class RawProducer:
    """An idempotent producer that sends exactly the given records, one per batch."""

    def __init__(self, history: History, place: Place, producer: ProducerIdAndEpoch) -> None:
        self._history = history
        self._place = place
        self._producer = producer
        self.sends: list[Send] = []

    def send(self, client: RawClient, sequence: int, acks: int = -1) -> None:
        """Send the record with this sequence; it may have been sent before."""
        value = b"raw/%d" % sequence
        if sequence == len(self.sends):
            self.sends.append(self._history.send("raw", self._place, value))
        pid, epoch = self._producer
        batch = make_batch(value, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
        request = produce_request(*self._place, batch, acks)
        request.timeout_ms = 60_000
        client.send(request, ApiKey.PRODUCE, PRODUCE_VERSION)

    def receive(self, client: RawClient, sequence: int) -> int:
        """Receive the response to the oldest request of this connection, which has sent `sequence`, and return the
        error code of the response.
        """
        answer = client.receive().responses[0].partition_responses[0]
        if answer.error_code == 0:
            self._history.acknowledged(self.sends[sequence], answer.base_offset)
        return int(answer.error_code)


def lead_by_1(cluster: ReplicatedCluster, topic: str) -> Place:
    cluster.create_topic(topic, REPLICAS)
    assert cluster.part(topic).leader == 1, "the machine stopped the first leader"
    return Place(topic)


def test_c2_a_duplicate_is_not_taken_for_written_before_it_is(
    partitioned: ReplicatedCluster, network: PeerNetwork, history: History, topic: str
) -> None:
    """The leader has batches that the followers lack. One of these batches is sent again, and the log no longer
    remembers it because newer batches followed. Only this leader's log shows that the batch is a duplicate, and then
    this leader dies.
    """
    cluster, place = partitioned, lead_by_1(partitioned, topic)
    with cluster.client(1, 60) as first, cluster.client(1, 60) as again:
        producer = RawProducer(history, place, new_producer_id(first))
        producer.send(first, 0)
        assert producer.receive(first, 0) == 0
        network.hold(*FROM_FOLLOWERS, purposes=FETCHES)
        producer.send(first, 1)  # the leader responds to the waiting fetches, and no other fetch reaches it
        cluster.until(lambda: len(stored_batches(cluster, 1, place)) == 2, "the leader has appended it")
        for sequence in range(2, IN_FLIGHT + 3):
            producer.send(first, sequence)
        cluster.until(
            lambda: len(stored_batches(cluster, 1, place)) == IN_FLIGHT + 3, "the leader has appended all of them"
        )
        for sequence in (2, IN_FLIGHT + 2):
            producer.send(again, sequence)
        for _ in range(LOOKS):  # when the last request has a response, the broker has handled all earlier requests
            cluster.metadata(node_id=1)
        cluster.kill(1)
        for client in (first, again):
            with pytest.raises(OSError):
                client.receive()
    network.let_pass(*FROM_FOLLOWERS)
    leader = cluster.until_led(topic, but_by=1).leader
    with cluster.client(leader, 60) as client:
        for sequence in range(1, IN_FLIGHT + 3):
            producer.send(client, sequence)
        for sequence in range(1, IN_FLIGHT + 3):
            assert producer.receive(client, sequence) == 0
    settle_and_check(cluster, history, topic)


@LIBRARIES
def test_c14_a_follower_is_cut_off_from_the_leader(
    partitioned: ReplicatedCluster, network: PeerNetwork, history: History, topic: str, library: str
) -> None:
    """The follower leaves the ISR, the other replicas continue, and the follower returns to the ISR only with all
    records.
    """
    cluster, place = partitioned, lead_by_1(partitioned, topic)
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, place) as writer:
            writer.until_more(10)
            with network.held((2, 1)):
                cluster.until_isr(topic, {1, 3})
                writer.until_more(20)
                assert cluster.part(topic).isr == (1, 3)
            cluster.until_isr(topic, {1, 2, 3})
            writer.until_more(10)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)


def test_c15_a_leader_is_cut_off_from_its_followers(
    partitioned: ReplicatedCluster, network: PeerNetwork, history: History, topic: str
) -> None:
    """The leader leads, and reaches ZooKeeper and the controller. It can nevertheless neither acknowledge records that
    only it has nor return them to consumers.
    """
    cluster, place = partitioned, lead_by_1(partitioned, topic)
    with cluster.client(1, 60) as client, cluster.client(1, 60) as second:
        producer = RawProducer(history, place, new_producer_id(client))
        producer.send(client, 0)
        assert producer.receive(client, 0) == 0
        with network.held(*FROM_FOLLOWERS, purposes=FETCHES):
            producer.send(client, 1)
            assert producer.receive(client, 1) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            cluster.until_isr(topic, {1})
            producer.send(client, 2)
            assert producer.receive(client, 2) == ErrorCode.NOT_ENOUGH_REPLICAS
            assert second.list_offset(*place, LATEST_TIMESTAMP)[0] == 1, "the high watermark stands"
            assert [batch.last_offset for batch in second.fetch(*place, 0)] == [0]
        cluster.until_isr(topic, {1, 2, 3})
        for sequence in (1, 2):
            producer.send(client, sequence)
            assert producer.receive(client, sequence) == 0
    settle_and_check(cluster, history, topic)


@LIBRARIES
def test_c3_a_marker_held_only_by_the_leader_is_not_acknowledged(
    partitioned: ReplicatedCluster, network: PeerNetwork, history: History, topic: str, library: str
) -> None:
    """The coordinator does not consider the marker written, and sends the marker to the next leader, so the following
    transaction is separate.
    """
    cluster, place = partitioned, lead_by_1(partitioned, topic)
    transactional_id = until_coordinated_by(cluster, topic, but=1)
    with PRODUCERS[library](cluster.addresses, history, "anna", transactional_id) as producer:
        producer.begin()
        producer.send(place)
        producer.flush()
        network.hold(*FROM_FOLLOWERS, purposes=FETCHES)
        # librdkafka and oncelog's client report the commit when it is decided; the marker follows.
        committing = Thread(target=producer.commit, daemon=True)
        committing.start()
        cluster.until(
            lambda: any(batch.is_control for batch in stored_batches(cluster, 1, place)), "the leader has the marker"
        )
        cluster.kill(1)
        network.let_pass(*FROM_FOLLOWERS)
        committing.join(100)
        assert not committing.is_alive()
        for commits in (False, True):
            producer.begin()
            producer.send(place)
            producer.flush()
            (producer.commit if commits else producer.abort)()
    settle_and_check(cluster, history, topic)
    assert len(history.final[place]) == 2


def until_coordinated_by(cluster: ReplicatedCluster, prefix: str, *, but: int) -> str:
    """Return a transactional id whose coordinator is not `but`."""
    return next(name for name in (f"{prefix}-{number}" for number in range(100)) if cluster.coordinator(name) != but)
