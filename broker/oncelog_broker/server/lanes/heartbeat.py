"""The fast lane of Heartbeat: serves the heartbeats of members of stable groups, which repeat the same bytes and only
restart the member's session timer. The lane of ConsumerGroupHeartbeat is a subclass.

The lane compares all bytes of a request after the correlation id with earlier requests of the connection. Then it
checks the group (`coordinator/group/usual_requests.py`), restarts the session timer, and sends the same response as
before. A heartbeat of which a check fails goes to the handler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.step import GroupTimer, TimerKind
from oncelog_broker.coordinator.group.usual_requests import classic_session
from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.server.dispatch.routes import TIMED_MASK, Route
from oncelog_broker.server.groups.services import GroupContext, GroupServices
from oncelog_broker.server.lanes.repeated import Attempts, ConstantAnswer, RightsNeeded, may_serve, note_time
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_broker.server.net.lane import UsualWay
from oncelog_protocol.errors import KafkaError

MAX_KNOWN: Final = 16
"""The maximum number of requests that a lane remembers, one for each member and generation. When there is no room, the
oldest request is forgotten if its member has left that generation; otherwise no request is remembered.
"""
MAX_REQUEST_BYTES: Final = 1024
"""The maximum size in bytes of a request that a lane remembers."""


class Remembered:
    """A heartbeat that the handler has served, and everything that its repetition needs."""

    __slots__ = ("answer", "client_id", "index", "partitions", "request", "response", "rights", "timer")

    def __init__(
        self,
        request: Any,
        response: Any,
        answer: ConstantAnswer,
        rights: RightsNeeded,
        client_id: str | None,
        index: int,
        partitions: int,
    ) -> None:
        """`index`: the partition of the internal topic that stores the group while the topic has this many
        `partitions`.
        """
        self.request = request
        self.response = response
        self.answer = answer
        self.rights = rights
        self.client_id = client_id
        self.index = index
        self.partitions = partitions
        self.timer = GroupTimer(TimerKind.SESSION, request.group_id, request.member_id)


class HeartbeatLane:
    """The fast lane of one connection for one version of Heartbeat."""

    __slots__ = ("_attempts", "_is_known", "_known", "_monotonic", "_route", "_services", "_usual", "_version")

    RULE: Rule = rules.HEARTBEAT

    def __init__(
        self, route: Route, version: int, services: GroupServices, usual: UsualWay, monotonic: Callable[[], float]
    ) -> None:
        """`monotonic` returns the monotonic time in seconds."""
        self._route = route
        self._version = version
        self._services = services
        self._usual = usual
        self._monotonic = monotonic
        self._known: dict[bytes, Remembered] = {}
        """The bytes of a request after its correlation id -> the request."""
        self._is_known = False
        """Whether the present request is remembered, so that it need not be remembered again."""
        self._attempts = Attempts()

    def serve(self, connection: BrokerConnection, frame: memoryview, correlation_id: int, /) -> bool:
        """Serve the request if the lane can. Returns False if the handler must serve the request; the lane has then
        changed nothing."""
        known = self._known.get(bytes(frame[PREFIX.size :]))
        self._is_known = known is not None
        if known is None:
            return False
        services = self._services
        if not may_serve(connection, services.authorizer, self._usual, known.client_id, known.rights):
            return False
        runtime = services.groups.runtime
        shard = runtime.ready_shard(known.index, known.partitions)
        if shard is None:
            self._is_known = runtime.partitions == known.partitions
            return False
        session_seconds = self._session_seconds(connection, shard.machine, known)
        if session_seconds is None:
            return False
        route, started = self._route, 0.0
        route.requests += 1
        if route.times is not None and route.requests & TIMED_MASK == 1:
            started = self._monotonic()
        runtime.wakes.set(shard, known.timer, session_seconds)
        connection.respond([known.answer.of(correlation_id)])
        note_time(route, started, self._monotonic)
        return True

    def learn(self, frame: memoryview, request: Any, response: Any, context: GroupContext, /) -> None:
        """Remember a request that its handler has just served, so that the lane can serve its repetitions."""
        if self._is_known or response is None or response.error_code or response.throttle_time_ms:
            return
        if len(frame) > MAX_REQUEST_BYTES or not self._may_repeat(request, response):
            return
        if not self._attempts.may_begin():
            return
        runtime = self._services.groups.runtime
        try:
            index = runtime.shard(request.group_id).index
        except KafkaError:
            return
        kept = bytes(frame[PREFIX.size :])
        if len(self._known) == MAX_KNOWN and kept not in self._known and not self._forget_oldest(context.connection):
            return
        answer = ConstantAnswer(self._route, self._version, response)
        rights: RightsNeeded = ((self.RULE.kind, request.group_id),)
        self._known[kept] = Remembered(request, response, answer, rights, context.client_id, index, runtime.partitions)

    def _forget_oldest(self, connection: BrokerConnection) -> bool:
        """Forget the oldest request if its member sends another one now; returns whether there is room now."""
        kept, oldest = next(iter(self._known.items()))
        shard = self._services.groups.runtime.loaded_shard(oldest.index)
        if shard is not None and self._session_seconds(connection, shard.machine, oldest) is not None:
            return False
        del self._known[kept]
        return True

    # --- the differences between the two kinds of heartbeats

    def _may_repeat(self, request: Any, response: Any) -> bool:
        """Whether a repetition of the request may get the same response."""
        return True

    def _session_seconds(self, connection: BrokerConnection, machine: GroupMachine, known: Remembered) -> float | None:
        """Return the seconds for which a repetition extends the member's session; None if the handler must serve the
        request."""
        return classic_session(machine, known.request, known.request.generation_id)


make_lane = HeartbeatLane
"""The constructor of the fast lane. `server/served.py` loads it by this name."""
