"""The clients that use client metrics, and the rules for when a client may request its subscription and push metrics.
This module has no I/O. Times are in monotonic seconds.

Invariants, as in Kafka:

- A client may request its subscription (GetTelemetrySubscriptions) at most once per push interval. The client may
  request it earlier if its last push failed because of a wrong subscription id or compression.
- A client may push at most once per push interval, and once immediately after it has requested its subscription. A
  terminating push is allowed at any time, and no other push may follow it.
- After any subscription has changed, the next request of a client replaces the state of this client and selects its new
subscription.
- A client is removed when its connection ends, or when it has sent no request for three push intervals (at least one
minute).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog_broker.runtime.steps import Steps
from oncelog_broker.telemetry.subscriptions import ClientAttributes, Subscribed, Subscription, select, subscription_id
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.compression import Compression

MAX_INSTANCES: Final = 16_384
"""Maximum number of clients. If there are more clients, the client whose last request is the oldest is removed. Kafka's
limit.
"""
MIN_EXPIRY_SECONDS: Final = 60.0
SILENT_INTERVALS: Final = 3
SWEEP_SECONDS: Final = 60.0
"""Seconds between two sweeps that remove clients without recent requests."""
ASKS_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Error codes of a push after which a client may request its subscription again before the push interval is over."""
COMPRESSIONS: Final = frozenset[int](Compression)
NEVER: Final = float("-inf")


class ClientInstance:
    """The state of one client. `subscribed` was selected from the subscriptions of the generation `generation`; this
    number rises whenever subscriptions change.
    """

    __slots__ = (
        "attributes",
        "expires",
        "generation",
        "id",
        "is_terminating",
        "last_error",
        "last_get",
        "last_push",
        "subscribed",
        "subscription_id",
    )

    def __init__(self, id_: bytes, attributes: ClientAttributes, subscribed: Subscribed, generation: int) -> None:
        self.id = id_
        self.attributes = attributes
        self.subscribed = subscribed
        self.subscription_id = subscription_id(subscribed, id_)
        self.generation = generation
        self.last_get = self.last_push = NEVER
        self.last_error = ErrorCode.NONE
        self.is_terminating = False
        self.expires = NEVER

    @property
    def interval(self) -> float:
        """The push interval in seconds."""
        return self.subscribed.interval_ms / 1000

    @property
    def expiry_seconds(self) -> float:
        """Seconds between the client's last request and its removal."""
        return max(MIN_EXPIRY_SECONDS, SILENT_INTERVALS * self.interval)

    def check_get(self, now: float) -> None:
        """Check a GetTelemetrySubscriptions request. Raises KafkaError THROTTLING_QUOTA_EXCEEDED if the client sends
        the request too early.
        """
        if now - max(self.last_get, self.last_push) >= self.interval:
            self.last_get = now
        elif self.last_error not in ASKS_AGAIN:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over")
        self.last_error = ErrorCode.NONE

    def check_push(
        self, subscription: int, compression: int, size: int, max_bytes: int, now: float, *, is_terminating: bool
    ) -> None:
        """Check a PushTelemetry request; `size` is the number of bytes of the compressed metrics. Raises KafkaError
        with the errors of PushTelemetry.
        """
        was_terminating, self.is_terminating = self.is_terminating, is_terminating
        if was_terminating:
            self._fail(ErrorCode.INVALID_REQUEST, "the client's last push was its terminating one")
        if self.last_get > self.last_push or now - self.last_push >= self.interval:
            self.last_push = now
        elif not is_terminating:
            self._fail(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over")
        if subscription != self.subscription_id:
            self._fail(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"the client's subscription is {self.subscription_id}")
        if compression not in COMPRESSIONS:
            self._fail(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {compression}")
        if size > max_bytes:
            self._fail(ErrorCode.TELEMETRY_TOO_LARGE, f"{size} bytes, of {max_bytes} at most (telemetry.max.bytes)")
        self.last_error = ErrorCode.NONE

    def _fail(self, code: ErrorCode, message: str) -> None:
        self.last_error = code
        raise KafkaError(code, message)


class ClientInstances:
    """The clients of one broker, in the order of their last requests."""

    def __init__(self) -> None:
        self._instances: dict[bytes, ClientInstance] = {}
        self._subscriptions: list[Subscription] = []
        self._generation = 0
        self._swept = NEVER

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, subscriptions: list[Subscription]) -> None:
        """Replace all subscriptions."""
        self._subscriptions = subscriptions
        self._generation += 1

    def unused_id(self, draw: Callable[[], bytes]) -> bytes:
        """Return a new client instance id. `draw` returns a random UUID."""
        while (drawn := draw()) in self._instances:
            pass
        return drawn

    def of(self, id_: bytes, attributes: ClientAttributes, now: float) -> Steps[ClientInstance]:
        """Return the client with this id. The client object is created if the client is unknown or if subscriptions
        have changed.
        """
        instance = self._current(id_, now)
        while instance is None:
            generation = self._generation
            known = self._instances.get(id_)
            client = attributes if known is None or known.expires < now else known.attributes
            subscribed = yield from select(self._subscriptions, client)
            if generation == self._generation:  # otherwise select again from the changed subscriptions
                instance = self._current(id_, now) or ClientInstance(id_, client, subscribed, generation)
        self._instances.pop(id_, None)
        self._instances[id_] = instance
        instance.expires = now + instance.expiry_seconds
        self._forget_some(now)
        return instance

    def forget(self, id_: bytes) -> None:
        """Remove a client whose connection has ended."""
        self._instances.pop(id_, None)

    def _current(self, id_: bytes, now: float) -> ClientInstance | None:
        instance = self._instances.get(id_)
        if instance is None or instance.expires < now or instance.generation != self._generation:
            return None
        return instance

    def _forget_some(self, now: float) -> None:
        if now - self._swept >= SWEEP_SECONDS:
            self._swept = now
            self._instances = {id_: found for id_, found in self._instances.items() if found.expires >= now}
        while len(self._instances) > MAX_INSTANCES:
            del self._instances[next(iter(self._instances))]
