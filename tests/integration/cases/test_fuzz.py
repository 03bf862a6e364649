"""Sends tens of thousands of mutated frames to a live broker, while another client, which is well-behaved, must notice
no disturbance.

Every frame reaches the broker: if the broker closes the connection because of one frame, the frames after it are sent
again on the next connection. Each burst ends with a well-formed request, whose response shows that the broker has
processed the burst.
"""

from __future__ import annotations

import random
import selectors
import socket
import threading
import time
from collections import deque
from struct import Struct

import psutil
import pytest
from broker_process import BrokerFactory, BrokerProcess
from frame_mutations import Mutant, Mutator
from raw_client import PRODUCE_VERSION, RawClient, frame, produce_request
from request_corpus import World, corpus

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record, read_records
from oncelog_protocol.versions import VersionRange

SEED = 99
WARM_UP = 0.25
"""After this share of the frames the broker's memory is measured; from then on the memory must not grow."""
MAX_GROWTH_BYTES = 20 << 20
CONNECTIONS = 8
BURST = 6
PATIENCE_SECONDS = 0.25
"""Seconds to wait for the responses to a burst of frames; a mutated Fetch may wait for ever."""
SENTINEL_ID = 0x0DDBA11
SIZE_AND_ID = Struct(">ii")
METADATA_VERSION = 12

TOPICS = ("fuzz-a", "fuzz-b", "fuzz-c")
STEADY_TOPIC = "steady-stream-that-no-bit-flip-reaches"
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.segment.bytes": "1000000",
    "log.retention.bytes": "3000000",
    "log.retention.ms": "-1",
}
SENTINEL = frame(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0, SENTINEL_ID)


class FuzzConnection:
    """Sends one burst of frames after another, and finds out how many frames of each burst the broker has processed."""

    def __init__(self, port: int, selector: selectors.BaseSelector) -> None:
        self.port = port
        self.selector = selector
        self.socket: socket.socket | None = None
        self.burst: deque[Mutant] = deque()
        self.received = bytearray()
        self.answers = 0
        self.deadline = 0.0

    def send(self, burst: deque[Mutant], now: float) -> None:
        self.burst = burst
        self.answers = 0
        self.deadline = now + PATIENCE_SECONDS
        data = b"".join(mutant.data for mutant in burst)
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            self.selector.register(self.socket, selectors.EVENT_READ, self)
        try:
            self.socket.sendall(data + SENTINEL if burst[0].is_whole else data)
        except OSError:
            pass  # the broker closed the connection because of an earlier frame; `read` finds out which frame it was

    def read(self) -> bool:
        """Read a part of the responses; return whether the burst is over: either its last request has a response, or
        the connection is closed.
        """
        assert self.socket is not None
        try:
            data = self.socket.recv(262_144)
        except OSError:
            data = b""
        if not data:
            self.close()
            return True
        self.received += data
        return self._count_answers()

    def _count_answers(self) -> bool:
        position, received = 0, self.received
        is_over = False
        while len(received) - position >= 8:
            size, correlation_id = SIZE_AND_ID.unpack_from(received, position)
            if len(received) - position < 4 + size:
                break
            position += 4 + size
            self.answers += 1
            is_over = correlation_id == SENTINEL_ID
        del received[:position]
        if is_over:
            self.burst.clear()
        return is_over

    def close(self) -> None:
        """Close the connection. Frames that got a response are removed from the burst, as is the frame that ended the
        connection; the remaining frames are sent again.
        """
        assert self.socket is not None
        self.selector.unregister(self.socket)
        self.socket.close()
        self.socket = None
        self.received.clear()
        for _ in range(min(self.answers + 1, len(self.burst))):
            self.burst.popleft()


class Fuzzer:
    """Sends mutants through several connections concurrently."""

    def __init__(self, port: int, mutator: Mutator) -> None:
        self.mutator = mutator
        self.selector = selectors.DefaultSelector()
        self.connections = [FuzzConnection(port, self.selector) for _ in range(CONNECTIONS)]
        self.made = 0
        self.held: list[Mutant] = []

    def run(self, until: int) -> None:
        """Send mutants until `until` mutants have been created."""
        for connection in self.connections:
            self._go_on(connection, until)
        while any(connection.burst for connection in self.connections):
            for key, _ in self.selector.select(PATIENCE_SECONDS):
                if key.data.read():
                    self._go_on(key.data, until)
            now = time.monotonic()
            for connection in self.connections:
                if connection.burst and now > connection.deadline:
                    connection.close()
                    self._go_on(connection, until)

    def _go_on(self, connection: FuzzConnection, until: int) -> None:
        while self._fill(connection.burst, until):
            connection.send(connection.burst, time.monotonic())
            if connection.burst[0].is_whole:
                return
            connection.close()  # a frame with a wrong size gets no response

    def _fill(self, burst: deque[Mutant], until: int) -> bool:
        """Fill the burst with frames of correct size; a frame of wrong size is sent in a burst of its own."""
        while len(burst) < BURST and (self.held or self.made < until):
            mutant = self.held.pop() if self.held else self._next()
            if not mutant.is_whole and burst:
                self.held.append(mutant)
                break
            burst.append(mutant)
            if not mutant.is_whole:
                break
        return bool(burst)

    def _next(self) -> Mutant:
        self.made += 1
        return self.mutator.next()

    def close(self) -> None:
        for connection in self.connections:
            if connection.socket is not None:
                connection.close()
        self.selector.close()


class SteadyClient(threading.Thread):
    """Produces and consumes continuously; the records that it reads must be those that it has written."""

    def __init__(self, port: int) -> None:
        super().__init__(name="steady client")
        self.port = port
        self.stopped = threading.Event()
        self.rounds = 0
        self.slowest = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with RawClient(self.port, timeout=30) as client:
                while not self.stopped.wait(0.002):
                    self._round(client)
        except BaseException as error:
            self.failure = error

    def _round(self, client: RawClient) -> None:
        started = time.monotonic()
        value = b"round %d" % self.rounds
        batch = build_batch([Record(0, 1_700_000_000_000, None, value, [])])
        client.send(produce_request(STEADY_TOPIC, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
        (placed,) = client.receive().responses[0].partition_responses
        assert placed.error_code == 0, placed
        assert placed.base_offset == self.rounds
        (read,) = client.fetch(STEADY_TOPIC, 0, placed.base_offset)
        assert [record.value for record in read_records(read)] == [value]
        self.rounds += 1
        self.slowest = max(self.slowest, time.monotonic() - started)

    def stop(self) -> None:
        self.stopped.set()
        self.join(30)
        assert not self.is_alive(), "the steady client hangs"
        if self.failure is not None:
            raise self.failure


def prepare(broker: BrokerProcess) -> list[bytes]:
    """Create the topics, and return a corpus of requests for all APIs that the broker serves."""
    with RawClient(broker.port) as client:
        for name in (*TOPICS, STEADY_TOPIC):
            client.create_topic(name, 3)
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in TOPICS]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        metadata = client.call(request, ApiKey.METADATA, METADATA_VERSION)
        ids = {topic.name: topic.topic_id for topic in metadata.topics}
        advertised = client.call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0).api_keys
    served = {api.api_key: VersionRange(api.min_version, api.max_version) for api in advertised}
    served[ApiKey.PRODUCE] = VersionRange(3, served[ApiKey.PRODUCE].high)  # versions 0-2 are refused (T4)
    world = World(TOPICS, ("fuzz-missing", "", "bad name", "x" * 300), ids)
    return corpus(served, world, random.Random(SEED), per_version=60, admin_per_version=5)


def answer_seconds(broker: BrokerProcess) -> float:
    started = time.monotonic()
    with RawClient(broker.port, timeout=30) as client:
        client.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), ApiKey.METADATA, METADATA_VERSION)
    return time.monotonic() - started


@pytest.mark.parametrize("frames", [8_000, pytest.param(200_000, marks=pytest.mark.soak)])
def test_mutated_frames_hurt_nobody(
    broker_factory: BrokerFactory, record_property: pytest.RecordProperty, frames: int
) -> None:
    broker = broker_factory(SETTINGS).start()
    fuzzer = Fuzzer(broker.port, Mutator(prepare(broker), SEED))
    process = psutil.Process(broker.pid)
    steady = SteadyClient(broker.port)
    steady.start()
    try:
        fuzzer.run(int(frames * WARM_UP))
        warm = process.memory_info().rss
        fuzzer.run(frames)
    finally:
        fuzzer.close()
        steady.stop()
    growth = process.memory_info().rss - warm
    report = (
        f"{warm >> 20} MB after the warm-up, {growth / (1 << 20):+.1f} MB at the end; {steady.rounds} rounds of the "
    )
    report += f"steady client, the slowest {steady.slowest:.3f} s"
    record_property("fuzz", report)
    print(report)
    assert broker.is_running, broker.log.read_text()[-3000:]
    assert steady.rounds > 100
    assert answer_seconds(broker) < 5.0
    assert growth < MAX_GROWTH_BYTES, report
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()
