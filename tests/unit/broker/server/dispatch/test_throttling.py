"""Client quotas: which parts of a request are charged, how long the client waits, and how its connection behaves during
the wait.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from heapq import heappop, heappush
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.virtual_time import run_virtually
from tests.support.wires import Wire, frame, until

from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.principal import Principal
from oncelog_broker.security.quotas.bucket import MAX_DEBT_WINDOWS
from oncelog_broker.server.dispatch.metered import MeteredContext
from oncelog_broker.server.dispatch.throttling import Throttling
from oncelog_broker.server.net.connection import PutOff
from oncelog_broker.server.net.connection_rates import ConnectionRates
from oncelog_broker.server.net.limits import FRAME_SECONDS, LARGE_REQUEST_BYTES
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.heartbeat import HeartbeatResponse
from oncelog_protocol.quotas import DEFAULT, QuotaEntity, QuotaKey

ALICE = QuotaEntity("alice")
CONFIG: Any = {key: key.default for key in BROKER_KEYS.values()}
WINDOW = 10.0


class Connection(SimpleNamespace):
    def throttle(self, seconds: float) -> None:
        self.throttled.append(seconds)


class Broker:
    """The parts of a broker that throttle clients, and its clients."""

    def __init__(self, **quotas: float) -> None:
        self.clock = ManualClock()
        self.tasks = Tasks()
        self.services: Any = SimpleNamespace(
            clock=self.clock,
            slices=Slices(self.clock, self.tasks),
            tasks=self.tasks,
            at_work=asyncio.Semaphore(10),
            authorizer=None,
        )
        self.throttling = Throttling(CONFIG, self.clock)
        self.set(ALICE, **quotas)

    def set(self, entity: QuotaEntity, **quotas: float) -> Throttling | None:
        image = ClusterImage("c").with_quotas({entity: {QuotaKey(key): value for key, value in quotas.items()}})
        return self.throttling.on_image(image)

    def client(self, user: str = "alice") -> Any:
        return Connection(gate=None, client_limits=None, principal=Principal("User", user), throttled=[])

    def context(self, connection: Any, api: ApiKey = ApiKey.HEARTBEAT, version: int = 4, size: int = 100) -> Any:
        return self.throttling.context(self.services, connection, api, version, 1, "c", size)

    def ask(self, connection: Any, cpu_seconds: float = 0.0, **of_request: Any) -> int:
        """Return the throttle time in ms of a response whose request takes this much CPU time."""
        context = self.context(connection, **of_request)

        def handler(_: Any, __: Any) -> HeartbeatResponse:
            self.clock.processor_seconds += cpu_seconds
            return HeartbeatResponse(error_code=0)

        response: Any = self.throttling.serve(handler, None, context)
        if isinstance(context, MeteredContext):
            context.handled()
        throttle_ms: int = response.throttle_time_ms
        assert connection.throttled[-1:] == ([throttle_ms / 1000] if throttle_ms else connection.throttled[-1:])
        return throttle_ms


async def test_no_usage_is_counted_without_quotas() -> None:
    broker = Broker()
    assert broker.set(ALICE) is None, "dispatch has nobody to ask"
    assert broker.set(QuotaEntity(ip=DEFAULT), connection_creation_rate=1) is None
    assert broker.set(ALICE, producer_byte_rate=1) is broker.throttling
    assert type(broker.context(broker.client("bob"))) is RequestContext
    assert type(broker.context(broker.client())) is MeteredContext


async def test_quotas_are_looked_up_again_when_quotas_or_client_change() -> None:
    broker, connection = Broker(producer_byte_rate=1), None
    connection = broker.client()
    assert broker.context(connection).limits.produce.rate == 1
    known = connection.client_limits
    broker.context(connection)
    assert connection.client_limits is known
    broker.set(ALICE, producer_byte_rate=2)
    assert broker.context(connection).limits.produce.rate == 2
    connection.principal = Principal("User", "bob")
    assert type(broker.context(connection)) is RequestContext


async def test_an_unauthenticated_client_has_no_quota() -> None:
    broker = Broker()
    broker.set(QuotaEntity(DEFAULT), request_percentage=1)
    connection = broker.client("ANONYMOUS")
    connection.gate = SimpleNamespace(exchange=SimpleNamespace(is_done=False))
    assert type(broker.context(connection)) is RequestContext
    connection.gate.exchange.is_done = True
    assert type(broker.context(connection)) is MeteredContext


async def test_the_processors_time_counts_as_a_share_of_it() -> None:
    broker = Broker(request_percentage=10)
    connection = broker.client()
    assert broker.ask(connection, cpu_seconds=0.9) == 0, "of a window it may have a second"
    assert broker.ask(connection, cpu_seconds=0.15) in (500, 501)
    assert broker.ask(connection, cpu_seconds=3) == 1000, "a second at most for one request"
    broker.clock.advance_ms(60_000)
    assert broker.ask(connection) == 0


@pytest.mark.parametrize("rate", [5e-324, 1e-308, 1e-300])
async def test_a_quota_of_next_to_nothing_is_a_quota(rate: float) -> None:
    """A client with a tiny quota waits, and the operator can still correct the quota."""
    broker = Broker(request_percentage=rate, controller_mutation_rate=rate)
    connection = broker.client()
    broker.ask(connection, cpu_seconds=1.0)
    assert broker.ask(connection, cpu_seconds=1.0) == 1000
    with broker.context(connection, api=ApiKey.CREATE_TOPICS, version=5).mutations(1000):
        pass
    context = broker.context(connection, api=ApiKey.CREATE_TOPICS, version=5)
    with context.mutations(1000):
        pass
    response: Any = broker.throttling.serve(lambda *_: HeartbeatResponse(error_code=0), None, context)
    assert response.throttle_time_ms == 2**31 - 1


async def test_an_infinite_quota_is_accepted() -> None:
    broker = Broker(consumer_byte_rate=1e308)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[])
    context = broker.context(broker.client(), api=ApiKey.FETCH)
    broker.throttling.serve(lambda *_: FetchResponse(responses=[]), request, context)
    assert request.max_bytes == 1000


async def test_a_session_that_is_refused_late_is_an_error_of_the_fetch() -> None:
    """A fetch of many partitions that must wait is processed in slices."""
    broker = Broker(consumer_byte_rate=1)
    connection = broker.client()
    context = broker.context(connection, api=ApiKey.FETCH, version=12)
    broker.throttling.use(QuotaKey.CONSUMER_BYTE_RATE, context.limits.fetch, 1000)

    def plan(*_: Any, **__: Any) -> Steps[Any]:
        broker.clock.advance_ms(1000)
        yield None
        raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)

    broker.services.fetch_sessions = SimpleNamespace(plan=plan)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=7, session_epoch=3, topics=[])
    answer: Any = broker.throttling.serve(lambda *_: None, request, context)
    response = await answer
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert response.throttle_time_ms > 0


async def test_the_work_of_a_request_is_counted_once() -> None:
    broker = Broker(request_percentage=10)
    connection = broker.client()
    context = broker.context(connection)
    clock = broker.clock

    def steps() -> Steps[int]:
        for _ in range(4):
            clock.processor_seconds += 0.1
            clock.advance_ms(1)
            yield None
        return 7

    async def task() -> int:
        clock.processor_seconds += 0.1
        await asyncio.sleep(0)
        clock.processor_seconds += 0.1
        with pytest.raises(asyncio.CancelledError):
            raise asyncio.CancelledError
        return 8

    late = context.in_slices(steps())
    assert isinstance(late, asyncio.Future)
    clock.processor_seconds += 0.1
    context.handled()
    clock.processor_seconds += 100  # somebody else's
    assert await late == 7
    assert await context.in_a_task(task()) == 8
    assert context.spent == pytest.approx(0.7)


async def test_a_request_that_was_decoded_in_slices_is_counted_when_its_turn_has_come() -> None:
    broker = Broker(request_percentage=10)
    context = broker.context(broker.client())
    context.handled()
    broker.clock.processor_seconds += 100  # somebody else's

    def handler(_: Any, __: Any) -> HeartbeatResponse:
        broker.clock.processor_seconds += 1.05
        return HeartbeatResponse(error_code=0)

    assert broker.throttling.serve(handler, None, context).throttle_time_ms in (500, 501)
    broker.clock.processor_seconds += 100
    context.handled()
    assert broker.throttling.serve(handler, None, context).throttle_time_ms == 1000


async def test_a_task_is_told_that_it_is_cancelled() -> None:
    broker = Broker(request_percentage=10)
    context = broker.context(broker.client())
    context.handled()
    began, told = asyncio.Event(), asyncio.Event()

    async def task() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            raise

    running = asyncio.get_running_loop().create_task(context._timed_task(task()))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert told.is_set()


async def test_inter_broker_requests_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(request_percentage=0.001)
    monkeypatch.setattr(RequestContext, "is_for_brokers", True)
    connection = broker.client()
    context = broker.context(connection)

    def handler(_: Any, context: Any) -> HeartbeatResponse:
        broker.clock.processor_seconds += 5
        assert context.may_as_broker(rules.ALTER_PARTITION)
        return HeartbeatResponse(error_code=0)

    assert broker.throttling.serve(handler, None, context).throttle_time_ms == 0
    context.handled()
    assert connection.throttled == []
    assert broker.ask(connection) == 0


@pytest.mark.parametrize("version", [5, 6])
async def test_changes_are_refused_or_waited_for_by_what_the_client_knows(version: int) -> None:
    broker = Broker(controller_mutation_rate=1)  # eleven simultaneous requests
    connection = broker.client()

    def change(partitions: int, fails: bool = False) -> int:
        context = broker.context(connection, ApiKey.CREATE_TOPICS, version)

        def handler(_: Any, context: Any) -> HeartbeatResponse:
            try:
                with context.mutations(partitions):
                    if fails:
                        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
            except KafkaError as error:
                return HeartbeatResponse(error_code=error.code)
            return HeartbeatResponse(error_code=0)

        response = broker.throttling.serve(handler, None, context)
        is_refused = response.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert is_refused == (version == 6 and response.throttle_time_ms > 0)
        return int(response.throttle_time_ms)

    assert change(100, fails=True) == 0, "what was not made does not count"
    assert change(0) == 0
    assert change(16) == (0 if version == 6 else 5000)
    assert change(1) == (5000 if version == 6 else 6000)
    broker.clock.advance_ms(30_000)
    assert change(1) == 0


async def test_a_client_id_of_any_length_takes_little_room() -> None:
    broker = Broker()
    broker.set(QuotaEntity(DEFAULT, DEFAULT), producer_byte_rate=1)
    connection = broker.client()
    names = ["x" * 30_000, "x" * 30_001]
    limits = [
        broker.throttling.context(broker.services, connection, ApiKey.PRODUCE, 9, 1, name, 100).limits  # type: ignore[attr-defined]
        for name in names
    ]
    shared = [each.produce.shared_by for each in limits]
    assert shared[0] != shared[1]
    assert all(len(each.client_id) < 100 for each in shared)


# --- new connections, which have not used any quota themselves


class Line:
    """A client that opens a new connection for each request; the broker delays the request, and the client then closes
    the connection.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def send(self, **of_request: Any) -> float:
        """Send one request; return the seconds for which the request was delayed before it was served. The throttle
        time is ignored, because a client that disconnects does not wait for it.
        """
        connection, waited = self.broker.client(), 0.0
        while True:
            try:
                self.broker.ask(connection, **of_request)
            except PutOff as put_off:
                waited += put_off.seconds
                self.broker.clock.advance_ms(math.ceil(put_off.seconds * 1000))
                assert waited < 1000
            else:
                return waited


async def test_s95_a_connection_for_each_request_keeps_the_rate() -> None:
    """With an earlier defect, a client that reconnected for each request reached 42 MB/s although its quota was 100
    kB/s.
    """
    broker = Broker(producer_byte_rate=100_000)
    line, began = Line(broker), broker.clock.monotonic()
    for _ in range(200):
        line.send(api=ApiKey.PRODUCE, size=50_000)
    assert broker.clock.monotonic() - began >= (199 * 50_000) / 100_000 - WINDOW


async def test_s95_a_request_before_changes_nothing() -> None:
    broker = Broker(producer_byte_rate=1000)
    broker.ask(broker.client(), api=ApiKey.PRODUCE, size=15_000)
    connection = broker.client()
    assert broker.ask(connection, api=ApiKey.METADATA) == 0
    with pytest.raises(PutOff) as raised:
        broker.ask(connection, api=ApiKey.PRODUCE, size=1)
    assert raised.value.seconds == pytest.approx(5)


async def test_s95_a_client_over_quota_is_answered_and_then_waits_as_in_kafka() -> None:
    broker = Broker(producer_byte_rate=1000)
    connection = broker.client()
    assert broker.ask(connection, api=ApiKey.PRODUCE, size=9_000) == 0
    assert broker.ask(broker.client(), api=ApiKey.PRODUCE, size=2_000) == 1000
    assert broker.ask(connection, api=ApiKey.PRODUCE, size=1_000) == 2000


async def test_s95_old_requests_for_topics_do_not_escape_either() -> None:
    broker = Broker(controller_mutation_rate=1)
    context = broker.context(broker.client(), ApiKey.CREATE_TOPICS, 5)
    with context.mutations(16):
        pass
    with pytest.raises(PutOff) as raised:
        broker.context(broker.client(), ApiKey.CREATE_TOPICS, 5)
    assert raised.value.seconds == pytest.approx(5)
    with context.mutations(1000):
        pass
    waiting = broker.client()
    with pytest.raises(PutOff) as raised:
        broker.context(waiting, ApiKey.CREATE_TOPICS, 5)
    assert raised.value.seconds == broker.throttling.mutations.window, "it is answered in time"
    broker.context(waiting, ApiKey.CREATE_TOPICS, 5)
    broker.context(broker.client(), ApiKey.CREATE_TOPICS, 6)  # the handler refuses this request
    broker.context(broker.client(), ApiKey.METADATA, 6)


async def test_s95_the_processors_time_is_waited_for_once_and_for_a_window_at_most() -> None:
    broker = Broker(request_percentage=1)
    broker.ask(broker.client(), cpu_seconds=100)
    connection = broker.client()
    with pytest.raises(PutOff) as raised:
        broker.ask(connection)
    assert raised.value.seconds == 1.0
    broker.ask(connection)


async def test_s95_the_debt_of_many_has_a_bound_and_the_rate_holds_all_the_same() -> None:
    """A thousand connections, each of which used the quota once, together used up the quota of a hundred windows."""
    broker = Broker(producer_byte_rate=1000)
    many = [broker.client() for _ in range(1000)]
    for connection in many:
        broker.ask(connection, api=ApiKey.PRODUCE, size=1)
    for connection in many:
        broker.ask(connection, api=ApiKey.PRODUCE, size=1_000)
    owed = broker.throttling.wait(QuotaKey.PRODUCER_BYTE_RATE, many[0].client_limits.produce)
    assert owed == MAX_DEBT_WINDOWS * WINDOW
    broker.clock.advance_ms(math.ceil(owed * 1000))
    served = 0
    for connection in many:
        try:
            broker.ask(connection, api=ApiKey.PRODUCE, size=1_000)
            served += 1
        except PutOff:
            pass
    assert served < 60, "those whose debt was forgotten are asked again, one after the other"


class Sharing:
    """Connections that share alice's quota; each sends its next request as soon as it may."""

    SIZE = 1000

    def __init__(self, rate: float, users: int, *, are_new: bool = False) -> None:
        """`are_new` means that each client reconnects for each request, so that throttle times do not delay it."""
        self.broker = Broker(producer_byte_rate=rate)
        self.served: Counter[int] = Counter()
        self.longest_wait = 0.0
        self._are_new = are_new
        self._queue: list[tuple[float, int, Any]] = []
        self._since: dict[int, float] = {}
        for number in range(users):
            self.add(number, 0.0)

    def add(self, number: int, at: float) -> None:
        heappush(self._queue, (at, number, self.broker.client()))

    def run(self, seconds: float) -> None:
        clock = self.broker.clock
        while self._queue[0][0] <= seconds:
            at, number, connection = heappop(self._queue)
            clock.advance_ms(max(0, math.ceil((at - clock.monotonic()) * 1000)))
            now = clock.monotonic()
            since = self._since.setdefault(number, now)
            try:
                throttle_ms = self.broker.ask(connection, api=ApiKey.PRODUCE, size=self.SIZE)
            except PutOff as put_off:
                heappush(self._queue, (now + put_off.seconds, number, connection))
                continue
            self.served[number] += 1
            self.longest_wait = max(self.longest_wait, now - since)
            del self._since[number]
            if self._are_new:
                self.add(number, now + 0.001)
            else:
                heappush(self._queue, (now + throttle_ms / 1000 + 0.001, number, connection))


@pytest.mark.parametrize("users", [1, 2, 10, 40])
async def test_s95_steady_users_of_a_quota_do_not_delay_a_new_connection(users: int) -> None:
    """A new connection waits only for the usage that preceded its arrival."""
    sharing = Sharing(1000, users)
    sharing.add(users, 60.0)
    sharing.run(60.0 + MAX_DEBT_WINDOWS * WINDOW + 1)
    assert sharing.served[users] >= 1


@pytest.mark.parametrize(("users", "are_new"), [(2, False), (2, True), (40, False), (40, True), (400, False)])
async def test_s95_every_sharer_of_a_quota_has_a_turn_and_the_rate_holds(users: int, are_new: bool) -> None:
    sharing, seconds = Sharing(1000, users, are_new=are_new), 3600.0
    sharing.run(seconds)
    total = sharing.served.total()
    assert total <= seconds + WINDOW + MAX_DEBT_WINDOWS * WINDOW + users, "a request each second; some are not paid yet"
    assert total >= 0.5 * seconds, "what may be used is used"
    assert len(sharing.served) == users
    assert min(sharing.served.values()) >= 0.2 * total / users


async def test_s95_a_waiting_request_is_not_charged_twice() -> None:
    broker = Broker(producer_byte_rate=1000)
    broker.ask(broker.client(), api=ApiKey.PRODUCE, size=15_000)
    connection = broker.client()
    with pytest.raises(PutOff):
        broker.ask(connection, api=ApiKey.PRODUCE, size=2_000)
    broker.clock.advance_ms(5000)
    assert broker.ask(connection, api=ApiKey.PRODUCE, size=2_000) in (2000, 2001)
    broker.clock.advance_ms(2001)
    assert broker.ask(connection, api=ApiKey.PRODUCE, size=3_000) in range(2998, 3001)


async def test_a_single_request_is_charged_in_full() -> None:
    broker = Broker(producer_byte_rate=1)
    assert broker.ask(broker.client(), api=ApiKey.PRODUCE, size=1_000) == (1_000 - WINDOW) * 1000


def test_a_request_that_is_put_off_stays_unread_and_is_given_again() -> None:
    async def run() -> None:
        wire = Wire()
        handle, seconds = wire.connection._handle, [5.0, 3.0]

        def putting_off(connection: Any, received: memoryview) -> None:
            if seconds:
                raise PutOff(seconds.pop(0))
            handle(connection, received)

        wire.connection._handle = putting_off
        wire.receive(frame(b"a" * 8) + frame(b"b" * 8))
        await asyncio.sleep(7)
        assert wire.dispatcher.frames == []
        await asyncio.sleep(2)
        assert wire.dispatcher.frames == [b"a" * 8, b"b" * 8]

    run_virtually(run())


async def test_a_large_request_that_is_put_off_is_not_copied() -> None:
    wire = Wire(request_max_bytes=4_000_000)
    handle, puts_off = wire.connection._handle, [True]

    def putting_off(connection: Any, received: memoryview) -> None:
        if puts_off:
            raise PutOff(puts_off.pop() * 5.0)
        handle(connection, received)

    wire.connection._handle = putting_off
    wire.receive(frame(b"x" * 3_000_000))
    await until(lambda: not puts_off)
    view = wire.connection._received._view
    assert wire.transport.paused
    wire.connection._end_throttling()
    await until(lambda: bool(wire.dispatcher.frames))
    assert wire.dispatcher.last_frame.obj is view.obj


async def test_a_request_that_is_put_off_gives_up_the_memory_that_others_need() -> None:
    broker = Broker(producer_byte_rate=1)
    wire = Wire(queued_max_request_bytes=400_000)
    broker.ask(broker.client(), api=ApiKey.PRODUCE, size=100_000)
    handle = wire.connection._handle

    def limited(connection: Any, received: memoryview) -> None:
        broker.throttling.context(broker.services, connection, ApiKey.PRODUCE, 9, 1, "c", len(received))
        handle(connection, received)

    wire.connection.principal = Principal("User", "alice")
    wire.connection._handle = limited
    wire.receive(frame(b"a" * 100_000))
    assert wire.connection._unthrottle is not None
    assert wire.dispatcher.frames == []
    wire.limits.requests.is_short = True
    wire.connection.sweep(asyncio.get_running_loop().time())
    await until(lambda: bool(wire.dispatcher.frames))
    wire.connection.connection_lost(None)


# --- the behaviour of the connection


async def test_a_connection_that_waits_handles_nothing_and_takes_no_more_than_its_buffer() -> None:
    wire = Wire()
    wire.receive(frame(b"a" * 8))
    wire.connection.throttle(60)
    taken = wire.receive(frame(b"b" * 1000) * 1000)
    assert wire.dispatcher.frames == [b"a" * 8]
    assert taken <= 64 * 1024
    assert wire.transport.paused
    wire.connection._end_throttling()
    assert len(wire.dispatcher.frames) > 10
    assert not wire.transport.paused


async def test_the_rest_of_a_pipelined_batch_waits_too() -> None:
    wire = Wire()
    handle = wire.connection._handle

    def throttled(connection: Any, received: memoryview) -> None:
        handle(connection, received)
        connection.throttle(60)

    wire.connection._handle = throttled
    wire.receive(frame(b"a" * 8) + frame(b"b" * 8))
    assert wire.dispatcher.frames == [b"a" * 8]
    for _ in range(3):
        await asyncio.sleep(0)
    assert wire.dispatcher.frames == [b"a" * 8]
    wire.connection._end_throttling()
    assert wire.dispatcher.frames == [b"a" * 8, b"b" * 8]
    wire.connection.connection_lost(None)


async def test_a_large_request_that_waits_again_and_again_stands_in_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()
    line = wire.connections.large_requests
    joined: list[Any] = []
    join = line.join
    monkeypatch.setattr(line, "join", lambda waiting: (joined.append(waiting), join(waiting)))
    line.budget.claim()
    wire.turn_seconds = 2.0
    wire.receive(frame(b"x" * 2 * LARGE_REQUEST_BYTES))
    assert wire.dispatcher.frames == []
    for _ in range(5):
        wire.connection.throttle(60)
        wire.connection._end_throttling()
    assert joined == [wire.connection]
    await until(lambda: bool(wire.dispatcher.frames))


def test_a_throttled_connection_continues_after_the_longest_delay() -> None:
    async def run() -> None:
        wire = Wire()
        wire.connection.throttle(5)
        wire.connection.throttle(30)
        wire.connection.throttle(1)
        wire.receive(frame(b"a" * 8))
        await asyncio.sleep(29)
        assert wire.dispatcher.frames == []
        await asyncio.sleep(2)
        assert wire.dispatcher.frames == [b"a" * 8]

    run_virtually(run())


def test_a_partial_frame_has_its_full_time_after_the_delay() -> None:
    async def run() -> None:
        wire = Wire()
        whole = frame(b"a" * 100)
        wire.receive(whole[:50])
        loop = asyncio.get_running_loop()
        wire.connection.throttle(10 * FRAME_SECONDS)
        await asyncio.sleep(9 * FRAME_SECONDS)
        wire.connection.sweep(loop.time())
        await asyncio.sleep(1.5 * FRAME_SECONDS)
        wire.connection.sweep(loop.time())
        assert not wire.transport.aborted
        wire.receive(whole[50:])
        assert wire.dispatcher.frames == [b"a" * 100]

    run_virtually(run())


async def test_a_client_that_goes_takes_its_timer_with_it() -> None:
    wire = Wire()
    wire.connection.throttle(1000)
    timer = wire.connection._unthrottle
    assert timer is not None
    assert not wire.connection.eof_received()
    wire.connection.connection_lost(None)
    assert timer.cancelled()
    assert len(wire.connections) == 0


async def test_requests_sent_before_a_disconnect_are_handled_after_the_delay() -> None:
    wire = Wire()
    wire.connection.throttle(1000)
    wire.receive(frame(b"a" * 8))
    assert wire.connection.eof_received(), "it stays until then"
    wire.connection._end_throttling()
    assert wire.dispatcher.frames == [b"a" * 8]
    assert wire.transport.closed


async def test_a_throttled_connection_in_line_with_a_large_request_waits_for_both() -> None:
    """A connection that waits for memory and for its throttle time reads again only after both waits have ended, in any
    order.
    """
    for line_moves_first in (True, False):
        wire = Wire()
        wire.connections.budget.claim()
        wire.turn_seconds = 2.0  # the time for this turn of the loop is used
        large = frame(b"a" * (LARGE_REQUEST_BYTES + 1))
        wire.receive(large)
        wire.connection.throttle(1000)
        steps = [wire.connection.take_slice, wire.connection._end_throttling]
        first, second = steps if line_moves_first else reversed(steps)
        first()
        assert wire.dispatcher.frames == []
        wire.turn_seconds = 0.5
        second()
        assert [len(body) for body in wire.dispatcher.frames] == [LARGE_REQUEST_BYTES + 1]
        wire.connection.connection_lost(None)


async def test_a_throttled_connection_releases_memory_that_others_need() -> None:
    """While a connection is throttled, other connections use the memory that was reserved for its large request;
    afterwards the broker continues to read that request.
    """
    wire = Wire(queued_max_request_bytes=400_000)
    large = frame(b"a" * 100_000)
    wire.receive(large[:90_000])
    assert wire.connection._received.memory.held
    wire.connection.throttle(1000)
    wire.limits.requests.is_short = True
    wire.connection.sweep(asyncio.get_running_loop().time())
    wire.receive(large[90_000:])
    assert wire.dispatcher.frames == [b"a" * 100_000]


# --- the connection rate of an address


class Transport:
    def __init__(self, events: list[str]) -> None:
        self.events = events

    def pause_reading(self) -> None:
        self.events.append("paused")

    def abort(self) -> None:
        self.events.append("aborted")


async def test_an_address_is_turned_away_without_being_counted_again() -> None:
    clock = ManualClock()
    rates = ConnectionRates(CONFIG, clock)
    events: list[str] = []

    def is_let_in(address: str) -> bool:
        transport: Any = Transport(events)
        return not rates.refuse_if_over_rate(transport, address)

    assert is_let_in("10.0.0.1")
    rates.on_image(ClusterImage("c").with_quotas({QuotaEntity(ip=DEFAULT): {QuotaKey.CONNECTION_CREATION_RATE: 1.0}}))
    assert sum(is_let_in("10.0.0.1") for _ in range(1000)) == WINDOW + 1
    assert is_let_in("10.0.0.2"), "each for itself"
    assert not is_let_in("::ffff:10.0.0.1"), "the same address, through another socket"
    assert events.count("paused") == 256, "so many wait to be closed, the others are closed at once"
    clock.advance_ms(1001)
    assert is_let_in("10.0.0.1"), "those that were turned away do not count"
    rates.close()
    assert events.count("aborted") == 1000 - WINDOW
