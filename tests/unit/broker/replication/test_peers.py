"""Requests to other brokers: when a connection is used, when it is closed, and that no request is sent twice."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.support.fake_broker import FakeBroker
from tests.support.hosts import host_of

from oncelog_broker.metadata.model.image import Broker, ClusterImage, Topic
from oncelog_broker.metadata.model.payloads import Endpoint
from oncelog_broker.replication.peers import BrokerPeers, PeerUnavailable, Purpose
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

ME, PEER = 1, 2
LONG = 30.0
MARKERS = WriteTxnMarkersRequest(markers=[])


class Cluster:
    def __init__(self, peer):
        self.peer, self.tasks = peer, Tasks()
        self.image = ClusterImage("")
        self.peers = BrokerPeers(ME, "INTERNAL", self, host_of(tasks=self.tasks))
        self.register(epoch=1)

    def register(self, epoch, listener="INTERNAL"):
        endpoint = Endpoint(listener, "127.0.0.1", self.peer.port, "PLAINTEXT")
        self.show(self.image.with_broker(Broker(PEER, epoch, (endpoint,))))

    def leave(self):
        self.show(self.image.without_broker(PEER))

    def show(self, image):
        before, self.image = self.image, image
        self.peers.on_image(before, image)

    def send(self, request=MARKERS, purpose=Purpose.MARKERS, timeout=LONG):
        return self.peers.send(PEER, request, purpose=purpose, timeout=timeout)


@asynccontextmanager
async def a_cluster():
    peer = FakeBroker()
    peer.handlers[WriteTxnMarkersRequest] = lambda _: WriteTxnMarkersResponse(markers=[])
    await peer.start()
    cluster = Cluster(peer)
    try:
        async with asyncio.timeout(60):
            yield cluster
    finally:
        cluster.peers.close()
        await cluster.tasks.close()
        await peer.stop()


async def test_each_purpose_has_its_own_connection():
    async with a_cluster() as cluster:
        await asyncio.gather(*(cluster.send() for _ in range(3)))
        await cluster.send()
        assert cluster.peer.connections == 1
        await cluster.send(purpose=Purpose.CONTROL)
        assert cluster.peer.connections == 2
        assert len(cluster.peer.requests_of(WriteTxnMarkersRequest)) == 5


async def test_brokers_speak_the_highest_version_that_both_know():
    """Brokers use Fetch versions that clients do not use, because followers name topics by id."""
    async with a_cluster() as cluster:
        cluster.peer.handlers[FetchRequest] = lambda _: FetchResponse(responses=[])
        await cluster.send(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), Purpose.FETCH)
        assert cluster.peer.versions[FetchRequest] == [18]


async def test_an_image_with_other_topics_looks_at_no_connection(monkeypatch):
    async with a_cluster() as cluster:
        await cluster.send()
        looked = []
        place = cluster.peers._place
        monkeypatch.setattr(cluster.peers, "_place", lambda image, at: looked.append(at) or place(image, at))
        cluster.show(cluster.image.with_topic(Topic("t", bytes(16), {})))
        assert looked == []
        cluster.register(epoch=2)
        assert looked == [PEER]


@pytest.mark.parametrize("listener", ["INTERNAL", "EXTERNAL"])
async def test_a_request_to_an_absent_broker_fails(listener):
    """The other broker is not registered, or is registered without a listener for inter-broker requests."""
    async with a_cluster() as cluster:
        cluster.leave()
        if listener == "EXTERNAL":
            cluster.register(epoch=1, listener=listener)
        with pytest.raises(PeerUnavailable, match="not registered with a listener INTERNAL"):
            await cluster.send()


async def test_a_retrying_request_ends_when_the_broker_stops():
    """The connection attempt and the requests that wait for it are cancelled immediately, which says nothing about the
    other broker.
    """
    async with a_cluster() as cluster:
        # From now on the client is in a connection attempt, or in the pause before the next one.
        await cluster.peer.stop()

        async def ask_for_ever():
            while True:
                try:
                    await cluster.send()
                except PeerUnavailable:
                    refused.set()

        refused = asyncio.Event()
        asking = cluster.tasks.spawn("asks", ask_for_ever())
        await refused.wait()
        async with asyncio.timeout(10):
            await cluster.tasks.close()
        assert asking.cancelled()


async def test_a_refused_connection_fails_the_request():
    async with a_cluster() as cluster:
        await cluster.peer.stop()
        with pytest.raises(PeerUnavailable, match="broker 2"):
            await cluster.send()
        await cluster.peer.start()
        await cluster.send()


async def test_a_request_whose_answer_is_lost_is_not_sent_again():
    async with a_cluster() as cluster:

        def hang_up(_):
            cluster.peer.hang_up()

        cluster.peer.handlers[WriteTxnMarkersRequest] = hang_up
        with pytest.raises(PeerUnavailable):
            await cluster.send()
        cluster.peer.handlers[WriteTxnMarkersRequest] = lambda _: WriteTxnMarkersResponse(markers=[])
        await cluster.send()
        assert len(cluster.peer.requests_of(WriteTxnMarkersRequest)) == 2


async def test_a_late_answer_fails_the_request():
    """Responses arrive in the order of the requests, so later requests on this connection could not get a response
    either: the connection is closed.
    """
    async with a_cluster() as cluster:
        await cluster.send()
        cluster.peer.handlers[WriteTxnMarkersRequest] = lambda _: None
        with pytest.raises(PeerUnavailable, match="broker 2"):
            await cluster.send(timeout=0.2)
        cluster.peer.handlers[WriteTxnMarkersRequest] = lambda _: WriteTxnMarkersResponse(markers=[])
        await cluster.send()
        assert cluster.peer.connections == 2


@pytest.mark.parametrize("change", [Cluster.leave, lambda cluster: cluster.register(epoch=2)])
async def test_a_request_in_flight_to_a_former_registration_fails(change):
    """The connection leads to a process that may have ended, or may be paused for long."""
    async with a_cluster() as cluster:
        cluster.peer.handlers[WriteTxnMarkersRequest] = lambda _: None
        waiting = asyncio.ensure_future(cluster.send())
        await cluster.peer.received(WriteTxnMarkersRequest)
        change(cluster)
        with pytest.raises(PeerUnavailable):
            await waiting
        cluster.register(epoch=3)
        cluster.peer.handlers[WriteTxnMarkersRequest] = lambda _: WriteTxnMarkersResponse(markers=[])
        await cluster.send()
        assert cluster.peer.connections == 2


async def test_other_changes_of_the_image_leave_connections_alone():
    async with a_cluster() as cluster:
        await cluster.send()
        cluster.image = cluster.image.with_broker(Broker(3, 1, ()))
        cluster.register(epoch=1)
        await cluster.send()
        assert cluster.peer.connections == 1


async def test_a_cancelled_request_leaves_the_shared_connection_attempt():
    async with a_cluster() as cluster:
        first, second = (asyncio.ensure_future(cluster.send()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()
        assert len(cluster.peer.requests_of(WriteTxnMarkersRequest)) == 1


async def test_a_broker_that_stops_sends_nothing():
    async with a_cluster() as cluster:
        cluster.peer.handlers[WriteTxnMarkersRequest] = lambda _: None
        waiting = asyncio.ensure_future(cluster.send())
        await cluster.peer.received(WriteTxnMarkersRequest)
        cluster.peers.close()
        for late in (waiting, cluster.send()):
            with pytest.raises(PeerUnavailable, match="this broker is stopping"):
                await late
