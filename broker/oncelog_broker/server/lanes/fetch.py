"""The fast lane of Fetch: serves requests that name at most one partition, with or without a fetch session.

The lane recognises a request that differs from an earlier request only in numbers (epochs, offsets, the partition's
index): the bytes around these numbers are equal. `one_fetch` checks the partitions of a request, waits, and responds.

Order: first the fast lane checks all partitions. The lane declines the request if the handler of Fetch must serve one
of these partitions, for example because of an error, a diverging log or a throttle. After these checks, the fast lane
counts the request in its fetch session, and records a follower's position in each partition. After the request is
counted, the lane may still find a case that it does not serve: two partitions with changes, or aborted transactions.
`records.fetch.read_again` serves such a request.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from oncelog_broker.config.broker_keys import FETCH_MAX_BYTES
from oncelog_broker.server.dispatch.routes import Route
from oncelog_broker.server.kept.fetch_sessions import (
    FINAL_EPOCH,
    FIRST_TOPIC_ID_VERSION,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
)
from oncelog_broker.server.kept.session_partition import SessionPartition, TopicName, Wanted
from oncelog_broker.server.lanes.fetch_answers import FetchAnswers
from oncelog_broker.server.lanes.one_fetch import Asked, FetchWays, OneFetch
from oncelog_broker.server.lanes.repeated import Attempts
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_broker.server.net.lane import UsualWay
from oncelog_broker.server.records.nearest_replica import chooses
from oncelog_broker.server.records.services import RecordContext, RecordServices
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.schema import fields_of
from oncelog_protocol.templates import NoTemplate, changing

FetchPartition = FetchRequest.FetchTopic.FetchPartition

MIN_VERSION: Final = 10
"""First version of Fetch that the lane serves; older versions have fewer fields, and their clients may not understand
zstd.
"""
MAX_KNOWN: Final = 64
"""The maximum number of requests that a lane remembers, one for each topic and session. When there is no room, the lane
forgets the oldest request at once if its session has ended. At every MAX_KNOWN-th request that finds no room, the lane
also forgets the oldest request if it has not come again; otherwise this request becomes the newest one. A client that
asks for more topics in turn thus keeps the remembered requests, and does not pay for an attempt at each request.
"""
MAX_PARTITIONS: Final = 256
"""The maximum number of partitions that a lane remembers for requests without a session, for all topics together."""
MAX_REQUEST_BYTES: Final = 2048
"""The maximum size in bytes of a request that a fast lane remembers."""
MAX_LOOKED_AT: Final = 1000
"""Maximum number of active partitions of a session that a lane serves: the lane checks all of them in one iteration of
the loop, which takes about a microsecond for each partition.
"""


class FetchLane:
    """The fast lane (fast path for repeated requests) of one connection for one version of Fetch."""

    __slots__ = (
        "_attempts",
        "_by_id",
        "_config",
        "_is_known",
        "_known",
        "_layouts",
        "_misses",
        "_numbers",
        "_services",
        "_version",
        "_ways",
    )

    def __init__(
        self, route: Route, version: int, services: RecordServices, usual: UsualWay, monotonic: Callable[[], float]
    ) -> None:
        """`monotonic` returns the monotonic time in seconds."""
        self._version = version
        self._by_id = version >= FIRST_TOPIC_ID_VERSION
        self._services = services
        answers = FetchAnswers(version, flexible=route.flexible_response)
        self._ways = FetchWays(route, version, services, usual, monotonic, answers)
        self._numbers = tuple(
            field.name for field in fields_of(FetchPartition) if version in field.versions and field.tag is None
        )
        """The names of the numeric fields of a partition in a request."""
        self._layouts: dict[int, Struct] = {}
        """Maps a frame's size to a template: which bytes of the request are compared, and which bytes are numbers. It
        has the sizes of the remembered requests only.
        """
        self._known: dict[tuple[bytes, ...], Asked] = {}
        """The bytes around the numbers of a request -> what the lane remembers about requests with these bytes."""
        self._misses = 0
        """The number of requests that found no room, because no session had ended."""
        self._config: object = None
        """The broker configuration from which the field `max_bytes` of `_ways` was set."""
        self._is_known = False
        """Whether the present request equals an earlier request except for the numbers."""
        self._attempts = Attempts()

    def serve(self, connection: BrokerConnection, frame: memoryview, correlation_id: int, /) -> bool:
        """Serve the request if the lane can. Returns False if the handler must serve the request; the lane has then
        changed nothing."""
        layout = self._layouts.get(len(frame))
        fields = () if layout is None else layout.unpack_from(frame, PREFIX.size)
        asked = self._known.get(fields[::2])
        self._is_known = asked is not None
        if asked is None:
            return False
        asked.was_used = True
        throttling = self._ways.usual.throttling
        if throttling is not None:
            limits = throttling.known_limits(connection, asked.client_id)
            if limits is None or limits.request is not None or (asked.follower is None and limits.fetch is not None):
                return False
        session_epoch, *numbers = fields[1::2]
        services, session, named, new = self._services, None, None, None
        if numbers:
            new = Wanted(asked.topic, FetchPartition(**dict(zip(self._numbers, numbers, strict=True))))
        if asked.session_id == NO_SESSION:
            named = None if new is None else asked.partitions.get(new.request.partition)
            if named is None or session_epoch != FINAL_EPOCH:
                return False
            partitions = [named]
        else:
            session = services.fetch_sessions.find(
                asked.session_id, follower=asked.follower_id, owner=connection.principal
            )
            if session is None or session.epoch != session_epoch or session.by_id is not self._by_id:
                return False
            if new is not None:
                named = session.partitions.get((asked.topic, new.request.partition))
                if named is None:
                    return False
            if not session.partitions or len(session.active) > MAX_LOOKED_AT or session.follower != asked.follower:
                return False
            if named is not None and named.idle_in is not None:
                named.activate()
            partitions = list(session.active.values())
        if services.config is not self._config:
            self._config, self._ways.max_bytes = services.config, services.config[FETCH_MAX_BYTES]
        one, before = OneFetch(self._ways, connection, correlation_id, asked, session, partitions), None
        if named is not None and new is not None:
            before, named.wanted = named.wanted, new
        if one.look():
            one.serve()
            return True
        if named is not None and before is not None:
            named.wanted = before
        return False

    # --- methods that remember requests that the handler has served ---------------------------------------------------

    def learn(
        self, frame: memoryview, request: FetchRequest, response: FetchResponse | None, context: RecordContext, /
    ) -> None:
        """Remember a request that its handler has just served, so that the lane can serve similar requests later."""
        if self._version < MIN_VERSION or len(request.topics) > 1 or request.forgotten_topics_data:
            return
        named = request.topics[0].partitions if request.topics else []
        if len(named) > 1 or len(frame) > MAX_REQUEST_BYTES or (response is not None and response.error_code):
            return
        is_in_session = request.session_id != NO_SESSION and request.session_epoch > INITIAL_EPOCH
        is_alone = request.session_id == NO_SESSION and request.session_epoch == FINAL_EPOCH and bool(named)
        if not (is_in_session or is_alone) or chooses(context):
            return
        if not self._attempts.may_begin():
            return
        if is_alone:
            self._learn_alone(frame, request, response, context)
            return
        asked = self._asked(frame, request, context)
        if asked is None:
            return
        session = self._session_of(asked, context)
        if session is not None and len(session.active) <= MAX_LOOKED_AT:
            for each in session.active.values():
                self._find(each, context)

    def _learn_alone(
        self, frame: memoryview, request: FetchRequest, response: FetchResponse | None, context: RecordContext
    ) -> None:
        """Remember the partition of a request without a session, if this broker leads the partition and the response
        has no error. A response that comes later has no error, because a request does not wait after an error.
        """
        topic = request.topics[0]
        each = SessionPartition(Wanted(TopicName(topic.topic, topic.topic_id), topic.partitions[0]))
        if response is None or not any(one.error_code for named in response.responses for one in named.partitions):
            self._find(each, context)
        if each.partition is None and not self._is_known:
            return
        asked, index = self._asked(frame, request, context), topic.partitions[0].partition
        if asked is None:
            return
        if each.partition is None:
            asked.partitions.pop(index, None)
        elif index in asked.partitions or sum(len(known.partitions) for known in self._known.values()) < MAX_PARTITIONS:
            asked.partitions[index] = each

    def _asked(self, frame: memoryview, request: FetchRequest, context: RecordContext) -> Asked | None:
        """Return what the lane remembers about requests that differ from `frame` only in numbers; None if the lane does
        not remember such requests."""
        if self._is_known:
            return self._known[self._layouts[len(frame)].unpack_from(frame, PREFIX.size)[::2]]
        state = request.replica_state
        if request.replica_id >= 0 or (state is not None and state.replica_id < 0):
            return None
        if len(self._known) == MAX_KNOWN and not self._forget_oldest(context):
            return None
        encode = codec(FetchRequest, self._version).encode
        places: list[tuple[Any, str]] = [(request, "session_epoch")]
        if request.topics:
            places += [(request.topics[0].partitions[0], name) for name in self._numbers]
        try:
            pattern = changing(lambda: encode(request), *places)
        except NoTemplate:
            self._attempts.failed()
            return None
        pattern = pattern.behind(bytes(frame[PREFIX.size : PREFIX.size + len(context.connection.cached_header.tail)]))
        layout = Struct(">" + pattern.format)
        if layout.size != len(frame) - PREFIX.size or layout.unpack_from(frame, PREFIX.size)[::2] != pattern.kept:
            self._attempts.failed()
            return None  # the client encodes this request in another way than our encoder
        if self._layouts.setdefault(len(frame), layout).format != layout.format:
            self._attempts.failed()
            return None  # a remembered request of the same size has its numbers at other positions
        self._attempts.succeeded()
        asked = self._known[pattern.kept] = Asked(request, context.client_id, len(frame))
        return asked

    def _forget_oldest(self, context: RecordContext) -> bool:
        """Forget the oldest request if its session has ended, and at every MAX_KNOWN-th call also if it has not come
        again. Returns whether there is room now.
        """
        kept, oldest = next(iter(self._known.items()))
        has_ended = oldest.session_id != NO_SESSION and self._session_of(oldest, context) is None
        if not has_ended:
            self._misses += 1
            if self._misses % MAX_KNOWN:
                return False
        del self._known[kept]
        if oldest.was_used and not has_ended:
            oldest.was_used = False
            self._known[kept] = oldest
            return False
        if all(each.frame_size != oldest.frame_size for each in self._known.values()):
            del self._layouts[oldest.frame_size]
        return True

    def _session_of(self, asked: Asked, context: RecordContext) -> FetchSession | None:
        """Return the session of these requests; None if it has ended."""
        return self._services.fetch_sessions.find(
            asked.session_id, follower=asked.follower_id, owner=context.connection.principal
        )

    def _find(self, each: SessionPartition, context: RecordContext) -> None:
        """Store the Partition object of this session partition, if this broker leads it."""
        if each.partition is not None and not each.partition.is_resigned:
            return
        replicas, (name, topic_id), index = context.services.replicas, each.wanted.topic, each.wanted.request.partition
        try:
            each.partition = replicas.led_by_id(topic_id, index) if self._by_id else replicas.led_by_name(name, index)
        except KafkaError:
            each.partition = None


make_lane = FetchLane
"""The constructor of the fast lane. `server/served.py` loads it by this name."""
