"""Fetch (1), v4-18: record batches from an offset on; waits for more if there are too few.

Behaviour: partitions in the order of the request or session (T11); whole batches only; the first partition with data
may exceed every limit by its first batch, so that no batch is too large to be read. Waits up to max_wait_ms for
min_bytes, or for max_bytes if that is less. Errors of a partition answer at once, and so does a reader's epoch that is
not in the log (diverging_epoch). Records are slices of mapped files, except for the first few, which are copied. How
many, the ledger decides: a client that does not read its answers holds little of the heap. A follower (replica_state)
reads to the log's end, waits for new appends, and its fetch offsets report its progress. Versions: v7 incremental
sessions (KIP-227, fetch_sessions.py), v9 leader epochs, v10 zstd, v12 flexible, and the leader's id with
NOT_LEADER_OR_FOLLOWER, v13 topic ids instead of names, v16 the same with FENCED_LEADER_EPOCH, and the leader's address
(KIP-951).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from oncelog_broker.config.broker_keys import FETCH_MAX_BYTES
from oncelog_broker.replication.partition import READ_COMMITTED, Partition
from oncelog_broker.replication.purgatory import DelayedFetch
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.kept.fetch_sessions import FIRST_TOPIC_ID_VERSION, NO_SESSION, PARTITIONS_PER_STEP, FetchPlan
from oncelog_broker.server.records.fetch_reads import ConsumerRead, FetchRead, ReplicaRead
from oncelog_broker.server.records.services import RecordContext, RecordServices
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse

FIRST_REPLICA_EPOCH_VERSION: Final = 15
"""From this version on a follower sends its incarnation (KIP-903)."""
MAX_WAIT_SECONDS: Final = 600.0
"""However long a client says that it would wait."""


class Follower(NamedTuple):
    """A broker that fetches as a follower, in one incarnation."""

    broker_id: int
    epoch: int


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
    """The answer to a request that is planned, and whose follower, if it is one's, is noted: of `request` all but its
    partitions counts."""
    fetch = _Fetch(request, context, follower)
    return fetch.read_again(plan, may_wait=may_wait)


def _follower(request: FetchRequest, context: RecordContext) -> Follower:
    """The follower that sends the request, which may read beyond the high watermark and move it: another broker of this
    cluster that the image contains, on the listener for brokers (CVE-2018-1288). Raises KafkaError."""
    state, brokers = request.replica_state, context.services.image.brokers
    is_follower = state is not None and context.version >= FIRST_REPLICA_EPOCH_VERSION
    if state is None or not is_follower or not context.may_as_broker(rules.FETCH_AS_FOLLOWER):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    known = brokers.get(state.replica_id)
    if known is None or state.replica_id == context.services.node_id:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if state.replica_epoch != known.epoch:
        # An incarnation newer than the known one is refused, and retried when the image shows it: once accepted, it
        # would exclude all others.
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    return Follower(state.replica_id, state.replica_epoch)


def delayed_fetch_of(
    follower: Follower, partitions: Sequence[Partition], missing_bytes: int, services: RecordServices, *, has_news: bool
) -> DelayedFetch:
    """The fetch of a follower, in the purgatories of its partitions, which ends early if the follower `has_news` to
    learn or is awaited. The caller sets its deadline."""

    def hurry(waiting: DelayedFetch) -> None:
        seconds = services.replicas.news_pace.seconds(follower.broker_id, len(partitions), services.clock.monotonic())
        services.deadlines.unless_done(waiting.enough, seconds, waiting.finish)

    waiting = DelayedFetch(partitions, missing_bytes, hurry=hurry)
    services.replicas.follower_waits(follower.broker_id, waiting)
    if has_news or services.replicas.awaits(follower.broker_id):
        waiting.hurry()
    return waiting


class _Fetch:
    """One request, which reads its partitions, may wait for more, and then reads them again."""

    __slots__ = ("_context", "_follower", "_plan", "_refused", "_request")

    def __init__(self, request: FetchRequest, context: RecordContext, follower: Follower | None) -> None:
        self._refused = ErrorCode.NONE
        self._request = request
        self._context = context
        self._follower = follower
        self._plan: FetchPlan

    def plan_and_read(self) -> Steps[FetchRead | None]:
        """None where the session refuses."""
        services, by_id = self._context.services, self._context.version >= FIRST_TOPIC_ID_VERSION
        try:
            self._plan = yield from services.fetch_sessions.plan(
                self._request,
                by_id=by_id,
                now=services.clock.monotonic(),
                follower=None if self._follower is None else self._follower.broker_id,
                owner=self._context.connection.principal,
            )
        except KafkaError as error:
            self._refused = error.code
            return None
        return (yield from self._read(is_first=True))

    def read_again(self, plan: FetchPlan, *, may_wait: bool) -> Answer[FetchResponse]:
        """See the function of this name."""
        self._plan = plan
        return then(self._context.in_slices(self._read()), self.answer_or_wait if may_wait else self._answer)

    def _read(self, *, is_first: bool = False) -> Steps[FetchRead]:
        if self._follower is None:
            return ConsumerRead(self._request, self._context).all_of(self._plan)
        read = ReplicaRead(self._request, self._context, *self._follower, notes=is_first)
        return self._read_as_replica(read)

    def _read_as_replica(self, read: ReplicaRead) -> Steps[FetchRead]:
        yield from read.all_of(self._plan)
        if read.joining:
            self._context.services.isr_keeper.consider(read.joining)
        return read

    def answer_or_wait(self, read: FetchRead | None) -> Answer[FetchResponse]:
        if read is None:
            return FetchResponse(error_code=self._refused, session_id=NO_SESSION, responses=[])
        request, limit = self._request, self._context.services.config[FETCH_MAX_BYTES]
        missing_bytes = min(request.min_bytes, request.max_bytes, limit) - read.total_bytes
        is_waiting = read.partitions or read.seconds_throttled
        if request.max_wait_ms <= 0 or read.is_urgent or missing_bytes <= 0 or not is_waiting:
            return self._answer(read)
        waited = self._wait(read, missing_bytes)
        return then(waited, self._read_and_answer)

    def _read_and_answer(self, _: None) -> Answer[FetchResponse]:
        return then(self._context.in_slices(self._read()), self._answer)

    def _wait(self, read: FetchRead, missing_bytes: int) -> Answer[None]:
        """Wait until `missing_bytes` more are available or the time is up."""
        if read.is_outdated():
            return None
        if self._follower is not None:
            return self._wait_as_replica(self._follower, read, missing_bytes)
        read_committed = self._request.isolation_level == READ_COMMITTED
        waiting = DelayedFetch(read.partitions, missing_bytes, read_committed=read_committed)
        return self._in_time(waiting)

    def _wait_as_replica(self, follower: Follower, read: FetchRead, missing_bytes: int) -> Answer[None]:
        services, has_news = self._context.services, self._plan.has_news(read.answers)
        waiting = delayed_fetch_of(follower, read.partitions, missing_bytes, services, has_news=has_news)
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
