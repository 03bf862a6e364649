"""Limits the rate of new connections: to each listener, to all listeners together, and from each address (KIP-402,
KIP-612).

Connections that arrive faster than a listener's rate wait in the listener's backlog. The inter-broker listener has its
own rate, so that many clients do not delay connections between brokers. A connection from an address beyond its quota
is accepted, because the address is known only then, and is closed after a delay. The delay slows down a client that
waits for this connection before it opens another one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.listener_config import ListenerConfig
from oncelog_broker.config.listeners import has_brokers_only_listener, inter_broker_listener
from oncelog_broker.config.quota_keys import (
    MAX_CONNECTION_CREATION_RATE,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
    UNLIMITED_RATE,
)
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.model.quotas import Quotas
from oncelog_broker.runtime.accepting import Pace
from oncelog_broker.runtime.addresses import plain_address
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.security.quotas.bucket import Bucket
from oncelog_broker.security.quotas.limits import limit_of_address
from oncelog_broker.security.quotas.observed import Recent
from oncelog_broker.security.quotas.usage import Usage
from oncelog_protocol.quotas import QuotaKey

MAX_HELD: Final = 256
"""The maximum number of connections that are kept open for the delay. Beyond this number, connections that exceed the
rate are closed immediately.
"""


class _Rate:
    """The connection rate of one listener, or of all listeners together."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.bucket = Bucket()


class _Pace:
    """Decides when one listener may accept the next connection, from the listener's own rate and the rate of all
    listeners together.
    """

    def __init__(self, rates: list[_Rate], clock: Clock, window: float) -> None:
        self._rates = rates
        self._clock = clock
        self._window = window

    def seconds(self) -> float:
        now = self._clock.monotonic()
        return max(rate.bucket.wait(now) for rate in self._rates)

    def take(self) -> None:
        now = self._clock.monotonic()
        for rate in self._rates:
            rate.bucket.use(1, rate.rate, now, self._window)


class Made:
    """The number of connections accepted by a listener."""

    def __init__(self, window: float) -> None:
        self.total = 0
        self.recent = Recent(window)


class ConnectionRates:
    """The connection rates of one broker."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._quotas: Quotas = {}
        self._has_quotas = False
        self._window = float(config[QUOTA_WINDOW_SIZE_SECONDS] * max(1, config[QUOTA_WINDOW_NUM] - 1))
        self._of_all = _Rate(config[MAX_CONNECTION_CREATION_RATE])
        self.usage = Usage(self._window)
        self._held: set[asyncio.Transport] = set()
        self.made: dict[str, Made] = {}
        """Listener name -> number of accepted connections."""
        self.turned_away = 0
        """Number of connections, since the broker's start, that were closed because their address had exceeded its
        rate.
        """

    def on_image(self, image: ClusterImage) -> None:
        """Enforce the address quotas of this cluster image."""
        if image.quotas is not self._quotas:
            self._quotas = image.quotas
            self._has_quotas = any(entity.ip is not None for entity in image.quotas)

    def pace(self, listener: str) -> Pace | None:
        """Return the pace at which a listener may accept connections. A pace of None means no limit."""
        config = self._config
        of_listener = ListenerConfig(config, listener)
        is_own = of_listener.name_of(MAX_CONNECTION_CREATION_RATE) != MAX_CONNECTION_CREATION_RATE.name
        rates = [_Rate(of_listener[MAX_CONNECTION_CREATION_RATE])] if is_own else []
        if not (has_brokers_only_listener(config) and inter_broker_listener(config) == listener):
            rates.append(self._of_all)
        limited = [rate for rate in rates if rate.rate < UNLIMITED_RATE]
        return _Pace(limited, self._clock, self._window) if limited else None

    def count(self, listener: str) -> None:
        """Count an accepted connection of this listener."""
        made = self.made.get(listener)
        if made is None:
            made = self.made[listener] = Made(self._window)
        made.total += 1
        made.recent.add(1, self._clock.monotonic())

    def refuse_if_over_rate(self, transport: asyncio.Transport, ip: str) -> bool:
        """Return whether a new connection exceeds the rate of its address. A connection that exceeds the rate is closed
        after a delay.
        """
        limit = limit_of_address(plain_address(ip) or ip, self._quotas) if self._has_quotas else None
        if limit is None:
            return False
        now = self._clock.monotonic()
        if self.usage.wait(QuotaKey.CONNECTION_CREATION_RATE, limit, now) <= 0:
            self.usage.use(QuotaKey.CONNECTION_CREATION_RATE, limit, 1, now)
            return False
        self.turned_away += 1
        if len(self._held) >= MAX_HELD:
            transport.abort()
        else:
            transport.pause_reading()
            self._held.add(transport)
            asyncio.get_running_loop().call_later(self._config[QUOTA_WINDOW_SIZE_SECONDS], self._close, transport)
        return True

    def close(self) -> None:
        """Close the connections that wait for their delayed closing, because the broker is stopping."""
        for transport in list(self._held):
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        self._held.discard(transport)
        transport.abort()
