"""Records quota usage and throttling for the metrics: rates over the latest windows, as in Kafka. Pure.

Clients choose their client ids, and Prometheus stores a time series for each reported id for weeks. Therefore the
number of reported entities is limited, and entities whose quota names them take precedence over entities with a default
quota. An entity that had no usage for an hour is dropped, as in Kafka, whose sensors expire. All entities beyond the
limits are reported together as one entity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog_broker.metadata.model.quotas import Quotas
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.quotas import QuotaEntity, QuotaKey

MAX_NAMED: Final = 400
"""Limit on the reported entities with a quota set for one user or client id; each takes about 400 bytes."""
MAX_OTHERS: Final = 100
"""Limit on the reported entities that have only a default quota, because clients can create any number of them by
choosing client ids.
"""
IDLE_SECONDS: Final = 3600.0
"""Kafka's InactiveSensorExpirationTimeSeconds."""
SWEEP_SECONDS: Final = 60.0
"""Seconds between two removals of idle entities."""
WITHOUT_PLACE: Final = ("", "")
"""The labels under which all entities beyond the limits, and clients without a name, are reported."""


class Recent:
    """A sum over the latest `span` seconds. The sum includes a part of the previous span's amount, in proportion to the
    part of the previous span that lies within the latest `span` seconds. Times are monotonic seconds.
    """

    __slots__ = ("_before", "_now", "_number", "_span")

    def __init__(self, span: float) -> None:
        self._span = span
        self._number = 0
        self._before = self._now = 0.0

    def add(self, amount: float, now: float) -> None:
        self._turn(now)
        self._now += amount

    def sum(self, now: float) -> float:
        self._turn(now)
        share = 1 - now / self._span % 1
        return max(0.0, self._before * share + self._now)  # a refund of earlier usage could make it negative

    def rate(self, now: float) -> float:
        """The rate over the latest `span` seconds, in units per second."""
        return self.sum(now) / self._span

    def _turn(self, now: float) -> None:
        number = int(now // self._span)
        if number != self._number:
            self._before = self._now if number == self._number + 1 else 0.0
            self._now, self._number = 0.0, number


class Seen(NamedTuple):
    """The metrics of the clients that share a quota."""

    user: str
    client_id: str
    rate: float
    """Usage per second, in the units of the quota."""
    throttle_ms: float
    """The average throttle time of throttled requests, in milliseconds; 0 if no request was throttled."""


class _Place:
    __slots__ = ("is_named", "last", "seconds", "used", "waits")

    def __init__(self, span: float, *, is_named: bool) -> None:
        self.used, self.waits, self.seconds = Recent(span), Recent(span), Recent(span)
        self.is_named = is_named
        self.last = 0.0


class Observed:
    """The quota metrics of one broker."""

    def __init__(self, span: float) -> None:
        """`span`: seconds over which rates are computed."""
        self.quotas: Quotas = {}
        """The quotas of the current cluster image."""
        self._span = span
        self._places: dict[tuple[QuotaKey, tuple[str, str]], _Place] = {}
        self._free = {True: MAX_NAMED, False: MAX_OTHERS}
        self._swept = float("-inf")

    def __len__(self) -> int:
        return len(self._places)

    def used(self, key: QuotaKey, entity: QuotaEntity, amount: float, now: float) -> None:
        """Count usage; a negative amount is a refund."""
        place = self._place(key, entity, now)
        place.used.add(amount, now)
        place.last = now

    def waits(self, key: QuotaKey, entity: QuotaEntity, seconds: float, now: float) -> None:
        """Count a throttled request that waits `seconds`."""
        place = self._place(key, entity, now)
        place.waits.add(1, now)
        place.seconds.add(seconds, now)

    def seen(self, key: QuotaKey, now: float) -> Iterator[Seen]:
        """Yield the metrics of one kind of quota, for all reported entities."""
        for (quota, (user, client_id)), place in list(self._places.items()):
            if quota is key and now - place.last < IDLE_SECONDS:
                waits = place.waits.sum(now)
                throttle_ms = place.seconds.sum(now) / waits * 1000 if waits else 0.0
                yield Seen(user, client_id, place.used.rate(now), throttle_ms)

    def _place(self, key: QuotaKey, entity: QuotaEntity, now: float) -> _Place:
        labels = (_label(entity.user), _label(entity.client_id))
        return self._places.get((key, labels)) or self._new(key, labels, entity, now)

    def _new(self, key: QuotaKey, labels: tuple[str, str], entity: QuotaEntity, now: float) -> _Place:
        is_named = key in self.quotas.get(entity, {})
        if not self._free[is_named] and now - self._swept >= SWEEP_SECONDS:
            self._sweep(now)
        if self._free[is_named]:
            self._free[is_named] -= 1
            place = self._places[key, labels] = _Place(self._span, is_named=is_named)
            place.last = now
            return place
        # All further entities share one entry for each kind of quota.
        return self._places.setdefault((key, WITHOUT_PLACE), _Place(self._span, is_named=True))

    def _sweep(self, now: float) -> None:
        self._swept = now
        self._places = {where: place for where, place in self._places.items() if now - place.last < IDLE_SECONDS}
        for is_named, places in ((True, MAX_NAMED), (False, MAX_OTHERS)):
            taken = sum(place.is_named is is_named for place in self._places.values())
            self._free[is_named] = max(0, places - taken)


def _label(name: object) -> str:
    """Return the name as a label. The label is empty if the entity has no user or no client id, because Prometheus
    treats an empty label as absent.
    """
    return name if isinstance(name, str) else ""
