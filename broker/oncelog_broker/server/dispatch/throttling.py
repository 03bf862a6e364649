"""Enforces the quotas of clients (KIP-13, KIP-124, KIP-219, KIP-599). No other module enforces quotas.

A client that has exceeded its quota gets its response immediately, with the time to wait (`throttle_time_ms`), and the
broker handles no further request of this connection until the time is over. A Fetch beyond the quota reads nothing and
gets an empty response.

Several connections may share a quota. While they have exceeded the quota, the first request with which a new connection
would use the same quota is delayed: the request is not handled until the quota is no longer exceeded (S95). Therefore a
client gains nothing by opening a new connection for each request. A delayed Produce request is charged to the quota
when its delay begins. A delayed Produce request waits only once, for usage before its delay; usage by other clients
during the delay does not extend the wait. Many concurrent requests may exceed the quota at most by the usage of
`MAX_DEBT_WINDOWS` quota windows. A connection that has waited for a quota window or longer is checked again like a new
connection, so that the rate is still enforced. The rate at which an address may open connections is a separate quota,
connection_creation_rate.

- producer_byte_rate limits the bytes of Produce requests.
- consumer_byte_rate limits the bytes of records in Fetch responses, except responses to followers.
- request_percentage limits processor time (`metered`), except for requests that brokers send as brokers.
- controller_mutation_rate limits the partitions that are created and deleted.

Each quota is a token bucket (`security/quotas/bucket.py`). While no client has a quota, the `dispatcher` has no
Throttling object. A changed quota applies from the next request on.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.quota_keys import (
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
)
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.model.quotas import MAX_NAME_CHARS, Quotas
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.quotas.client_limits import ClientLimits
from oncelog_broker.security.quotas.limits import Limit, limit_for
from oncelog_broker.security.quotas.observed import Observed
from oncelog_broker.security.quotas.usage import Usage
from oncelog_broker.server.dispatch.metered import STRICT_SINCE, MeteredContext
from oncelog_broker.server.kept.fetch_sessions import (
    FINAL_EPOCH,
    FIRST_TOPIC_ID_VERSION,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPlan,
)
from oncelog_broker.server.net.connection import BrokerConnection, PutOff
from oncelog_broker.server.records.services import RecordContext
from oncelog_broker.server.request.context import AnyContext, CommonServices, RequestContext
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.quotas import QuotaKey

MAX_THROTTLE_MS: Final = 2**31 - 1
"""The largest value of `throttle_time_ms`, in ms."""
PERCENT: Final = 0.01
_STRICT_SINCE: Final[Mapping[int, int]] = {int(api): version for api, version in STRICT_SINCE.items()}

Handler = Callable[[Any, Any], Answer[Any]]


class Throttling:
    """Enforces the client quotas of one broker."""

    def __init__(self, config: BrokerConfig, clock: Clock, *, is_observed: bool = False) -> None:
        """If `is_observed` is True, usage is also recorded for metrics."""
        self._clock = clock
        self._quotas: Quotas = {}
        self._has_quotas = False
        self._epoch = object()
        window_seconds = config[QUOTA_WINDOW_SIZE_SECONDS]
        self._max_request_seconds = float(window_seconds)
        self.usage = Usage(window_seconds * max(1, config[QUOTA_WINDOW_NUM] - 1))
        self.observed = Observed(self.usage.window) if is_observed else None
        self.mutations = Usage(config[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * config[CONTROLLER_QUOTA_WINDOW_NUM])

    def on_image(self, image: ClusterImage) -> Throttling | None:
        """Apply the quotas of a new cluster image. Returns the Throttling that enforces the quotas; None if no client
        has a quota.
        """
        if image.quotas is not self._quotas:
            self._quotas, self._epoch = image.quotas, object()
            self._has_quotas = any(entity.ip is None for entity in image.quotas)
            if self.observed is not None:
                self.observed.quotas = image.quotas
        return self if self._has_quotas else None

    # --- methods for the `dispatcher`

    def context(
        self,
        services: CommonServices,
        connection: BrokerConnection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        request_bytes: int,
    ) -> AnyContext:
        """Return the context of a request; the context counts the request's usage if its client has a quota.
        Connections have no quotas before their login, because `login_gate` limits the requests before a login. Raises
        PutOff.
        """
        gate, limits = connection.gate, connection.client_limits
        if gate is not None and not gate.exchange.is_done:
            return RequestContext(services, connection, api_key, version, correlation_id, client_id)
        if (
            limits is None
            or limits.epoch is not self._epoch
            or limits.principal is not connection.principal
            or limits.client_id != client_id
        ):
            limits = connection.client_limits = self._limits(connection, client_id)
        if limits.are_none:
            return RequestContext(services, connection, api_key, version, correlation_id, client_id)
        self._ask_before_the_first(limits, api_key, version, request_bytes)
        return MeteredContext(
            services,
            connection,
            api_key,
            version,
            correlation_id,
            client_id,
            throttling=self,
            limits=limits,
            request_bytes=request_bytes,
        )

    def serve(self, handler: Handler, request: Any, context: AnyContext) -> Answer[Any]:
        """Return the handler's response with the throttle time; a client over its fetch quota gets an empty fetch
        response instead.
        """
        if not isinstance(context, MeteredContext):
            return handler(request, context)
        is_late = context.begins_late()
        limit = context.limits.fetch
        if context.api_key == ApiKey.FETCH and limit is not None and not _is_replica(request):
            if self.wait(QuotaKey.CONSUMER_BYTE_RATE, limit) > 0:
                handler = _empty_fetch
            else:
                request.max_bytes = int(min(request.max_bytes, max(1, self.usage.in_a_window(limit))))
        answer = handler(request, context)
        if is_late:
            context.handled()
        else:
            context.measure()
        return then(answer, lambda response: self._settled(response, context))

    def _ask_before_the_first(self, limits: ClientLimits, api_key: int, version: int, request_bytes: int) -> None:
        """Raises PutOff if other connections have exceeded a quota that this connection now uses for the first time.
        Fetch quotas are checked in `serve`, at each request.
        """
        charged = limits.charged
        if api_key == ApiKey.PRODUCE:
            limit = limits.produce
            if limit is not None and QuotaKey.PRODUCER_BYTE_RATE not in charged:
                self._ask_to_produce(limits, limit, request_bytes)
        elif version < _STRICT_SINCE.get(api_key, 0):  # in newer versions, the handlers check this quota
            limit = limits.mutation
            if limit is not None and QuotaKey.CONTROLLER_MUTATION_RATE not in charged:
                charged[QuotaKey.CONTROLLER_MUTATION_RATE] = 0.0
                seconds = self.wait(QuotaKey.CONTROLLER_MUTATION_RATE, limit)
                self._put_off(QuotaKey.CONTROLLER_MUTATION_RATE, limit, min(seconds, self.mutations.window))
        if limits.request is not None and QuotaKey.REQUEST_PERCENTAGE not in charged:
            charged[QuotaKey.REQUEST_PERCENTAGE] = 0.0  # 0.0, because the request only waits for earlier usage
            limit = _of_processor(limits.request)
            seconds = self.wait(QuotaKey.REQUEST_PERCENTAGE, limit)
            self._put_off(QuotaKey.REQUEST_PERCENTAGE, limit, min(seconds, self._max_request_seconds))

    def _ask_to_produce(self, limits: ClientLimits, limit: Limit, request_bytes: int) -> None:
        """Raises PutOff if the request must wait because of earlier usage of the quota. A request that must wait for
        less than `Usage.max_debt_seconds` is charged now, and waits only once. Any other request is checked again after
        its wait.
        """
        key = QuotaKey.PRODUCER_BYTE_RATE
        seconds = self.wait(key, limit)
        if seconds < self.usage.max_debt_seconds:
            limits.charged[key] = 0.0
            if seconds > 0:
                limits.charged[key] = request_bytes
                self.use(key, limit, request_bytes, in_full=True)
        self._put_off(key, limit, seconds)

    def _put_off(self, key: QuotaKey, limit: Limit, seconds: float) -> None:
        """Raises PutOff, which delays the request, if `seconds` is above 0."""
        if seconds > 0:
            self._tell_of_wait(key, limit, seconds)
            raise PutOff(seconds)

    def _tell_of_wait(self, key: QuotaKey, limit: Limit, seconds: float) -> None:
        if self.observed is not None:
            self.observed.waits(key, limit.shared_by, seconds, self._clock.monotonic())

    # --- methods for fast lanes

    def known_limits(self, connection: BrokerConnection, client_id: str | None) -> ClientLimits | None:
        """Return the client's quotas if they were looked up before; otherwise None. None means that the request must be
        served by its handler (the usual way); the quotas are then looked up.
        """
        gate, limits = connection.gate, connection.client_limits
        if (
            (gate is not None and not gate.exchange.is_done)
            or limits is None
            or limits.epoch is not self._epoch
            or limits.principal is not connection.principal
            or limits.client_id != client_id
        ):
            return None
        return limits

    def charge_produce(self, connection: BrokerConnection, limits: ClientLimits, request_bytes: int) -> int:
        """Charge a Produce request that a fast lane served. Returns the throttle time in ms, for which the connection
        waits from now on."""
        seconds, key, limit = self._count_produced(limits, request_bytes)
        return self._throttle(connection, limits, seconds, key, limit) if seconds > 0 else 0

    # --- methods for request contexts

    def wait(self, key: QuotaKey, limit: Limit) -> float:
        """Return the seconds that a client must wait because of the usage that is charged to its quota so far."""
        return self._usage(key).wait(key, limit, self._clock.monotonic())

    def use(self, key: QuotaKey, limit: Limit, amount: float, *, in_full: bool = False) -> float:
        """Record usage; returns the seconds that the client must then wait. If `in_full` is True, the entire amount is
        charged, even to a bucket that several clients share; without `in_full`, only a part is charged if the usage of
        such a bucket would exceed its bound.
        """
        now = self._clock.monotonic()
        if self.observed is not None:
            self.observed.used(key, limit.shared_by, amount, now)
        return self._usage(key).use(key, limit, amount, now, in_full=in_full)

    def count_processor(self, context: MeteredContext) -> float:
        """Count the processor time of the request; returns the seconds to wait, which are bounded per request, as in
        Kafka.
        """
        limit, spent = context.limits.request, context.spent
        if limit is None:
            return 0.0
        context.spent = 0.0
        seconds = self.use(QuotaKey.REQUEST_PERCENTAGE, _of_processor(limit), spent)
        return min(seconds, self._max_request_seconds)

    def _usage(self, key: QuotaKey) -> Usage:
        return self.mutations if key is QuotaKey.CONTROLLER_MUTATION_RATE else self.usage

    def _limits(self, connection: BrokerConnection, client_id: str | None) -> ClientLimits:
        user, name = connection.principal.name, client_id or ""
        if len(name) > MAX_NAME_CHARS:
            name = hashlib.sha256(name.encode()).hexdigest()  # a quota cannot name such a long client id

        def limit(key: QuotaKey) -> Limit | None:
            return limit_for(user, name, key, self._quotas)

        return ClientLimits(
            self._epoch,
            connection.principal,
            client_id,
            limit(QuotaKey.PRODUCER_BYTE_RATE),
            limit(QuotaKey.CONSUMER_BYTE_RATE),
            limit(QuotaKey.REQUEST_PERCENTAGE),
            limit(QuotaKey.CONTROLLER_MUTATION_RATE),
            {},
        )

    # --- methods that add the throttle time to the response -----------------------------------------------------------

    def _settled(self, response: Any, context: MeteredContext) -> Any:
        """Set the throttle time in the response, and let the connection wait from now on. A response of None means that
        the request gets no response (acks=0).
        """
        if context.is_exempt:
            return response
        seconds, key, limit = self._count_bytes(response, context)
        of_processor = self.count_processor(context)
        if of_processor > seconds:
            seconds, key, limit = of_processor, QuotaKey.REQUEST_PERCENTAGE, context.limits.request
        context.is_settled = True
        mutation = context.limits.mutation
        if context.waits_to_mutate and mutation is not None:
            of_mutations = self.wait(QuotaKey.CONTROLLER_MUTATION_RATE, mutation)
            if of_mutations > seconds:
                seconds, key, limit = of_mutations, QuotaKey.CONTROLLER_MUTATION_RATE, mutation
        if seconds > 0:
            throttle_ms = self._throttle(context.connection, context.limits, seconds, key, limit)
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
        return response

    def _throttle(
        self, connection: BrokerConnection, limits: ClientLimits, seconds: float, key: QuotaKey, limit: Limit | None
    ) -> int:
        """Let the connection handle no further request for `seconds`. Returns the throttle time for the response, in
        ms.
        """
        if limit is not None:
            self._tell_of_wait(key, limit, seconds)
        if seconds >= self._usage(key).window:
            # A bucket remembers usage only for a limited time, and several connections may share it. So the next
            # request of this connection is checked again like the first request of a new connection.
            limits.charged.pop(key, None)
        throttle_ms = min(math.ceil(seconds * 1000), MAX_THROTTLE_MS)
        connection.throttle(throttle_ms / 1000)
        return throttle_ms

    def _count_bytes(self, response: Any, context: MeteredContext) -> tuple[float, QuotaKey, Limit | None]:
        """Count the bytes of a Produce or Fetch; returns the seconds to wait, and the quota that causes the wait."""
        limits = context.limits
        if context.api_key in (ApiKey.FETCH, ApiKey.SHARE_FETCH) and limits.fetch is not None:
            key, limit, amount = QuotaKey.CONSUMER_BYTE_RATE, limits.fetch, _record_bytes(response)
        elif context.api_key == ApiKey.PRODUCE:
            return self._count_produced(limits, context.request_bytes)
        else:
            return 0.0, QuotaKey.PRODUCER_BYTE_RATE, None
        return self.use(key, limit, amount), key, limit

    def _count_produced(self, limits: ClientLimits, request_bytes: int) -> tuple[float, QuotaKey, Limit | None]:
        """Count the bytes of a Produce request of `request_bytes` bytes; returns the seconds to wait, and the quota
        that causes the wait.
        """
        key, limit = QuotaKey.PRODUCER_BYTE_RATE, limits.produce
        if limit is None:
            return 0.0, key, None
        if ahead := limits.charged.get(key):
            limits.charged[key] = 0.0
            request_bytes = max(0, request_bytes - int(ahead))
        return self.use(key, limit, request_bytes), key, limit


def _of_processor(limit: Limit) -> Limit:
    """Convert a limit in percent to a limit in seconds of processor time per second."""
    return limit._replace(rate=max(limit.rate * PERCENT, sys.float_info.min))  # the result may be too small for a float


def _is_replica(request: FetchRequest) -> bool:
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)


def _record_bytes(response: FetchResponse) -> int:
    return sum(len(partition.records or b"") for topic in response.responses for partition in topic.partitions)


def _empty_fetch(request: FetchRequest, context: RecordContext) -> Answer[FetchResponse]:
    """Return the empty response that Kafka sends to a client that must wait. The fetch session applies the request's
    changes and continues; no session is created, and a session that the client closes is not closed here, but evicted
    when other sessions need its slot.
    """
    if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        return FetchResponse(session_id=NO_SESSION, responses=[])
    services = context.services
    planned = services.fetch_sessions.plan(
        request,
        by_id=context.version >= FIRST_TOPIC_ID_VERSION,
        now=services.clock.monotonic(),
        owner=context.connection.principal,
    )
    return context.in_slices(_nothing(planned, request.session_id))


def _nothing(planned: Steps[FetchPlan], session_id: int) -> Steps[FetchResponse]:
    try:
        yield from planned
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])
    return FetchResponse(session_id=session_id, responses=[])
