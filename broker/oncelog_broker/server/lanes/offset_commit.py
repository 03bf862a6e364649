"""The fast lane of OffsetCommit: serves requests with which a member commits the offset of one partition.

The lane recognises a request that differs from an earlier request only in the offset and the leader epoch: the bytes
around these numbers are equal. It makes the same checks as the handler (`coordinator/group/usual_requests.py` for the
member), and declines the request before any effect if a check fails. Then the lane appends the batch with the offset,
which it builds from a template (`coordinator/group/commit_batch.py`), restarts the session timer of a classic member,
and responds. If records must wait for in-sync replicas, the response waits as after the handler.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from struct import Struct
from typing import Final

from oncelog_broker.coordinator.group.commit_batch import CommitBatch
from oncelog_broker.coordinator.group.commits import is_too_large
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.step import GroupTimer, TimerKind
from oncelog_broker.coordinator.group.usual_requests import classic_session, commits_in_own_epoch
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.dispatch.routes import TIMED_MASK, Route
from oncelog_broker.server.groups.offset_commit import FIRST_TOPIC_ID_VERSION
from oncelog_broker.server.groups.services import GroupContext, GroupServices
from oncelog_broker.server.lanes.repeated import Attempts, ConstantAnswer, RightsNeeded, may_serve, note_time
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_broker.server.net.lane import UsualWay
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.api import ApiKey
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.templates import NoTemplate, changing

MIN_VERSION: Final = 6
"""First version of OffsetCommit that the lane serves; older versions have a retention time, or no leader epoch."""
MAX_KNOWN: Final = 64
"""The maximum number of requests that a lane remembers, one for each partition, generation and metadata. When there is
no room, the oldest request is forgotten if its member has left that generation; otherwise no request is remembered,
because a client that commits more partitions in turn would make the lane remember each request in vain.
"""
MAX_REQUEST_BYTES: Final = 1024
"""The maximum size in bytes of a request that a lane remembers."""
NUMBERS: Final = ("committed_offset", "committed_leader_epoch")
"""The fields that differ from one commit to the next."""

TopicResponse = OffsetCommitResponse.OffsetCommitResponseTopic


class Remembered:
    """A commit that the handler has served, and everything that a similar commit needs."""

    __slots__ = (
        "answer", "batch", "client_id", "frame_size", "index", "name", "partition", "partitions", "request", "response",
        "rights", "timer", "topic_id",
    )  # fmt: skip

    def __init__(
        self,
        request: OffsetCommitRequest,
        response: OffsetCommitResponse,
        answer: ConstantAnswer,
        name: str,
        client_id: str | None,
        index: int,
        partitions: int,
        frame_size: int,
    ) -> None:
        """`name`: the name of the topic, which the request itself does not have in newer versions. `index`: the
        partition of the internal topic that stores the group while the topic has this many `partitions`. `frame_size`:
        the size in bytes of the request's frame.
        """
        self.request = request
        self.response = response
        self.answer = answer
        self.name = name
        self.client_id = client_id
        self.index = index
        self.partitions = partitions
        self.frame_size = frame_size
        self.rights: RightsNeeded = (
            (rules.OFFSET_COMMIT_GROUP.kind, request.group_id),
            (rules.OFFSET_COMMIT.kind, name),
        )
        self.topic_id = request.topics[0].topic_id
        partition = request.topics[0].partitions[0]
        self.partition = partition.partition_index
        self.batch = CommitBatch(request.group_id, name, partition.partition_index, partition.committed_metadata or "")
        self.timer = GroupTimer(TimerKind.SESSION, request.group_id, request.member_id)


class OffsetCommitLane:
    """The fast lane of one connection for one version of OffsetCommit."""

    __slots__ = (
        "_attempts", "_is_known", "_known", "_layouts", "_monotonic", "_route", "_services", "_usual", "_version",
    )  # fmt: skip

    def __init__(
        self, route: Route, version: int, services: GroupServices, usual: UsualWay, monotonic: Callable[[], float]
    ) -> None:
        """`monotonic` returns the monotonic time in seconds."""
        self._route = route
        self._version = version
        self._services = services
        self._usual = usual
        self._monotonic = monotonic
        self._layouts: dict[int, Struct] = {}
        """Maps a frame's size to a template: which bytes of the request are compared, and which bytes are numbers. It
        has the sizes of the remembered requests only.
        """
        self._known: dict[tuple[bytes, ...], Remembered] = {}
        """The bytes around the numbers of a request -> the request."""
        self._is_known = False
        """Whether the present request is remembered except for its numbers."""
        self._attempts = Attempts()

    def serve(self, connection: BrokerConnection, frame: memoryview, correlation_id: int, /) -> bool:
        """Serve the request if the lane can. Returns False if the handler must serve the request; the lane has then
        changed nothing."""
        layout = self._layouts.get(len(frame))
        fields = () if layout is None else layout.unpack_from(frame, PREFIX.size)
        known = self._known.get(fields[::2])
        self._is_known = known is not None
        if known is None:
            return False
        services = self._services
        if not may_serve(connection, services.authorizer, self._usual, known.client_id, known.rights):
            return False
        topic = services.image.topics.get(known.name)
        if topic is None or known.partition not in topic.partitions:
            return False
        if self._version >= FIRST_TOPIC_ID_VERSION and topic.topic_id != known.topic_id:
            return False
        runtime = services.groups.runtime
        shard = runtime.ready_shard(known.index, known.partitions)
        if shard is None:
            self._is_known = runtime.partitions == known.partitions
            return False
        request = known.request
        session_seconds = classic_session(shard.machine, request, request.generation_id_or_member_epoch)
        if session_seconds is None and not commits_in_own_epoch(shard.machine, request, self._version):
            return False

        route, started = self._route, 0.0
        route.requests += 1
        if route.times is not None and route.requests & TIMED_MASK == 1:
            started = self._monotonic()
        _, offset, _, leader_epoch, _ = fields
        now_ms = services.clock.now_ms()
        batch, record = (
            known.batch.bytes(offset, leader_epoch, now_ms),
            known.batch.record(offset, leader_epoch, now_ms),
        )
        try:
            runtime.append(shard, request.group_id, batch, record, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        except KafkaError as error:
            self._respond(connection, correlation_id, known, self._failed(known, error.as_value()), started)
            return True
        if session_seconds is not None:
            runtime.wakes.set(shard, known.timer, session_seconds)
        if shard.is_committed:
            connection.respond([known.answer.of(correlation_id)])
            note_time(route, started, self._monotonic)
            return True
        answer = runtime.when_committed(
            shard, request.group_id, known.response, lambda error: self._failed(known, error)
        )
        self._respond(connection, correlation_id, known, answer, started)
        return True

    def _respond(
        self,
        connection: BrokerConnection,
        correlation_id: int,
        known: Remembered,
        answer: Answer[OffsetCommitResponse],
        started: float,
    ) -> None:
        """Respond with a response that the lane has no template for, or that comes later."""
        context: GroupContext = RequestContext(
            self._services, connection, ApiKey.OFFSET_COMMIT, self._version, correlation_id, known.client_id
        )
        if isinstance(answer, Future):
            self._usual.wait(answer, self._route, context, started)
        else:
            self._usual.respond(answer, self._route, context)
            note_time(self._route, started, self._monotonic)

    def _failed(self, known: Remembered, error: KafkaError) -> OffsetCommitResponse:
        """Return the response with an error for the partition."""
        (topic,) = known.response.topics
        index = topic.partitions[0].partition_index
        partition = TopicResponse.OffsetCommitResponsePartition(partition_index=index, error_code=error.code)
        return OffsetCommitResponse(
            topics=[TopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=[partition])]
        )

    # --- methods that remember requests that the handler has served ---------------------------------------------------

    def learn(
        self,
        frame: memoryview,
        request: OffsetCommitRequest,
        response: OffsetCommitResponse | None,
        context: GroupContext,
        /,
    ) -> None:
        """Remember a request that its handler has just served, so that the lane can serve similar requests later. If
        the response comes later, it may have an error, but none that the lane could miss: `serve` makes the handler's
        checks of the partition, the rights and the member again, and the metadata is checked here.
        """
        if self._is_known or self._version < MIN_VERSION or len(frame) > MAX_REQUEST_BYTES:
            return
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return
        topic, groups = request.topics[0], self._services.groups
        runtime, metadata = groups.runtime, topic.partitions[0].committed_metadata or ""
        if is_too_large(metadata, groups.config.offset_metadata_max_bytes):
            return
        if response is None:
            answered = TopicResponse.OffsetCommitResponsePartition(
                partition_index=topic.partitions[0].partition_index, error_code=ErrorCode.NONE
            )
            response = OffsetCommitResponse(
                topics=[TopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=[answered])]
            )
        is_refused = len(response.topics) != 1 or response.topics[0].partitions[0].error_code != ErrorCode.NONE
        if is_refused or response.throttle_time_ms or runtime.compression is not Compression.NONE:
            return
        if not self._attempts.may_begin():
            return
        if len(self._known) == MAX_KNOWN and not self._forget_oldest():
            return
        name = topic.name
        if self._version >= FIRST_TOPIC_ID_VERSION:
            found = self._services.image.topic_by_id(topic.topic_id)
            if found is None:
                return
            name = found.name
        kept = self._kept(frame, request, context)
        if kept is None:
            return
        try:
            index = runtime.shard(request.group_id).index
            answer = ConstantAnswer(self._route, self._version, response)
            remembered = Remembered(
                request, response, answer, name, context.client_id, index, runtime.partitions, len(frame)
            )
        except (KafkaError, NoTemplate):
            self._forget_layout(len(frame))
            return
        self._known[kept] = remembered

    def _forget_oldest(self) -> bool:
        """Forget the oldest request if its member cannot send it any more; returns whether there is room now."""
        kept, oldest = next(iter(self._known.items()))
        shard = self._services.groups.runtime.loaded_shard(oldest.index)
        if shard is not None and _is_usual(shard.machine, oldest, self._version):
            return False
        del self._known[kept]
        self._forget_layout(oldest.frame_size)
        return True

    def _forget_layout(self, frame_size: int) -> None:
        """Forget the template of the requests of this size, if the lane remembers no such request."""
        if all(each.frame_size != frame_size for each in self._known.values()):
            del self._layouts[frame_size]

    def _kept(self, frame: memoryview, request: OffsetCommitRequest, context: GroupContext) -> tuple[bytes, ...] | None:
        """Return the bytes around the numbers of the request; None if the lane cannot recognise such requests."""
        encode, partition = codec(OffsetCommitRequest, self._version).encode, request.topics[0].partitions[0]
        try:
            pattern = changing(lambda: encode(request), *((partition, name) for name in NUMBERS))
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
        return pattern.kept


def _is_usual(machine: GroupMachine, known: Remembered, version: int) -> bool:
    """Whether the member that sent this request may still commit with its generation or member epoch."""
    request = known.request
    session_seconds = classic_session(machine, request, request.generation_id_or_member_epoch)
    return session_seconds is not None or commits_in_own_epoch(machine, request, version)


make_lane = OffsetCommitLane
"""The constructor of the fast lane. `server/served.py` loads it by this name."""
