"""Incremental fetch sessions (KIP-227): a client names its partitions once, then sends and receives only changes.

The session code does no I/O. The code turns a request into a plan of the partitions to read. This work is done in
slices, because a request may have tens of thousands of partitions. For each partition, a session remembers the client's
last fetch position and the values last sent to the client. The epoch counts the requests of a session, so that a lost
or repeated request is noticed.

    session id  epoch   meaning
    0           -1      no session: full request and full response
    any         0       create a session (and close the named session)
    id          -1      close the session; full request and full response
    id          n > 0   incremental: the n-th request since the session was created

The cache is bounded by `max.incremental.fetch.session.cache.slots` and by the partitions in it. If a new session does
not fit into these bounds, the client fetches without a session: its requests and responses are larger, but equally
correct. If an existing session outgrows these bounds, the client gets FETCH_SESSION_ID_NOT_FOUND, as after an eviction.
Each follower has one session of its own: sessions of followers do not use the slots of clients. A request of a follower
visits only the active partitions of its session (`session_partition.py`).

A session belongs to the principal that created it. Another principal could read topic names from a session, and could
disturb its owner by advancing the epoch. So other principals get FETCH_SESSION_ID_NOT_FOUND (E57), and session ids are
random.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from oncelog_broker.runtime.steps import Steps
from oncelog_broker.server.kept.session_partition import (
    Key,
    Named,
    PartitionResponse,
    SessionPartition,
    TopicName,
    Wanted,
)
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse

TopicResponse = FetchResponse.FetchableTopicResponse
Endpoints = Sequence[FetchResponse.NodeEndpoint]

FIRST_TOPIC_ID_VERSION: Final = 13
"""First version in which Fetch names topics by id."""
NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1
MAX_SESSION_ID: Final = 2**31 - 1
MAX_SESSION_PARTITIONS: Final = 10_000
"""The maximum number of partitions in one session. It equals the number of partitions for which a broker is
designed.
"""
MAX_CACHED_PARTITIONS: Final = 100_000
"""The maximum number of partitions in all sessions together; each partition takes some 500 bytes."""
PARTITIONS_PER_STEP: Final = 100
"""The number of partitions that one slice handles; a slice then takes some 0.1 ms."""
EVICTION_SECONDS: Final = 120.0
"""A session that gets no request for this number of seconds may be evicted to make room for a new session (Kafka's
min.incremental.fetch.session.eviction.ms).
"""


class Follower(NamedTuple):
    """A broker that fetches as a follower: its id and its broker epoch."""

    broker_id: int
    epoch: int


class FetchSession:
    """The incremental fetch session of one client. Invariants: `epoch` is the epoch that the client's next incremental
    request must carry; each partition is in `active`, except for the idle partitions of a follower's session.
    """

    __slots__ = (
        "activations",
        "active",
        "by_id",
        "epoch",
        "follower",
        "is_closed",
        "last_used",
        "owner",
        "partitions",
        "session_id",
        "waiting",
    )

    def __init__(
        self,
        session_id: int,
        named: Named,
        *,
        by_id: bool,
        now: float,
        owner: object = None,
        follower: Follower | None = None,
    ) -> None:
        """`now` is monotonic, in seconds; `follower`: None for the session of a consumer."""
        self.session_id = session_id
        self.owner = owner
        self.by_id = by_id
        self.epoch = 1
        self.last_used = now
        """Monotonic seconds of the last request that was counted."""
        self.partitions: OrderedDict[Key, SessionPartition] = OrderedDict(named)
        self.follower = follower
        self.active = self.partitions if follower is None else OrderedDict(named)
        """The partitions that the next request visits, in its order. A consumer's partitions are always active."""
        self.activations = 0
        """How many times an idle partition has become active."""
        self.waiting: Any = None
        """The last DelayedFetch of the follower, which waits or has waited, also for its idle partitions; None before
        the first one, and for consumers.
        """
        self.is_closed = False
        """Whether another session of the same follower has replaced this session."""

    def count_request(self) -> None:
        """Increment the epoch, which the next request must carry."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def update(self, named: Named, forgotten: Iterable[Key]) -> None:
        """Apply the changes of an incremental request."""
        for key, new in named.items():
            cached = self.partitions.setdefault(key, new)
            cached.activate()
            cached.wanted = new.wanted
            self.active[key] = cached
        for key in forgotten:
            if key in self.partitions:
                self.partitions[key].activate()
                del self.partitions[key]
                self.active.pop(key, None)

    def visits(self, wanted: Wanted, partition: object) -> None:
        """Note the Partition object that a request of the follower visits."""
        cached = self.partitions.get((wanted.topic, wanted.request.partition))
        if cached is not None:
            cached.partition = partition

    def activate_all(self) -> None:
        """Make all idle partitions active."""
        for cached in self.partitions.values():
            cached.activate()

    def close(self) -> None:
        """End this session of a follower."""
        self.is_closed = True
        self.activate_all()

    def rest(self, visited: Iterable[SessionPartition]) -> None:
        """Make the visited partitions idle that have nothing new for the follower."""
        if self.follower is not None and not self.is_closed:
            for cached in visited:
                cached.rest_if_idle(self, self.follower.broker_id)


class FetchPlan:
    """The partitions that one request reads, and the method that builds the response from the results."""

    __slots__ = ("_activations", "_incremental", "session", "wanted")

    def __init__(self, wanted: list[Wanted], session: FetchSession | None, *, incremental: bool) -> None:
        self.wanted = wanted
        self.session = session
        self._incremental = incremental
        self._activations = 0 if session is None else session.activations

    @property
    def is_outdated(self) -> bool:
        """Whether partitions became active in the follower's session since the plan was made."""
        return self.session is not None and self.session.activations != self._activations

    @property
    def leaves_out_partitions(self) -> bool:
        """Whether the session has idle partitions, which the request does not visit, but may wait for."""
        return self.session is not None and len(self.session.active) < len(self.session.partitions)

    def rest(self) -> None:
        """Make the visited partitions idle that have nothing new for the follower."""
        session = self.session
        if session is not None and session.follower is not None:
            keys = ((wanted.topic, wanted.request.partition) for wanted in self.wanted)
            session.rest([session.partitions[key] for key in keys if key in session.partitions])

    def renew(self) -> None:
        """Plan to visit the partitions of the follower's session that are active now."""
        session = self.session
        if session is not None and session.follower is not None and self._incremental:
            self.wanted = [cached.wanted for cached in session.active.values()]
            self._activations = session.activations

    def has_news(self, answers: list[PartitionResponse]) -> bool:
        """Return whether a high watermark in `answers` differs from the high watermark last sent for its partition."""
        session = self.session
        if session is None or not self._incremental:
            return True
        return any(
            cached is not None and cached.high_watermark != answer.high_watermark
            for cached, answer in (
                (session.partitions.get((wanted.topic, wanted.request.partition)), answer)
                for wanted, answer in zip(self.wanted, answers, strict=True)
            )
        )

    def response(self, answers: list[PartitionResponse], endpoints: Endpoints = ()) -> FetchResponse:
        """Return the response; `answers` are in the order of `wanted`; `endpoints` are the addresses of the leaders
        that `answers` name.
        """
        topics: dict[TopicName, TopicResponse] = {}
        self._tell(self.wanted, answers, topics)
        return self._response(topics, endpoints)

    def response_in_steps(self, answers: list[PartitionResponse], endpoints: Endpoints = ()) -> Steps[FetchResponse]:
        """Return the response in slices of work, for a request with more than PARTITIONS_PER_STEP partitions."""
        topics: dict[TopicName, TopicResponse] = {}
        for start in range(0, len(answers), PARTITIONS_PER_STEP):
            end = start + PARTITIONS_PER_STEP
            self._tell(self.wanted[start:end], answers[start:end], topics)
            yield None
        return self._response(topics, endpoints)

    def _response(self, topics: dict[TopicName, TopicResponse], endpoints: Endpoints) -> FetchResponse:
        session_id = NO_SESSION if self.session is None else self.session.session_id
        return FetchResponse(session_id=session_id, responses=list(topics.values()), node_endpoints=list(endpoints))

    def _tell(
        self, some: list[Wanted], answers: list[PartitionResponse], topics: dict[TopicName, TopicResponse]
    ) -> None:
        session = self.session
        for wanted, answer in zip(some, answers, strict=True):
            if session is not None and not self._is_told(session, wanted, answer):
                continue
            topic = topics.get(wanted.topic)
            if topic is None:
                name, topic_id = wanted.topic
                topic = topics[wanted.topic] = TopicResponse(topic=name, topic_id=topic_id, partitions=[])
            topic.partitions.append(answer)

    def _is_told(self, session: FetchSession, wanted: Wanted, answer: PartitionResponse) -> bool:
        key = (wanted.topic, wanted.request.partition)
        cached = session.partitions.get(key)
        if cached is None:
            return True
        is_news = cached.update_sent(answer)
        if answer.records and key in session.active:
            session.active.move_to_end(key)  # so that the next response begins with the other partitions
        if not answer.error_code and answer.diverging_epoch is None:
            session.rest((cached,))
        return is_news or not self._incremental


class FetchSessions:
    """All fetch sessions of a broker. Invariant: `_cached_partitions` is the number of partitions in all sessions."""

    def __init__(self, slots: int, *, max_partitions: int = MAX_CACHED_PARTITIONS) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._cached_partitions = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._of_followers: dict[int, FetchSession] = {}
        """Maps the id of a follower's broker to its session."""

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        request: FetchRequest,
        *,
        by_id: bool,
        now: float,
        follower: Follower | None = None,
        owner: object = None,
    ) -> Steps[FetchPlan]:
        """Return the plan of the partitions that `request` reads. `by_id`: whether the request names topics by id;
        `now` is monotonic, in seconds; `follower`: the broker that fetches as a follower; `owner`: the requesting
        principal.

        The plan is made in slices of work. Sessions change only in the last slice, so that a request that is cancelled
        in between changes nothing.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        is_incremental = request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH)
        if (
            follower is None
            and is_incremental
            and sum(len(topic.partitions) for topic in request.topics) > MAX_SESSION_PARTITIONS
        ):
            # Refuse the request before its partitions are read, because a session must not have so many partitions.
            self._give_up(request.session_id, owner)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        named: Named = {}
        number = 0
        for topic in request.topics:
            name = TopicName(topic.topic, topic.topic_id)
            # If a request names a partition twice, the last entry counts, as in Kafka.
            for partition in topic.partitions:
                named[name, partition.partition] = SessionPartition(Wanted(name, partition))
                number += 1
                if number % PARTITIONS_PER_STEP == 0:
                    yield None
        if follower is not None:
            yield from self._activate_former(follower, ends=request.session_epoch == INITIAL_EPOCH)
        if not is_incremental:
            if request.session_id != NO_SESSION:
                self._give_up(request.session_id, owner)
            session = None
            if request.session_epoch == INITIAL_EPOCH and named:
                session = self._create(named, by_id=by_id, now=now, follower=follower, owner=owner)
            return FetchPlan([cached.wanted for cached in named.values()], session, incremental=False)
        session = self._continued(
            request, by_id=by_id, follower=None if follower is None else follower.broker_id, owner=owner
        )
        forgotten = [
            (TopicName(topic.topic, topic.topic_id), index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        before = len(session.partitions)
        session.update(named, forgotten)
        session.last_used = now
        if follower is not None:
            if session.follower != follower:  # the broker has registered again, and goes on with its session
                session.activate_all()
                session.follower = follower
            return FetchPlan([cached.wanted for cached in session.active.values()], session, incremental=True)
        self._cached_partitions += len(session.partitions) - before
        self._sessions.move_to_end(session.session_id)
        if not self._fits(session, now):
            self._close(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return FetchPlan([cached.wanted for cached in session.partitions.values()], session, incremental=True)

    def _activate_former(self, follower: Follower, *, ends: bool) -> Steps[None]:
        """Make all partitions of the follower's session active in slices, if the request ends the session (`ends`) or
        comes from another registration of the broker.
        """
        session = self._of_followers.get(follower.broker_id)
        if session is None or not (ends or session.follower != follower):
            return
        for number, cached in enumerate(list(session.partitions.values()), 1):
            cached.activate()
            if number % PARTITIONS_PER_STEP == 0:
                yield None

    def find(self, session_id: int, *, follower: int | None, owner: object) -> FetchSession | None:
        """Return the session with this id if it belongs to this follower, or, if a client sends the request, to this
        owner; None if there is no such session.
        """
        session = self._sessions.get(session_id) if follower is None else self._of_followers.get(follower)
        if session is None or session.session_id != session_id or session.owner != owner:
            return None
        return session

    def go_on(self, session: FetchSession, now: float) -> None:
        """Count a request that names no new partition in the session; `now` is monotonic, in seconds."""
        session.count_request()
        session.last_used = now
        if self._sessions.get(session.session_id) is session:
            self._sessions.move_to_end(session.session_id)

    def _continued(self, request: FetchRequest, *, by_id: bool, follower: int | None, owner: object) -> FetchSession:
        session = self.find(request.session_id, follower=follower, owner=owner)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.count_request()
        return session

    def _create(
        self, named: Named, *, by_id: bool, now: float, follower: Follower | None, owner: object
    ) -> FetchSession | None:
        """Create a session. Returns None if all slots are taken by sessions that are not idle, or if there would be too
        many partitions in this session or in all sessions together.
        """
        if follower is not None:
            former = self._of_followers.get(follower.broker_id)
            if former is not None:
                former.close()
            session = self._of_followers[follower.broker_id] = FetchSession(
                self._new_id(), named, by_id=by_id, now=now, owner=owner, follower=follower
            )
            return session
        if len(named) > MAX_SESSION_PARTITIONS:
            return None
        while len(self._sessions) >= self._slots or self._cached_partitions + len(named) > self._max_partitions:
            if not self._evict(now):
                return None
        session_id = self._new_id()
        session = self._sessions[session_id] = FetchSession(session_id, named, by_id=by_id, now=now, owner=owner)
        self._cached_partitions += len(session.partitions)
        return session

    def _new_id(self) -> int:
        while True:
            session_id = secrets.randbelow(MAX_SESSION_ID) + 1
            if session_id not in self._sessions:
                return session_id

    def _fits(self, session: FetchSession, now: float) -> bool:
        """Evict idle sessions while all sessions together have too many partitions. Returns whether the changed
        `session` and the cache are within their limits afterwards.
        """
        if len(session.partitions) > MAX_SESSION_PARTITIONS:
            return False
        while self._cached_partitions > self._max_partitions:
            if not self._evict(now):
                return False
        return True

    def _give_up(self, session_id: int, owner: object) -> None:
        """Close the session that a client names, if the session belongs to this client."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            self._close(session_id)

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._cached_partitions -= len(session.partitions)

    def _evict(self, now: float) -> bool:
        """Evict the session that has been idle longest, if it has been idle for EVICTION_SECONDS; returns whether a
        slot was freed.
        """
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now - oldest.last_used < EVICTION_SECONDS:
            return False
        self._close(oldest.session_id)
        return True
