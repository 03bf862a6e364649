"""Plans of days: their limits, and that a sleeping client notices if brokers forget it too early or too late."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from random import Random
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from oncelog_broker.coordinator.group import offset_removal
from oncelog_broker.coordinator.group.offsets import CommittedOffsets
from oncelog_simulation.judges import logs
from oncelog_simulation.plan import Plan, Strike
from oncelog_simulation.run import run
from oncelog_simulation.scenario import WholeCluster, draw_weeks_plan, draw_whole_plan
from oncelog_simulation.workloads import sleepers, sleeping_streams
from oncelog_simulation.workloads.catalogue import SLEEPERS
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.sleepers import SLACK_SECONDS, Sleeper
from oncelog_simulation.workloads.sleeping_streams import SleepingStreams

HOUR_SECONDS = 3600.0
LIMITS = ("producer.id.expiration.ms", "transactional.id.expiration.ms")


def night(workload: str, hours: int, seed: int = 3) -> Plan:
    """Return a plan of 16 hours without faults, whose brokers forget idle clients after `hours`."""
    limits = {limit: str(hours * 3_600_000) for limit in LIMITS} | {"offsets.retention.minutes": str(hours * 60)}
    plan = draw_weeks_plan(seed)
    return replace(
        plan,
        seconds=16 * HOUR_SECONDS,
        workloads=(workload,),
        strikes=(),
        settings={**plan.settings, **limits, "transaction.remove.expired.transaction.cleanup.interval.ms": "600000"},
    )


def test_plans_of_days_repeat_the_faults_of_the_seed_every_two_days_and_have_limits_that_pass() -> None:
    for seed in range(1, 51):
        whole, weeks = draw_whole_plan(seed), draw_weeks_plan(seed)
        days = weeks.seconds / 24 / HOUR_SECONDS
        assert 1 <= days <= 10
        assert [strike.fault for strike in weeks.strikes] == max(1, round(days / 2)) * [
            strike.fault for strike in whole.strikes
        ]
        assert all(0 <= strike.at <= weeks.seconds for strike in weeks.strikes)
        assert set(weeks.workloads) & set(SLEEPERS)
        for limit in LIMITS:
            assert int(weeks.settings[limit]) / 1000 <= max(weeks.seconds / 2, 12 * HOUR_SECONDS)


def test_no_other_plan_has_a_client_that_sleeps() -> None:
    for seed in range(1, 201):
        assert not set(draw_whole_plan(seed).workloads) & set(SLEEPERS)


@pytest.mark.parametrize("workload", SLEEPERS)
def test_what_expires_in_time_breaks_no_rule(workload: str) -> None:
    scenario = WholeCluster()
    assert run(night(workload, 3), scenario).violations == ()
    assert scenario.notes.steps(workload) > 3


@pytest.mark.parametrize(
    ("workload", "limit", "told", "seed", "found"),
    [
        ("sleeping-producer", 3, 12, 4, "the producer is forgotten"),
        ("sleeping-transactions", 3, 12, 6, "is forgotten"),
        ("sleeping-transactions", 3, 12, 4, "is refused: INVALID_PRODUCER_ID_MAPPING"),
        ("sleeping-group", 3, 12, 4, "and None is there"),
        ("sleeping-transactions", 9, 1, 4, "is remembered"),
        ("sleeping-transactions", 9, 1, 3, "is answered with NONE"),
        ("sleeping-group", 9, 1, 3, "which is still there"),
    ],
)
def test_a_sleeper_notices_that_it_is_forgotten_too_early_or_too_late(
    monkeypatch: pytest.MonkeyPatch, workload: str, limit: int, told: int, seed: int, found: str
) -> None:
    monkeypatch.setattr(Sleeper, "limit_seconds", lambda self, world: told * HOUR_SECONDS)
    violations = run(night(workload, limit, seed), WholeCluster()).violations
    assert any(found in each.what for each in violations), violations
    assert {each.judge for each in violations} == {"history"}


@pytest.mark.parametrize(("told", "found"), [(0.2, "is still there"), (48, "is deleted")])
def test_a_writer_of_aging_records_notices_that_they_are_deleted_too_early_or_too_late(
    monkeypatch: pytest.MonkeyPatch, told: float, found: str
) -> None:
    monkeypatch.setattr(sleepers, "AGING_SECONDS", told * HOUR_SECONDS)
    violations = run(night("aging-writer", 3), WholeCluster()).violations
    assert any(found in each.what for each in violations), violations


@pytest.mark.parametrize(
    ("expiry", "found"),
    [(logs.NEVER, "does not know producer"), (logs.Expiry(math.inf, math.inf), "still knows producer")],
)
def test_the_judge_of_logs_notices_producers_that_are_forgotten_too_early_or_too_late(
    monkeypatch: pytest.MonkeyPatch, expiry: logs.Expiry, found: str
) -> None:
    monkeypatch.setattr(logs, "_expiry", lambda world, broker: expiry)
    violations = run(night("sleeping-producer", 3), WholeCluster()).violations
    assert any(found in each.what for each in violations), violations
    assert {each.judge for each in violations} == {"logs"}


def test_a_sharer_waits_for_its_records_as_long_as_a_fault_of_a_plan_of_days_lasts() -> None:
    """While the metadata store is down, no broker leads a partition."""
    strike = Strike(at=600.0, fault="store without quorum", machines=(), seconds=1300.0, strength=0.8)
    plan = replace(night("sleeping-sharer", 3, 610009), seconds=2400.0, pace=30.0, strikes=(strike,))
    scenario = WholeCluster()
    assert run(plan, scenario).violations == ()
    assert scenario.notes.steps("sleeping-sharer") > 3


@pytest.mark.parametrize("seed", [2, 3])
def test_a_staying_member_whose_session_ended_in_a_fault_breaks_no_rule(seed: int) -> None:
    """Meanwhile the group, of the consumer protocol, has no member, so its offset expires."""
    strike = Strike(at=9000.0, fault="pause", machines=("staying-group",), seconds=6000.0, strength=0.8)
    scenario = WholeCluster()
    assert run(replace(night("staying-group", 3, seed), strikes=(strike,)), scenario).violations == ()
    assert scenario.notes.steps("staying-group") > 3


@pytest.mark.parametrize("seed", [2, 5])
def test_a_staying_member_notices_that_the_offset_of_its_group_has_expired(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    expired = CommittedOffsets.expired

    def without_topics(offsets: CommittedOffsets, group_id: str, **options: Any) -> list[tuple[str, int]]:
        return expired(offsets, group_id, **{**options, "keep_topics": ()})

    monkeypatch.setattr(offset_removal, "ClassicGroup", type(None))  # so that all groups count as of the new protocol
    monkeypatch.setattr(CommittedOffsets, "expired", without_topics)
    violations = run(night("staying-group", 3, seed), WholeCluster()).violations
    assert any("although it has a member" in each.what for each in violations), violations


@pytest.mark.parametrize(("slept", "is_wrong"), [(0.9 * SLACK_SECONDS, False), (1.1 * SLACK_SECONDS, True)])
def test_a_silent_streams_member_must_be_gone_only_after_the_longest_fault(
    monkeypatch: pytest.MonkeyPatch, slept: float, is_wrong: bool
) -> None:
    """While the metadata store is down, no coordinator ends a session, and the next coordinator restarts it."""

    class Wire:
        def __init__(self, *_: object) -> None: ...

        async def join(self) -> object:
            tasks = [SimpleNamespace(subtopology_id="0", partitions=[0])]
            return SimpleNamespace(error_code=0, member_epoch=1, active_tasks=tasks)

        async def beat(self, *_: object) -> object:
            return SimpleNamespace(error_code=0)

        async def commit(self, *_: object) -> int:
            return 0

        async def leave(self) -> int:
            return 0

    class Offsets:
        def __init__(self, *_: object, **options: object) -> None:
            self.groups = self

        async def __aenter__(self) -> Offsets:
            return self

        async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None: ...

        async def offsets(self, group: str) -> dict[tuple[str, int], object]:
            commit = notes.history.commits[-1]
            assert commit.group == group
            return {tuple(commit.place): SimpleNamespace(offset=commit.offset)}  # type: ignore[dict-item]

    async def sleep(*_: object) -> float:
        return slept

    monkeypatch.setattr(sleeping_streams, "StreamsWire", Wire)
    monkeypatch.setattr(sleeping_streams, "Admin", Offsets)
    monkeypatch.setattr(SleepingStreams, "sleep", sleep)
    notes, ignore = Notes(), lambda *_: None
    world: Any = SimpleNamespace(bootstrap_servers="", plan=Plan(seed=1), note=ignore)
    wire: Any = None
    asyncio.run(SleepingStreams(notes, "sleeping-streams").play(world, wire, Random(1)))
    assert bool(notes.complaints) is is_wrong
