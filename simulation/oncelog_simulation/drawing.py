"""Draws plans from seeds: each seed has a random subset of the faults and workloads (swarm testing)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from oncelog_simulation.entropy import stream
from oncelog_simulation.faults.catalogue import FAULTS
from oncelog_simulation.plan import Plan

MAX_STRIKES: Final = 12
SECONDS: Final = (3.0, 24.0)
"""Minimum and maximum seconds for which workloads work; short runs are as frequent as long ones."""
LONG_SHARE: Final = 0.1
"""Fraction of the seeds whose runs last for minutes, with clients that pause long between steps, because the effects of
long timeouts show only in long runs.
"""
LONG_SECONDS: Final = (100.0, 900.0)
LONG_PACE: Final = 40.0
LIGHT_SECONDS: Final = (1800.0, 14400.0)
"""Minimum and maximum virtual seconds of a `lightened` plan."""
LIGHT_ROUND_SECONDS: Final = 3600.0
"""Approximate virtual seconds between two repetitions of the drawn faults in a `lightened` plan; each repetition draws
the strength of the faults anew.
"""
LIGHT_PACE: Final = 200.0
"""Value of `Plan.pace` in a `lightened` plan: clients pause 200 times longer than usual between two steps."""
LIGHT_SETTINGS: Final = {
    "replica.fetch.wait.max.ms": "2000",
    "replica.lag.time.max.ms": "10000",
    "log.retention.check.interval.ms": "10000",
    "log.cleaner.backoff.ms": "5000",
    "log.flush.scheduler.interval.ms": "10000",
    "log.flush.offset.checkpoint.interval.ms": "30000",
    "log.flush.start.offset.checkpoint.interval.ms": "30000",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "5000",
    "share.coordinator.state.topic.prune.interval.ms": "30000",
}
"""In a `lightened` plan, a follower that has nothing to fetch sends one request in two seconds, and the periodic tasks
of brokers run every few seconds, so that an idle cluster costs little.
"""
MOST_SHORT_SECONDS: Final = 8.0
"""Limit on the seconds for which the workloads of a `shortened` plan work."""
PACES: Final = (1.0, 4.0, 8.0, 8.0, 16.0, 16.0)
"""Values of `Plan.pace` from which each seed draws one. With a few seeds the clients work fast; with most seeds they
work slowly, and the run costs little CPU.
"""
SHORT_PACE: Final = 8.0
"""Lowest value of `Plan.pace` in a `shortened` plan."""
SEGMENT_BYTES: Final = ("4000", "20000", "1073741824")
"""Values of log.segment.bytes from which each seed draws one. With the small values, segments are rolled, compacted and
deleted during a run.
"""

LATE_SHARES: Final = (0.01, 0.01, 0.01, 0.1, 0.3)
FETCH_BYTES: Final = ("400", "10485760")
"""Values of replica.fetch.max.bytes from which each seed draws one. With the small value, a follower that was down
needs many fetches to catch up.
"""


def draw_plan(
    seed: int,
    draw_workloads: Callable[[Random], tuple[str, ...]] = lambda random: (),
    *,
    faults: Sequence[str] | None = None,
) -> Plan:
    """Return the plan of a seed. `faults`: the kinds of faults to draw from; None means all."""
    random = stream(seed, "plan")
    kinds = sorted(FAULTS) if faults is None else list(faults)
    kinds = random.sample(kinds, min(len(kinds), random.choice((1, 2, 3, 4, 6, 9))))
    is_long = random.random() < LONG_SHARE
    least, most = LONG_SECONDS if is_long else SECONDS
    plan = Plan(
        seed,
        brokers=3,
        late_share=random.choice(LATE_SHARES),
        directories=random.choice((1, 1, 2, 3)),
        seconds=round(least * (most / least) ** random.random(), 3),
        pace=LONG_PACE if is_long else random.choice(PACES),
        settings={
            "log.segment.bytes": random.choice(SEGMENT_BYTES),
            "log.flush.interval.messages": random.choice(("1", "10", "9223372036854775807")),
            "replica.fetch.max.bytes": random.choice(FETCH_BYTES),
        },
        workloads=draw_workloads(stream(seed, "workloads")),
    )
    victim = f"broker-{random.randint(1, plan.brokers)}"
    strikes = []
    for _ in range(random.randint(1, MAX_STRIKES) if kinds else 0):
        kind = FAULTS[random.choice(kinds)]
        strike = kind.draw(random, plan, random.uniform(0.0, plan.seconds))
        strikes.append(replace(strike, machines=(victim,)) if kind.needs_whole else strike)
    return replace(plan, strikes=tuple(sorted(strikes, key=lambda strike: strike.at)))


def lightened(plan: Plan) -> Plan:
    """Return a plan with the same faults, spread over up to four hours and repeated about every hour, and with very
    slow clients. Such plans show errors that depend on long timeouts, checkpoints, retention and idle connections.
    """
    random, (least, most) = stream(plan.seed, "light"), LIGHT_SECONDS
    seconds = round(least * (most / least) ** random.random(), 3)
    rounds = max(1, round(seconds / LIGHT_ROUND_SECONDS))
    share = seconds / rounds / plan.seconds
    strikes = tuple(
        replace(
            strike,
            at=round((number * plan.seconds + strike.at) * share, 3),
            strength=random.random() if number else strike.strength,
        )
        for number in range(rounds)
        for strike in plan.strikes
    )
    return replace(
        plan, seconds=seconds, pace=LIGHT_PACE, strikes=strikes, settings={**plan.settings, **LIGHT_SETTINGS}
    )


def shortened(plan: Plan) -> Plan:
    """Return the same plan in a third of the time or less, with slow clients, because `make test` runs hundreds of such
    plans.
    """
    share = min(1 / 3, MOST_SHORT_SECONDS / plan.seconds)
    strikes = tuple(replace(strike, at=round(strike.at * share, 3)) for strike in plan.strikes)
    return replace(plan, seconds=round(plan.seconds * share, 3), pace=max(plan.pace, SHORT_PACE), strikes=strikes)
