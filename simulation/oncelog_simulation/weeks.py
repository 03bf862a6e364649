"""Draws plans of clusters that live for days with rare load and rare faults, so that limits of days really pass: the
expiration of producer ids, transactional ids and committed offsets, retention, and transactions that stay prepared.

Such a plan costs little processor time because of `Plan.leisure` and of settings with which brokers send few requests
while nothing happens: an idle cluster of such a plan runs some ten thousand times faster than the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final

from oncelog_simulation.entropy import stream
from oncelog_simulation.plan import Plan

DAY_SECONDS: Final = 86_400.0
DAYS: Final = (1.0, 10.0)
"""Minimum and maximum virtual days of a plan; short plans are as frequent as long ones."""
ROUND_DAYS: Final = 2.0
"""Approximate virtual days between two repetitions of the drawn faults; each repetition draws their strength anew."""
LEISURE: Final = 120.0
"""Value of `Plan.leisure`. Faults last as many times longer than usual, because sessions and the limit after which a
replica is out of sync are also longer.
"""
BUSY: Final = frozenset(
    {"lost answers of the store", "flapping", "leadership flaps", "stalled streams", "late messages"}
)
"""Faults that change something several times a second for as long as they last; they do not last longer than usual."""
PACE: Final = 7200.0
"""Value of `Plan.pace`: a client that usually pauses for half a second between two steps pauses for an hour."""
SETTINGS: Final[Mapping[str, str]] = {
    "zookeeper.session.timeout.ms": "180000",
    "replica.fetch.wait.max.ms": "180000",
    "replica.lag.time.max.ms": "300000",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "7200000",
    "group.consumer.session.timeout.ms": "1800000",
    "group.consumer.max.session.timeout.ms": "1800000",
    "group.consumer.heartbeat.interval.ms": "600000",
    "group.consumer.max.heartbeat.interval.ms": "600000",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "600000",
    "log.cleaner.backoff.ms": "600000",
    "log.flush.scheduler.interval.ms": "600000",
    "log.flush.offset.checkpoint.interval.ms": "600000",
    "log.flush.start.offset.checkpoint.interval.ms": "600000",
    "replica.high.watermark.checkpoint.interval.ms": "600000",
    "log.segment.delete.delay.ms": "60000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "60000",
    "transaction.max.timeout.ms": "7200000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "3600000",
    "producer.id.expiration.check.interval.ms": "600000",
    "offsets.retention.check.interval.ms": "600000",
    "share.coordinator.state.topic.prune.interval.ms": "3600000",
}
"""Settings of the brokers; most of them are Kafka's defaults, and some are longer. By default, records stay for ever,
because the judges expect them at the end of ten days; topics whose records expire have settings of their own.
"""
EXPIRATION_DAYS: Final = (0.25, 0.5, 1.0, 2.0, 7.0)
"""Days from which each limit is drawn: those that are at most half as long as the plan, and always the first two."""
HOUR_MS: Final = 3_600_000


def prolonged(plan: Plan) -> Plan:
    """Return a plan of the same faults that lasts for days."""
    random, (least, most) = stream(plan.seed, "weeks"), DAYS
    days = least * (most / least) ** random.random()
    seconds = round(days * DAY_SECONDS, 3)
    rounds = max(1, round(days / ROUND_DAYS))
    share = seconds / rounds / plan.seconds
    strikes = tuple(
        replace(
            strike,
            at=round((number * plan.seconds + strike.at) * share, 3),
            seconds=strike.seconds if strike.fault in BUSY else round(strike.seconds * LEISURE, 3),
            strength=random.random() if number else strike.strength,
        )
        for number in range(rounds)
        for strike in plan.strikes
    )
    settings = {**plan.settings, **SETTINGS, **_expirations(random, days)}
    return replace(plan, seconds=seconds, pace=PACE, leisure=LEISURE, strikes=strikes, settings=settings)


def _expirations(random: Random, days: float) -> dict[str, str]:
    """Draw the limits after which idle producers, transactional ids and groups are forgotten."""
    possible = [each for each in EXPIRATION_DAYS if each <= max(days / 2, EXPIRATION_DAYS[1])]
    return {
        "producer.id.expiration.ms": str(round(random.choice(possible) * 24 * HOUR_MS)),
        "transactional.id.expiration.ms": str(round(random.choice(possible) * 24 * HOUR_MS)),
        "offsets.retention.minutes": str(round(random.choice(possible) * 24 * 60)),
    }
