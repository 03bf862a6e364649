"""ShareFetch (78), v1-2: acquire records of share partitions, and acknowledge records that were acquired before
(KIP-932).

Behaviour: acknowledgements are applied first. The response has complete batches, but the member has acquired only the
offsets that the response lists; the batches are slices of mapped files, as in a Fetch. The request waits up to
max_wait_ms for min_bytes; new records end the wait, and so do records that another member has released. An error of a
partition ends the wait of a ShareFetch immediately. Each request starts with another partition of the session, so that
no partition is always read last. A request whose limit of records or bytes is 0 only acknowledges. Versions: v2 adds
exact record limits (KIP-1206) and renewed acquisition locks (KIP-1222).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from oncelog_broker.replication.purgatory import DelayedFetch
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.leader_hints import LeaderHints
from oncelog_broker.server.shares.acknowledgements import (
    Asker,
    Outcomes,
    ShareRules,
    acknowledge,
    by_topic,
    check_asker,
    close_session,
    end_with_connection,
    find_session,
)
from oncelog_broker.server.shares.services import ShareContext
from oncelog_broker.server.shares.share_reads import Got, ShareRead
from oncelog_broker.sharing.hosted_share_partition import HostedSharePartition
from oncelog_broker.sharing.share_sessions import MAX_PARTITIONS, SharedTopicPartition, ShareSession
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_fetch import (
    CLOSE_SESSION,
    OPEN_SESSION,
    AcquireMode,
    ShareFetchRequest,
    ShareFetchResponse,
)

Topic = ShareFetchResponse.ShareFetchableTopicResponse
Partition = Topic.PartitionData

RULES: Final = ShareRules(rules.SHARE_FETCH_GROUP, rules.SHARE_FETCH)
MAX_WAIT_SECONDS: Final = 600.0
"""The maximum wait of a ShareFetch in seconds, whatever max_wait_ms a client sends."""
ACQUIRE_MODES: Final = frozenset(AcquireMode)
NO_RECORDS: Final = memoryview(b"")
PARTITIONS_PER_STEP: Final = 100
"""The response is built in slices: after this number of partitions, other work may run."""


def handle(request: ShareFetchRequest, context: ShareContext) -> Answer[ShareFetchResponse]:
    try:
        asker = check_asker(request.group_id, request.member_id, RULES, context)
        _check(request)
        session = _session(request, asker, context)
    except KafkaError as error:
        failed = ShareFetchResponse(error_code=error.code, error_message=error.message, responses=[])
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _later(failed, request.max_wait_ms / 1000, context)
        return failed
    fetch = _ShareFetch(request, asker, session, context)
    outcomes = acknowledge(request.topics, asker, RULES, context, renews=request.is_renew_ack)
    if request.share_session_epoch == CLOSE_SESSION:
        return then(outcomes, fetch.close)
    if request.is_renew_ack or request.max_records <= 0 or request.max_bytes <= 0:
        return then(outcomes, lambda outcomes: fetch.response(outcomes, {}))
    found = fetch.begin()
    return then(outcomes, lambda outcomes: then(found, lambda got: fetch.response(outcomes, got)))


def _check(request: ShareFetchRequest) -> None:
    """Check the fields of the request. Raises KafkaError INVALID_REQUEST for an invalid value."""
    if _is_too_long(request.topics) or _is_too_long(request.forgotten_topics_data):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a share session has at most {MAX_PARTITIONS} partitions")
    has_acks = any(partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions)
    if request.share_session_epoch == OPEN_SESSION and has_acks:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a request that opens a session must not contain acknowledgements")
    limits = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    if request.is_renew_ack and any(limits):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "a request that renews locks must not fetch records: its limits must be 0"
        )
    if request.share_acquire_mode not in ACQUIRE_MODES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown share_acquire_mode {request.share_acquire_mode}")


def _is_too_long(topics: Sequence[Any]) -> bool:
    """Return whether the request names more partitions than a session may have; a topic counts as one partition at
    least.
    """
    return len(topics) > MAX_PARTITIONS or sum(len(topic.partitions) for topic in topics) > MAX_PARTITIONS


def _session(request: ShareFetchRequest, asker: Asker, context: ShareContext) -> ShareSession:
    """Return the share session after the request's additions and removals. Raises KafkaError."""
    sessions = context.services.share_partitions.sessions
    if request.share_session_epoch == OPEN_SESSION:
        session = sessions.open(*asker, context.connection)
        end_with_connection(context)
    else:
        session = find_session(asker, request.share_session_epoch, context)
    added = [
        SharedTopicPartition(topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    forgotten = [
        SharedTopicPartition(topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    try:
        sessions.change(session, added, forgotten)
    except KafkaError:
        if request.share_session_epoch == OPEN_SESSION:
            close_session(session, context)
        raise
    return session


def _later(response: ShareFetchResponse, seconds: float, context: ShareContext) -> Answer[ShareFetchResponse]:
    """Return the response after `seconds`, so that the client does not retry immediately."""
    answer: asyncio.Future[ShareFetchResponse] = asyncio.get_running_loop().create_future()

    def give() -> None:
        if not answer.done():
            answer.set_result(response)

    context.services.deadlines.unless_done(answer, min(max(0.0, seconds), MAX_WAIT_SECONDS), give)
    return answer


class _ShareFetch:
    """The state of one request, which reads its partitions, perhaps waits for records, and then reads its partitions
    again.
    """

    __slots__ = ("_asker", "_context", "_deadline", "_request", "_session")

    def __init__(self, request: ShareFetchRequest, asker: Asker, session: ShareSession, context: ShareContext) -> None:
        self._request = request
        self._asker = asker
        self._session = session
        self._context = context
        seconds = min(max(0, request.max_wait_ms) / 1000, MAX_WAIT_SECONDS)
        self._deadline = context.services.clock.monotonic() + seconds

    def begin(self) -> Answer[Mapping[SharedTopicPartition, Got]]:
        """Acquire records, or wait until records are available."""
        return self._attempt(may_repeat=True)

    def _attempt(self, *, may_repeat: bool) -> Answer[Mapping[SharedTopicPartition, Got]]:
        read = ShareRead(self._request, self._asker, self._session, RULES, self._context)
        answers = self._context.in_slices(read.find_all())
        found: Answer[list[HostedSharePartition | KafkaError]] = then(answers, all_of)

        def read_all(found: list[HostedSharePartition | KafkaError]) -> Answer[None]:
            return self._context.in_slices(read.read_all(found, is_last=self._seconds_left <= 0))

        return then(then(found, read_all), lambda _: self._answer_or_wait(read, may_repeat))

    @property
    def _seconds_left(self) -> float:
        return self._deadline - self._context.services.clock.monotonic()

    def _answer_or_wait(self, read: ShareRead, may_repeat: bool) -> Answer[Mapping[SharedTopicPartition, Got]]:
        is_open = self._context.services.share_partitions.sessions.is_open(self._session)
        if read.got or self._seconds_left <= 0 or not is_open:
            return read.got
        if may_repeat and read.has_news():
            return self._attempt(may_repeat=False)
        waiting = DelayedFetch(
            [hosted.partition for hosted in read.waits_for],
            read.missing_bytes,
            read_committed=any(hosted.settings().reads_committed for hosted in read.waits_for),
        )
        for hosted in read.waits_for:
            hosted.wait(waiting)
        self._context.services.deadlines.unless_done(waiting.enough, self._seconds_left, waiting.finish)
        woken: Answer[None] = waiting.enough
        return then(woken, lambda _: self._attempt(may_repeat=True))

    def close(self, outcomes: Outcomes) -> Answer[ShareFetchResponse]:
        """Close the session once its acknowledgements are written."""
        close_session(self._session, self._context)
        return self.response(outcomes, {})

    def response(self, outcomes: Outcomes, got: Mapping[SharedTopicPartition, Got]) -> Answer[ShareFetchResponse]:
        return self._context.in_slices(self._response(outcomes, got))

    def _response(self, outcomes: Outcomes, got: Mapping[SharedTopicPartition, Got]) -> Steps[ShareFetchResponse]:
        hints = LeaderHints(self._context)
        wanted = dict.fromkeys((*got, *outcomes))
        if self._request.share_session_epoch == OPEN_SESSION:
            wanted |= self._session.partitions  # the first response of a session has all partitions
        partitions = []
        for number, where in enumerate(wanted, 1):
            partitions.append((where, _partition(where, got.get(where), outcomes.get(where), hints)))
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        lock_seconds = self._context.services.share_partitions.settings_of(self._asker.group_id).lock_seconds
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=int(lock_seconds * 1000),
            responses=[Topic(topic_id=topic_id, partitions=found) for topic_id, found in by_topic(partitions).items()],
            node_endpoints=[ShareFetchResponse.NodeEndpoint(**endpoint._asdict()) for endpoint in hints.endpoints()],
        )


def _partition(
    where: SharedTopicPartition, got: Got | None, outcome: KafkaError | None, hints: LeaderHints
) -> Partition:
    answer = Partition(partition_index=where.partition, current_leader=Partition.LeaderIdAndEpoch(), records=NO_RECORDS)
    errors = []
    if got is not None:
        answer.records = got.records
        answer.acquired_records = [
            Partition.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=deliveries)
            for first, last, deliveries in got.acquired
        ]
        if got.error is not None:
            answer.error_code, answer.error_message = got.error.code, got.error.message
            errors.append(got.error)
    if outcome is not None:
        answer.acknowledge_error_code, answer.acknowledge_error_message = outcome.code, outcome.message
        errors.append(outcome)
    if any(error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER for error in errors):
        hint = hints.of("", where.topic_id, where.partition, by_id=True)
        if hint is not None:
            answer.current_leader = Partition.LeaderIdAndEpoch(**hint._asdict())
    return answer
