"""Serves one request of the Fetch lane: checks the partitions, and responds immediately or after a wait in the
purgatory.

A partition has news (changes that the client must get) if the partition has records to return, or if its high watermark
or log start offset differs from the value last sent in the session. If exactly one partition has news, the fast lane
reads this partition and responds; if fewer bytes than the request's minimum are available, the request waits. If
several partitions have news, or if transactions were aborted, the code of the Fetch handler reads the partitions again
and responds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from oncelog_broker.replication.partition import READ_COMMITTED, Partition
from oncelog_broker.replication.purgatory import DelayedFetch
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.dispatch.routes import TIMED_MASK, Route
from oncelog_broker.server.kept.fetch_sessions import FetchPlan, FetchSession, Follower
from oncelog_broker.server.kept.session_partition import SessionPartition, TopicName, Wanted
from oncelog_broker.server.lanes.fetch_answers import NO_RECORDS, NO_TOPIC, FetchAnswers
from oncelog_broker.server.net.answer_queue import Slot
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.lane import UsualWay
from oncelog_broker.server.records import fetch
from oncelog_broker.server.records.services import RecordContext, RecordServices
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.acls import CLUSTER_NAME
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.fetch import FetchRequest

AS_FOLLOWER: Final = (rules.FETCH_AS_FOLLOWER.kind, CLUSTER_NAME)


class FetchWays:
    """The objects that all requests of one fast lane use, such as the route and the functions that send responses."""

    __slots__ = ("answers", "max_bytes", "monotonic", "route", "services", "usual", "version")

    def __init__(
        self,
        route: Route,
        version: int,
        services: RecordServices,
        usual: UsualWay,
        monotonic: Callable[[], float],
        answers: FetchAnswers,
    ) -> None:
        self.route = route
        self.version = version
        self.services = services
        self.usual = usual
        self.monotonic = monotonic
        self.answers = answers
        self.max_bytes = 0
        """The setting fetch.max.bytes, which limits the bytes of one response."""


class Asked:
    """What a fast lane remembers about requests that differ only in numbers (epochs, offsets, the partition's
    index).
    """

    __slots__ = (
        "client_id",
        "follower",
        "follower_id",
        "frame_size",
        "max_wait_seconds",
        "min_bytes",
        "partitions",
        "read_committed",
        "request",
        "session_id",
        "topic",
        "was_used",
    )

    def __init__(self, request: FetchRequest, client_id: str | None, frame_size: int) -> None:
        """`request`: one of the requests that differ only in numbers. `frame_size`: the size in bytes of the frame of
        each of them.
        """
        self.request = request
        self.client_id = client_id
        self.frame_size = frame_size
        self.session_id = request.session_id
        state = request.replica_state
        self.follower = None if state is None else Follower(state.replica_id, state.replica_epoch)
        """The follower's id; None means that a consumer sends the requests."""
        self.follower_id = None if state is None else state.replica_id
        self.read_committed = state is None and request.isolation_level == READ_COMMITTED
        self.min_bytes = min(request.min_bytes, request.max_bytes)
        self.max_wait_seconds = min(request.max_wait_ms / 1000, fetch.MAX_WAIT_SECONDS)
        self.topic = NO_TOPIC
        """The topic of the partition that these requests name; NO_TOPIC if they name no partition."""
        if request.topics:
            self.topic = TopicName(request.topics[0].topic, request.topics[0].topic_id)
        self.partitions: dict[int, SessionPartition] = {}
        """The partitions of this topic that were fetched without a session, by index."""
        self.was_used = False
        """Whether the lane has recognised such a request since the lane last looked for a request that it can forget.
        """


class OneFetch:
    """One Fetch request that the fast lane may serve."""

    __slots__ = (
        "_answered",
        "_asked",
        "_connection",
        "_correlation_id",
        "_epoch",
        "_partitions",
        "_readable",
        "_session",
        "_slot",
        "_started",
        "_told",
        "_waiting_since",
        "_wanted",
        "_ways",
    )

    def __init__(
        self,
        ways: FetchWays,
        connection: BrokerConnection,
        correlation_id: int,
        asked: Asked,
        session: FetchSession | None,
        partitions: list[SessionPartition],
    ) -> None:
        """`partitions`: the active partitions of the session, or the one partition of a request without a session."""
        self._ways = ways
        self._connection = connection
        self._correlation_id = correlation_id
        self._asked = asked
        self._session = session
        self._partitions = partitions
        self._told: list[SessionPartition] = []
        """The partitions with news (changes that the client must get)."""
        self._readable: list[SessionPartition] = []
        """The partitions in `_told` that have records to return."""
        self._epoch = 0
        """The session's epoch when this request was counted; a different epoch later means that another request uses
        the session, too.
        """
        self._started = self._waiting_since = self._answered = 0.0
        """Monotonic seconds at which serving, waiting and responding began; 0 means that the request is not timed."""
        self._wanted: list[Wanted] | None = None
        """The partitions and offsets that a waiting consumer reads, because another request may change those of the
        session meanwhile; None before the wait, and for followers.
        """
        self._slot: Slot | None = None
        """The request's slot in the connection's answer queue while the request waits."""

    # --- methods that find the partitions with news -------------------------------------------------------------------

    def look(self) -> bool:
        """Find the partitions with news (changes that the client must get). Returns False if the handler must serve one
        of the partitions.
        """
        asked, services = self._asked, self._ways.services
        follower, authorizer, allowed = asked.follower, services.authorizer, None
        if authorizer is not None:
            rights = self._connection.rights
            if rights is None or rights.epoch is not authorizer.epoch:
                return False
            allowed = rights.allowed
        if follower is not None:
            known = services.image.brokers.get(follower.broker_id)
            if known is None or known.epoch != follower.epoch:
                return False
            if allowed is not None and AS_FOLLOWER not in allowed:
                return False
        told, readable = list[SessionPartition](), list[SessionPartition]()
        for each in self._partitions:
            partition, request = each.partition, each.wanted.request
            if partition is None or partition.is_resigned:
                return False
            log = partition.log
            state, end, offset, epoch = (
                log.state,
                log.local.log_end_offset,
                request.fetch_offset,
                request.current_leader_epoch,
            )
            if state.offline_reason is not None or not state.log_start_offset <= offset <= end:
                return False
            if request.last_fetched_epoch not in (-1, log.leader_epochs.latest_epoch):
                return False  # the reader's log may have diverged from this broker's log
            if follower is not None:
                if (
                    epoch != partition.leader_epoch
                    or follower.broker_id not in partition.followers
                    or partition.is_throttled_as_leader
                ):
                    return False
            else:
                if epoch not in (-1, partition.leader_epoch) or partition.is_in_doubt:
                    return False
                if allowed is not None and (rules.FETCH.kind, partition.topic) not in allowed:
                    return False
                end = partition.last_stable_offset if asked.read_committed else partition.high_watermark
            if offset < end:
                readable.append(each)
                told.append(each)
            elif (
                each.high_watermark != partition.high_watermark
                or each.log_start_offset != state.log_start_offset
                or self._session is None
            ):
                told.append(each)
        self._told, self._readable = told, readable
        return True

    # --- methods that read records and respond ------------------------------------------------------------------------

    def serve(self) -> None:
        """Count the request, which the fast lane serves from now on, and respond or wait."""
        ways, session, asked = self._ways, self._session, self._asked
        route = ways.route
        route.requests += 1
        if route.times is not None and route.requests & TIMED_MASK == 1:
            self._started = ways.monotonic()
        if session is not None:
            ways.services.fetch_sessions.go_on(session, ways.services.clock.monotonic())
            self._epoch = session.epoch
        if asked.follower is not None:
            self._note(asked.follower)
            if not self.look():
                self._read_in_the_usual_way()
                return
        if len(self._readable) > 1:
            self._read_in_the_usual_way()
            return
        records = self._read(self._readable[0]) if self._readable else NO_RECORDS
        if records is None:
            self._read_in_the_usual_way()
            return
        missing_bytes = min(asked.min_bytes, ways.max_bytes) - len(records)
        if missing_bytes > 0 and asked.max_wait_seconds > 0:
            self._wait(missing_bytes)
        elif len(self._told) > 1:
            self._read_in_the_usual_way()
        else:
            self._answer(records)
            if self._started and route.times is not None:
                route.times.total.append(ways.monotonic() - self._started)

    def _note(self, follower: Follower) -> None:
        """Record the follower's position in each partition."""
        services = self._ways.services
        now, joining = services.clock.monotonic(), list[Partition]()
        for each in self._partitions:
            request = each.wanted.request
            if each.partition.on_follower_fetch(
                follower.broker_id,
                request.fetch_offset,
                broker_epoch=follower.epoch,
                log_start_offset=request.log_start_offset,
                now=now,
            ):
                joining.append(each.partition)
        if joining:
            services.isr_keeper.consider(joining)

    def _read(self, each: SessionPartition) -> memoryview | None:
        """Return the records of a partition; None means that the Fetch handler must read the records."""
        asked, partition, request = self._asked, each.partition, each.wanted.request
        reader, may_copy = partition.log.reader, self._connection.copied_answer_bytes > 0
        max_bytes = min(request.partition_max_bytes, asked.request.max_bytes, self._ways.max_bytes)
        try:
            if asked.read_committed:
                records, aborted = reader.read_committed(
                    request.fetch_offset,
                    max_bytes,
                    upper_bound=partition.last_stable_offset,
                    min_one_batch=True,
                    may_copy=may_copy,
                )
                return None if aborted else records
            end = partition.high_watermark if asked.follower is None else partition.log.local.log_end_offset
            found: memoryview = reader.read(
                request.fetch_offset, max_bytes, upper_bound=end, min_one_batch=True, may_copy=may_copy
            )
        except KafkaError:
            return None
        return found

    def _answer(self, records: memoryview) -> None:
        """Respond with the records of the only partition with news, or with an empty response if no partition has
        news."""
        asked, session, answers, size = self._asked, self._session, self._ways.answers, len(records)
        session_id = 0 if session is None else session.session_id
        if asked.follower is None:
            for each in self._partitions:
                each.partition.traffic.fetches += 1
        if not self._told:
            if session is not None and self._partitions:
                session.rest(self._partitions)
            self._connection.respond(answers.without_partition(self._correlation_id, session_id), self._slot)
            return
        (told,) = self._told
        partition, wanted = told.partition, told.wanted
        if asked.follower is None:
            partition.traffic.bytes_out += size
        else:
            partition.traffic.replication_bytes_out += size
        high_watermark, log_start_offset = partition.high_watermark, partition.log.state.log_start_offset
        if session is not None:
            told.high_watermark, told.log_start_offset = high_watermark, log_start_offset
            # Move a partition that returned records to the end of the session, so that the next response begins with
            # the other partitions.
            if size:
                session.active.move_to_end((wanted.topic, wanted.request.partition))
            if not size or len(self._partitions) > 1:  # a partition that returned records has more to tell
                session.rest(self._partitions)
        offsets = high_watermark, partition.last_stable_offset, log_start_offset
        self._connection.respond(
            answers.of_partition(
                self._correlation_id, session_id, wanted.topic, wanted.request.partition, offsets, records,
                read_committed=asked.read_committed,
            ),
            self._slot,
        )  # fmt: skip

    # --- methods that wait for more records ---------------------------------------------------------------------------

    def _wait(self, missing_bytes: int) -> None:
        """Wait in the purgatory until `missing_bytes` more bytes are available, or something else ends the wait."""
        ways, asked, services = self._ways, self._asked, self._ways.services
        if asked.follower is not None and self._session is not None:
            self._session.rest(self._partitions)
            self._partitions = list(self._session.active.values())
        partitions = [each.partition for each in self._partitions]
        if asked.follower is None:
            self._wanted = [each.wanted for each in self._partitions]
            waiting = DelayedFetch(partitions, missing_bytes, read_committed=asked.read_committed)
        else:
            has_news = any(each.high_watermark != each.partition.high_watermark for each in self._told)
            waiting = fetch.delayed_fetch_of(
                asked.follower, self._session, partitions, missing_bytes, services, has_news=has_news
            )
        services.deadlines.unless_done(waiting.enough, asked.max_wait_seconds, waiting.finish)
        if ways.route.times is not None:
            ways.route.times.waited += 1
            self._waiting_since = ways.monotonic()
        self._slot = self._connection.wait_for(waiting.enough, reads_frame=False, holds_back=True, is_long_poll=True)
        waiting.enough.add_done_callback(self._waited)

    def _waited(self, enough: asyncio.Future[None]) -> None:
        slot = self._slot
        assert slot is not None
        if enough.cancelled():
            self._connection.cancelled(slot)
        elif slot.waits_for is not None:  # if the connection has ended, no response is sent
            try:
                self._answer_late(slot)
            except Exception as error:
                self._ways.usual.failed(error, self._context())

    def _answer_late(self, slot: Slot) -> None:
        ways, session = self._ways, self._session
        if session is not None:
            self._partitions = list(session.active.values())  # other partitions may be active now
            if session.epoch != self._epoch:  # another request has used the session
                self._read_in_the_usual_way(self._wanted)
                return
        if not self.look() or len(self._told) > 1:
            self._read_in_the_usual_way()
            return
        records = self._read(self._readable[0]) if self._readable else NO_RECORDS
        if records is None:
            self._read_in_the_usual_way()
            return
        answered = ways.monotonic() if self._started else 0.0
        self._answer(records)
        self._connection.finish(slot)
        if self._started and ways.route.times is not None:
            ways.route.times.note_waited(self._started, self._waiting_since, answered, ways.monotonic())

    # --- methods that leave the request to the handler ----------------------------------------------------------------

    def _context(self) -> RecordContext:
        return RequestContext(
            self._ways.services,
            self._connection,
            ApiKey.FETCH,
            self._ways.version,
            self._correlation_id,
            self._asked.client_id,
        )

    def _read_in_the_usual_way(self, wanted: list[Wanted] | None = None) -> None:
        """Let the code of the Fetch handler read the partitions and respond. The request may wait for records if it has
        not waited yet. `wanted`: the partitions and offsets to read; None means those of the session now.
        """
        ways, asked, context, slot = self._ways, self._asked, self._context(), self._slot
        if wanted is None:
            wanted = [each.wanted for each in self._partitions]
        plan = FetchPlan(wanted, self._session, incremental=self._session is not None)
        answer: Any = fetch.read_again(asked.request, context, asked.follower, plan, may_wait=slot is None)
        if slot is not None and not isinstance(answer, asyncio.Future):
            late = asyncio.get_running_loop().create_future()
            late.set_result(answer)
            answer = late
        if isinstance(answer, asyncio.Future):
            ways.usual.wait(answer, ways.route, context, self._started, slot, self._waiting_since)
            return
        ways.usual.respond(answer, ways.route, context)
        if self._started and ways.route.times is not None:
            ways.route.times.total.append(ways.monotonic() - self._started)
