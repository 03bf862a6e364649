"""Fetch (1), v4-18: returns record batches from an offset on; waits for more if too few are available.

Behaviour: partitions come in the order of the request or session (T11); only complete batches are returned; the first
batch of the first partition with data may exceed every limit, so that no batch is too large to read. The request waits
up to max_wait_ms for min_bytes, or for max_bytes if that is less. The wait ends immediately at an error of a partition,
or if the reader's last leader epoch is not in this log (diverging_epoch). Records are sent as slices of mapped files;
only the first few kilobytes of a response may be copied. The memory budget decides how many bytes are copied, so that a
client that does not read its responses uses little of the heap. A follower (replica_state) reads to the log's end and
waits for new appends, and reports its progress by its fetch offsets. Versions: v7 incremental sessions (KIP-227,
fetch_sessions.py), v9 leader epochs, v10 zstd, v12 flexible, and the leader's id with NOT_LEADER_OR_FOLLOWER, v13 topic
ids instead of names, v16 the leader's id also with FENCED_LEADER_EPOCH, and the leader's address (KIP-951).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog_broker.config.broker_keys import FETCH_MAX_BYTES
from oncelog_broker.replication.partition import READ_COMMITTED, Partition
from oncelog_broker.replication.purgatory import DelayedFetch
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.kept.fetch_sessions import (
    FIRST_TOPIC_ID_VERSION,
    NO_SESSION,
    PARTITIONS_PER_STEP,
    FetchPlan,
    FetchSession,
    Follower,
)
from oncelog_broker.server.records.fetch_reads import ConsumerRead, FetchRead, ReplicaRead
from oncelog_broker.server.records.services import RecordContext, RecordServices
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse

FIRST_REPLICA_EPOCH_VERSION: Final = 15
"""First version in which a follower sends its broker epoch (KIP-903)."""
JOINING_PER_STEP: Final = 100
"""Partitions whose ISRs a follower may join that are considered in one step, which takes about a millisecond."""
MAX_WAIT_SECONDS: Final = 600.0
"""The maximum number of seconds that a Fetch waits, even if its max_wait_ms is larger."""


def handle(request: FetchRequest, context: RecordContext) -> Answer[FetchResponse]:
    follower = None
    if request.replica_id >= 0 or (request.replica_state is not None and request.replica_state.replica_id >= 0):
        try:
            follower = _follower(request, context)
        except KafkaError as error:
            return FetchResponse(error_code=error.code, responses=[])
    fetch = _Fetch(request, context, follower)
    return then(context.in_slices(fetch.plan_and_read()), fetch.answer_or_wait)


def read_again(
    request: FetchRequest, context: RecordContext, follower: Follower | None, plan: FetchPlan, *, may_wait: bool
) -> Answer[FetchResponse]:
    """Read the partitions of `plan` and return the response; if a follower sent the request, the caller has already
    recorded its position. The limits on bytes and time come from `request`.
    """
    fetch = _Fetch(request, context, follower)
    return fetch.read_again(plan, may_wait=may_wait)


def _follower(request: FetchRequest, context: RecordContext) -> Follower:
    """Return the follower that sends the request; None for any other sender. A follower is a broker in the cluster
    image that uses the inter-broker listener. Only a follower may read beyond the high watermark and advance it
    (CVE-2018-1288). Raises KafkaError.
    """
    state, brokers = request.replica_state, context.services.image.brokers
    is_follower = state is not None and context.version >= FIRST_REPLICA_EPOCH_VERSION
    if state is None or not is_follower or not context.may_as_broker(rules.FETCH_AS_FOLLOWER):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    known = brokers.get(state.replica_id)
    if known is None or state.replica_id == context.services.node_id:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if state.replica_epoch != known.epoch:
        # Refuse every broker epoch that differs from the epoch in the cluster image, even a higher one: the cluster
        # image decides which epoch is valid. A restarted follower retries until this broker's image has its new epoch.
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    return Follower(state.replica_id, state.replica_epoch)


def delayed_fetch_of(
    follower: Follower,
    session: FetchSession | None,
    partitions: Sequence[Partition],
    missing_bytes: int,
    services: RecordServices,
    *,
    has_news: bool,
) -> DelayedFetch:
    """Return the delayed fetch of a follower. It waits in the purgatories of the visited `partitions` and of the
    session's idle partitions, and ends early if the follower must get other changes (`has_news`), or if other requests
    wait for this follower. The caller sets the deadline of the delayed fetch.
    """

    def hurry(waiting: DelayedFetch) -> None:
        seconds = services.replicas.news_pace.seconds(follower.broker_id, len(partitions), services.clock.monotonic())
        services.deadlines.unless_done(waiting.enough, seconds, waiting.finish)

    waiting = DelayedFetch(partitions, missing_bytes, hurry=hurry)
    services.replicas.follower_waits(follower.broker_id, waiting)
    if session is not None:
        session.waiting = waiting
    if has_news or services.replicas.awaits(follower.broker_id):
        waiting.hurry()
    return waiting


class _Fetch:
    """The state of one request, which reads its partitions, may wait for more records, and then reads its partitions
    again.
    """

    __slots__ = ("_context", "_follower", "_plan", "_refused", "_request")

    def __init__(self, request: FetchRequest, context: RecordContext, follower: Follower | None) -> None:
        self._refused = ErrorCode.NONE
        self._request = request
        self._context = context
        self._follower = follower
        self._plan: FetchPlan

    def plan_and_read(self) -> Steps[FetchRead | None]:
        """Read the partitions of the request; returns None if the fetch session refuses the request."""
        services, by_id = self._context.services, self._context.version >= FIRST_TOPIC_ID_VERSION
        try:
            self._plan = yield from services.fetch_sessions.plan(
                self._request,
                by_id=by_id,
                now=services.clock.monotonic(),
                follower=self._follower,
                owner=self._context.connection.principal,
            )
        except KafkaError as error:
            self._refused = error.code
            return None
        return (yield from self._read(is_first=True))

    def read_again(self, plan: FetchPlan, *, may_wait: bool) -> Answer[FetchResponse]:
        """Read the partitions again and return the response; the position of a follower was already recorded by the
        first read.
        """
        self._plan = plan
        plan.renew()
        return then(self._context.in_slices(self._read()), self.answer_or_wait if may_wait else self._answer)

    def _read(self, *, is_first: bool = False) -> Steps[FetchRead]:
        if self._follower is None:
            return ConsumerRead(self._request, self._context).all_of(self._plan)
        read = ReplicaRead(self._request, self._context, self._follower, self._plan.session, notes=is_first)
        return self._read_as_replica(read)

    def _read_as_replica(self, read: ReplicaRead) -> Steps[FetchRead]:
        yield from read.all_of(self._plan)
        # A broker that returns may join the ISRs of thousands of partitions with one request.
        for start in range(0, len(read.joining), JOINING_PER_STEP):
            yield None
            self._context.services.isr_keeper.consider(read.joining[start : start + JOINING_PER_STEP])
        return read

    def answer_or_wait(self, read: FetchRead | None) -> Answer[FetchResponse]:
        if read is None:
            return FetchResponse(error_code=self._refused, session_id=NO_SESSION, responses=[])
        request, limit = self._request, self._context.services.config[FETCH_MAX_BYTES]
        missing_bytes = min(request.min_bytes, request.max_bytes, limit) - read.total_bytes
        is_waiting = read.partitions or read.seconds_throttled or self._plan.leaves_out_partitions
        if request.max_wait_ms <= 0 or read.is_urgent or missing_bytes <= 0 or not is_waiting:
            return self._answer(read)
        waited = self._wait(read, missing_bytes)
        return then(waited, self._read_and_answer)

    def _read_and_answer(self, _: None) -> Answer[FetchResponse]:
        self._plan.renew()
        return then(self._context.in_slices(self._read()), self._answer)

    def _wait(self, read: FetchRead, missing_bytes: int) -> Answer[None]:
        """Wait until `missing_bytes` more bytes are available, or until max_wait_ms has passed."""
        if read.is_outdated() or self._plan.is_outdated:
            return None
        if self._follower is not None:
            return self._wait_as_replica(self._follower, read, missing_bytes)
        read_committed = self._request.isolation_level == READ_COMMITTED
        waiting = DelayedFetch(read.partitions, missing_bytes, read_committed=read_committed)
        return self._in_time(waiting)

    def _wait_as_replica(self, follower: Follower, read: FetchRead, missing_bytes: int) -> Answer[None]:
        services, plan = self._context.services, self._plan
        has_news = plan.has_news(read.answers)
        partitions = read.partitions
        if plan.session is not None:
            plan.rest()
            found = (each.partition for each in plan.session.active.values() if each.partition is not None)
            partitions = [partition for partition in found if partition not in read.throttled]
        waiting = delayed_fetch_of(follower, plan.session, partitions, missing_bytes, services, has_news=has_news)
        if read.seconds_throttled:
            services.deadlines.unless_done(
                waiting.enough, min(read.seconds_throttled, MAX_WAIT_SECONDS), waiting.finish
            )
        return self._in_time(waiting)

    def _in_time(self, waiting: DelayedFetch) -> Answer[None]:
        seconds = min(self._request.max_wait_ms / 1000, MAX_WAIT_SECONDS)
        self._context.services.deadlines.unless_done(waiting.enough, seconds, waiting.finish)
        return waiting.enough

    def _answer(self, read: FetchRead) -> Answer[FetchResponse]:
        read.count()
        named = () if read.hints is None else read.hints.endpoints()
        endpoints = [FetchResponse.NodeEndpoint(**endpoint._asdict()) for endpoint in named]
        if len(read.answers) <= PARTITIONS_PER_STEP:
            return self._plan.response(read.answers, endpoints)
        return self._context.in_slices(self._plan.response_in_steps(read.answers, endpoints))
