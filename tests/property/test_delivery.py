"""The idempotent producer's sender writes each record at most once over a network that loses, delays and refuses
requests. An acknowledged record is in the log exactly once, and acknowledged records are in order (S20-S28, E15).

The network behaves like TCP and real brokers: after a connection has ended for the producer, the broker may still read
its requests, which the producer has already sent again over the next connection.
"""

import asyncio
import collections
import pathlib
import tempfile

from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.storage import contents, open_log

from oncelog.cluster import Broker, Cluster, Partition, Topic
from oncelog.config import ProducerConfig
from oncelog.errors import ConnectionFailed, KafkaError
from oncelog.producer.accumulator import Accumulator
from oncelog.producer.sender import Sender
from oncelog.producer.session import ProducerSession
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.produce import ProduceResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch

MEMORY = pathlib.Path("/dev/shm")
"""The memory file system for the log; on machines without one, the test uses the normal temporary directory."""
NODE = 1
TURNS = 4
"""Iterations of the event loop, enough to run a callback that another callback scheduled."""
MAX_ROUNDS = 2_000
CONFIG = ProducerConfig(
    bootstrap_servers="nowhere",
    linger_ms=0,
    batch_size=140,  # bytes, about three records
    retry_backoff_ms=0,
    retry_backoff_max_ms=0,
    reconnect_backoff_ms=0,
)
Answer = ProduceResponse.TopicProduceResponse
BEFORE = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE]
AFTER = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


class Connection:
    """One connection, with requests that the broker has not read yet and responses that the producer has not received
    yet.
    """

    def __init__(self, is_open):
        self.unread = collections.deque()
        self.answered = collections.deque()
        self.is_open = is_open

    def start(self, request, version=None):
        future = asyncio.get_running_loop().create_future()
        self.unread.append((request, future))
        return future


class World:
    """A log, a connection and a producer. A `World` also replaces the sender's connection pool and metadata."""

    def __init__(self, directory):
        self.directory = directory
        self.log = open_log(directory)
        self.wire = Connection(True)
        self.is_up = asyncio.Event()
        self.left_behind = collections.deque()
        partition = Partition(0, NODE, 0, (NODE,), (NODE,), (), 0)
        topic = Topic("topic", bytes(16), False, {0: partition})
        self.cluster = Cluster(brokers={NODE: Broker(NODE, "nowhere", 1)}, topics={"topic": topic})
        self.session = ProducerSession()
        self.next_producer_id = 1000
        self.want_identity()
        self.accumulator = Accumulator(CONFIG, self.session)
        self.queue = self.accumulator.queue("topic", 0)
        self.accumulator.set_leaders(self.cluster)
        self.sender = Sender(
            self.accumulator,
            self,
            self,
            CONFIG,
            is_memory_short=lambda: False,
            on_progress=lambda: None,
            session=self.session,
            on_identity_wanted=self.want_identity,
        )
        self.futures = []

    # replacements for the connection pool and the metadata

    def ready(self, node_id):
        return self.wire if self.wire.is_open else None

    async def connection(self, node_id):
        await self.is_up.wait()
        return self.wire

    def request_refresh(self):
        pass

    def want_identity(self):
        self.session.identify(ProducerIdAndEpoch(self.next_producer_id, 0))
        self.next_producer_id += 1

    # steps of the test

    def send(self, count):
        for _ in range(count):
            future = asyncio.get_running_loop().create_future()
            record = (1, None, b"%d" % len(self.futures), (), future)
            self.futures.append(future)
            tail = self.queue.tail
            if tail is None or not tail.append(*record):
                assert self.accumulator.open(self.queue, asyncio.get_running_loop().time(), *record)
        self.sender.wake()

    def serve(self, code=None, is_appended=False):
        """Let the broker read the next request. With a `code` the broker responds with that error, and appends the
        batch only if `is_appended`.
        """
        if self.wire.unread:
            request, future = self.wire.unread.popleft()
            self.wire.answered.append((self.handle(request, code, is_appended), future))

    def handle(self, request, code, is_appended):
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        offset, answered = -1, ErrorCode.NONE
        if code is None or is_appended:
            try:
                offset, _ = self.log.append_as_leader(bytearray(data.records), leader_epoch=0)
            except KafkaError as error:
                answered = error.code
        if code is not None and answered is ErrorCode.NONE:
            answered, offset = code, -1
        result = Answer.PartitionProduceResponse(
            index=0, error_code=answered, base_offset=offset, log_append_time_ms=-1, log_start_offset=0
        )
        return ProduceResponse(responses=[Answer(name="topic", partition_responses=[result])])

    def answer(self):
        if self.wire.answered:
            response, future = self.wire.answered.popleft()
            future.set_result(response)

    def connect(self):
        self.wire.is_open = True
        self.is_up.set()

    def cut(self, is_read_later):
        lost, self.wire = self.wire, Connection(False)
        self.is_up.clear()
        if is_read_later:
            self.left_behind.append(collections.deque(request for request, _ in lost.unread))
        for _, future in [*lost.answered, *lost.unread]:
            future.set_exception(ConnectionFailed("cut"))

    def read_late(self, count):
        """Let the broker read more requests from connections that the producer has closed."""
        for _ in range(count):
            while self.left_behind and not self.left_behind[0]:
                self.left_behind.popleft()
            if self.left_behind:
                self.handle(self.left_behind[0].popleft(), None, False)

    def expire(self, count):
        for batch in list(self.queue.batches)[:count]:
            batch.deadline = 0.0
        self.sender.wake()

    def restart(self):
        self.log.close()
        self.log = open_log(self.directory)

    async def settle(self):
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def finish(self):
        """End all faults, and let requests of closed connections still arrive."""
        self.connect()
        for _ in range(MAX_ROUNDS):
            self.sender.wake()
            await self.settle()
            self.serve()
            self.answer()
            await self.settle()
            if not self.accumulator.incomplete:
                break
        else:
            raise AssertionError(f"stuck: {self.queue.batches}")
        self.read_late(MAX_ROUNDS)


STEP = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 9)),
    st.tuples(st.just("send"), st.integers(9, 20)),
    st.tuples(st.just("serve")),
    st.tuples(st.just("serve")),
    st.tuples(st.just("serve")),
    st.tuples(st.just("answer")),
    st.tuples(st.just("answer")),
    st.tuples(st.just("answer")),
    st.tuples(st.just("connect")),
    st.tuples(st.just("connect")),
    st.tuples(st.just("serve"), st.sampled_from(BEFORE), st.just(False)),
    st.tuples(st.just("serve"), st.sampled_from(AFTER), st.just(True)),
    st.tuples(st.just("cut"), st.booleans()),
    st.tuples(st.just("read_late"), st.integers(1, 3)),
    st.tuples(st.just("expire"), st.integers(1, 2)),
    st.tuples(st.just("restart")),
)


async def run(directory, steps):
    world = World(directory)
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
        await world.settle()
    await world.finish()
    values = [int(value) for _, value in contents(world.log, max_bytes=1_000_000)]
    await world.sender.close()
    world.log.close()
    acknowledged = [number for number, future in enumerate(world.futures) if future.exception() is None]
    counts = collections.Counter(values)
    assert not [number for number, count in counts.items() if count > 1], "written twice"
    assert not [number for number in acknowledged if number not in counts], "acknowledged, and lost"
    kept = [value for value in values if value in set(acknowledged)]
    assert kept == acknowledged, "out of order"
    for number in acknowledged:
        offset = world.futures[number].result().offset
        assert offset in (-1, values.index(number)), "acknowledged elsewhere"


GAP_BEFORE_A_COPY = [
    *[("send", 1), ("serve",), ("answer",)],
    *[("send", 1), ("send", 1), ("serve", ErrorCode.NOT_ENOUGH_REPLICAS, False), ("answer",)],
    *[("cut", True), ("connect",)],  # the request with the third batch is still on the old connection
    *[("serve", ErrorCode.MESSAGE_TOO_LARGE, False), ("answer",)],  # batch 2 fails; its number is free
    *[("serve",), ("answer",), ("serve",), ("answer",), ("read_late", 1)],
]
"""The third batch must not get the second batch's sequence number, because its copy on the old connection would then be
appended without a gap.
"""

PIECES_OF_A_COPY = [
    *[("send", 6), ("serve", ErrorCode.NOT_LEADER_OR_FOLLOWER, True), ("answer",)],
    *[("serve", ErrorCode.MESSAGE_TOO_LARGE, False), ("answer",)],  # this piece is in the log
    *[("serve",), ("expire", 9), ("answer",)],  # the other pieces fail one after the other
    ("send", 1),
]
"""The last record must not get a sequence number of the failed pieces, because the log would then take it for their
duplicate.
"""


@example(GAP_BEFORE_A_COPY)
@example(PIECES_OF_A_COPY)
@examples(100, of=400)
@given(st.lists(STEP, min_size=20, max_size=80))
def test_s8_s22_s27_each_record_is_written_once_whatever_the_wire_does(steps):
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        asyncio.run(run(pathlib.Path(directory) / "topic-0", steps))
