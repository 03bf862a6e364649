"""Produce requests of the fast lane whose records are appended, and whose responses wait for replicas or the disk."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable
from typing import Final

from oncelog.fail_points.point import fail_point
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.security.quotas.client_limits import ClientLimits
from oncelog_broker.server.dispatch.routes import Route
from oncelog_broker.server.lanes.produce_destination import Destination
from oncelog_broker.server.net.answer_queue import Slot
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.lane import UsualWay
from oncelog_broker.server.records import produce
from oncelog_broker.server.records.services import RecordContext, RecordServices
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.produce import ProduceResponse

MAX_TOGETHER: Final = 16
"""The maximum number of requests of one connection in a group. One sync of the log ends the wait of all requests of a
group, and their responses are sent together. One iteration of the event loop may respond to 32 groups
(`purgatory.WOKEN_PER_TURN`).
"""
TOGETHER_SECONDS: Final = 0.1
"""The number of seconds for which further requests may join a group of requests that wait for one sync. A group has the
time limit of its first request.
"""

respond = fail_point("acknowledge", dropped=lambda: None)(BrokerConnection.respond)
"""Function that sends a response on a connection; its arguments are the connection, the frame and optionally a slot.
The function has the same fail point as the handler.
"""


class ProduceWays:
    """The objects that all requests of one fast lane use, such as the route and the services of the broker."""

    __slots__ = ("_unsynced", "monotonic", "route", "services", "usual", "version")

    def __init__(
        self,
        route: Route,
        version: int,
        services: RecordServices,
        usual: UsualWay,
        monotonic: Callable[[], float],
    ) -> None:
        """`monotonic` returns the monotonic time in seconds."""
        self.route = route
        self.version = version
        self.services = services
        self.usual = usual
        self.monotonic = monotonic
        self._unsynced: SyncedTogether | None = None
        """The newest group of requests that wait only for the disk, not for replicas; None before the first group."""

    def context(self, connection: BrokerConnection, correlation_id: int, client_id: str | None) -> RecordContext:
        """Return the request context for code of the Produce handler that responds to this request."""
        return RequestContext(self.services, connection, ApiKey.PRODUCE, self.version, correlation_id, client_id)

    def wait_for_sync(self, appended: Appended, connection: BrokerConnection, known: Destination) -> Slot:
        """Let a request wait for the next sync of its partition's log; returns the slot of its response."""
        together = self._unsynced
        if together is None or not together.takes(known):
            together = self._unsynced = SyncedTogether(self, connection, known)
        return together.add(appended)

    def charge(self, connection: BrokerConnection, limits: ClientLimits | None, request_bytes: int) -> int:
        """Charge a request that gets its response now to the client's quota. Returns the throttle time in ms."""
        throttling = self.usual.throttling
        if limits is None or throttling is None:
            return 0
        throttle_ms: int = throttling.charge_produce(connection, limits, request_bytes)
        return throttle_ms


class Appended:
    """A batch that was appended and whose response waits for replicas or for the disk."""

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_known",
        "_limits",
        "_next_offset",
        "_offsets",
        "_request_bytes",
        "_slot",
        "_started",
        "_waiting_since",
        "_ways",
    )  # fmt: skip

    def __init__(
        self,
        ways: ProduceWays,
        connection: BrokerConnection,
        correlation_id: int,
        known: Destination,
        limits: ClientLimits | None,
        request_bytes: int,
        offsets: tuple[int, int, int],
    ) -> None:
        """`offsets`: base offset, log append time in ms and log start offset."""
        self._ways = ways
        self._connection = connection
        self._correlation_id = correlation_id
        self._known = known
        self._limits = limits
        self._request_bytes = request_bytes
        self._offsets = offsets
        self._slot: Slot | None = None
        """The request's slot in the connection's answer queue while the request waits."""
        self._started = self._waiting_since = 0.0
        self._next_offset = 0

    def wait(self, next_offset: int, started: float) -> bool:
        """Respond when the records below `next_offset` may be acknowledged. Returns whether the response must wait.
        `started`: the monotonic time, in seconds, at which serving the request began; 0 means that it is not timed."""
        ways, known = self._ways, self._known
        partition, times = known.partition, ways.route.times
        if partition.waits_for_disk and partition.waits_only_for_sync(next_offset, known.required_acks):
            self._started, self._next_offset = started, next_offset
            if times is not None:
                times.waited += 1
                self._waiting_since = ways.monotonic()
            self._slot = ways.wait_for_sync(self, self._connection, known)
            return True
        committed = (
            partition.committed(next_offset)
            if known.required_acks == produce.ACKS_ALL
            else partition.acknowledged(next_offset, known.required_acks)
        )
        if not isinstance(committed, Future):
            if committed is ErrorCode.NONE:
                self._succeed()
            else:
                response, context = self._failure(committed)
                ways.usual.respond(response, ways.route, context)
            return False
        no_longer_than(known.timeout_seconds, committed, ways.services.deadlines)
        self._started = started
        if times is not None:
            times.waited += 1
            self._waiting_since = ways.monotonic()
        self._slot = self._connection.wait_for(committed, reads_frame=False, holds_back=False)
        committed.add_done_callback(self._committed)
        return True

    def _committed(self, committed: Future[ErrorCode]) -> None:
        """Respond to the request: its records may be acknowledged now, or its timeout has passed."""
        connection, slot = self._connection, self._slot
        assert slot is not None
        if committed.cancelled():
            connection.cancelled(slot)
        elif slot.waits_for is not None:  # None if the connection has ended
            if committed.result() is not ErrorCode.NONE:
                self.fail(committed.result())
                return
            answered = self._ways.monotonic() if self._started else 0.0
            self._succeed()
            connection.finish(slot)
            if self._started:
                self.note_answered(answered)

    def wait_for_replicas(self) -> None:
        """Let a request whose records are synced to disk wait for in-sync replicas, then respond. During the sync, the
        partition has got other replicas, and these may be in sync without having the records.
        """
        slot, known = self._slot, self._known
        if slot is None or slot.waits_for is None:
            return
        committed = known.partition.acknowledged(self._next_offset, known.required_acks)
        if isinstance(committed, Future):
            slot.waits_for = committed
            no_longer_than(known.timeout_seconds, committed, self._ways.services.deadlines)
        else:
            code, committed = committed, get_running_loop().create_future()
            committed.set_result(code)
        committed.add_done_callback(self._committed)

    def succeed(self) -> Slot | None:
        """Put the response into the request's slot, which the caller must finish; None if the connection has ended."""
        slot = self._slot
        if slot is None or slot.waits_for is None:
            return None
        self._succeed()
        return slot

    def fail(self, code: ErrorCode) -> None:
        """Respond with the error `code` to a request that has waited, unless the connection has ended."""
        ways, slot = self._ways, self._slot
        if slot is None or slot.waits_for is None:
            return
        response, context = self._failure(code)
        late = get_running_loop().create_future()
        late.set_result(response)
        ways.usual.wait(late, ways.route, context, self._started, slot, self._waiting_since)

    def note_answered(self, answered: float) -> None:
        """Record how long the request has waited, if the request is timed. `answered` is the monotonic time, in
        seconds, when the wait ended.
        """
        ways = self._ways
        if self._started and ways.route.times is not None:
            ways.route.times.note_waited(self._started, self._waiting_since, answered, ways.monotonic())

    def _succeed(self) -> None:
        known = self._known
        throttle_ms = self._ways.charge(self._connection, self._limits, self._request_bytes)
        answer = known.answer(
            known.answer_size,
            self._correlation_id,
            known.answer_head,
            *self._offsets,
            known.answer_middle,
            throttle_ms,
            known.answer_tail,
        )
        respond(self._connection, [answer], self._slot)

    def _failure(self, code: ErrorCode) -> tuple[ProduceResponse | None, RecordContext]:
        """Return the response with error `code`, and the request context."""
        known = self._known
        context = self._ways.context(self._connection, self._correlation_id, known.client_id)
        response = produce.not_replicated(known.request, context, known.partition, self._offsets, code)
        if response is not None:
            response.throttle_time_ms = self._ways.charge(self._connection, self._limits, self._request_bytes)
        return response, context


class SyncedTogether:
    """The requests of one connection that wait for the same sync of one log. Their responses are written together."""

    __slots__ = ("_answer", "_began", "_connection", "_partition", "_round", "_timeout_seconds", "_waiting", "_ways")

    def __init__(self, ways: ProduceWays, connection: BrokerConnection, known: Destination) -> None:
        self._ways = ways
        self._began = ways.monotonic()
        self._connection = connection
        self._partition = partition = known.partition
        self._timeout_seconds = max(known.timeout_seconds, produce.SYNC_SECONDS)
        self._waiting: list[tuple[Appended, Slot]] = []
        answer = partition.synced()
        assert isinstance(answer, Future)
        self._answer = answer
        self._round = partition.purgatory.unsynced
        """The log's list of appends that wait for its next sync. When that sync begins, the log starts another list, so
        a later request finds a different list.
        """
        no_longer_than(self._timeout_seconds, answer, ways.services.deadlines)
        answer.add_done_callback(self._synced)

    def takes(self, known: Destination) -> bool:
        """Whether a request that is appended to this destination now may join this group: the request would wait for
        the same sync, with the same time limit.
        """
        return (
            known.partition is self._partition
            and self._partition.purgatory.unsynced is self._round
            and max(known.timeout_seconds, produce.SYNC_SECONDS) == self._timeout_seconds
            and len(self._waiting) < MAX_TOGETHER
            and not self._answer.done()
            and self._ways.monotonic() - self._began < TOGETHER_SECONDS
        )

    def add(self, appended: Appended) -> Slot:
        """Let the request wait; returns the slot of its response."""
        slot = self._connection.wait_for(self._answer, reads_frame=False, holds_back=False)
        self._waiting.append((appended, slot))
        return slot

    def _synced(self, answer: Future[ErrorCode]) -> None:
        """Respond to all requests: their records are on the disk, or the wait has ended with an error."""
        waiting, self._waiting = self._waiting, []
        if answer.cancelled():
            for _, slot in waiting:
                self._connection.cancelled(slot)
        elif answer.result() is not ErrorCode.NONE:
            for appended, _ in waiting:
                appended.fail(answer.result())
        elif not self._partition.is_alone:
            for appended, _ in waiting:
                appended.wait_for_replicas()
        else:
            answered = self._ways.monotonic()
            ready = [slot for slot in (appended.succeed() for appended, _ in waiting) if slot is not None]
            self._connection.finish_all(ready)
            for appended, _ in waiting:
                appended.note_answered(answered)
