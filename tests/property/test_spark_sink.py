"""The steps of the Spark sink write each row exactly once, with drivers, tasks, zombies and timeouts interleaved at
random.

The test runs the sink's real code against a model of a Kafka cluster. Every process may be paused, resumed and killed
between
any two of its requests, and also between a completed request and its response. A batch that Spark counts as committed
must be visible completely. The test also removes the sink's rules one by one, and must find an error each time, because
a test that cannot fail proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.pipeline.simulated_cluster import SimulatedCluster
from tests.support.pipeline.simulated_spark import Chaos, Delivery, Spark

from oncelog_pipeline.sink import exactly_once

SEED = st.integers(0, 2**32)
STEPS = 1500
TRIES = 400
"""The number of random plays within which the test must detect the removal of a rule."""
WITH_TIMEOUTS = Chaos(time_out=4)
OLDER_CHECKPOINTS = Chaos(time_out=4, kill_driver=20, set_back=500)
MANY_DRIVERS = Chaos(repeat_stage=0, second_driver=20, wake=60)


def played(seed: int, *, has_two_phase_commit: bool = False, **options: Any) -> Spark:
    """Play an entire run of a streaming query."""
    rng = Random(seed)
    is_v2 = has_two_phase_commit or rng.random() < 0.5
    spark = Spark(rng, SimulatedCluster(rng, is_v2=is_v2, has_two_phase_commit=has_two_phase_commit), **options)
    spark.play(STEPS)
    spark.settle()
    spark.check()
    return spark


def assert_right(spark: Spark) -> None:
    assert not spark.violations, "\n".join([*spark.violations, *spark.trace])


@given(seed=SEED)
@examples(60)
def test_each_batch_is_seen_as_a_whole_and_once(seed: int) -> None:
    """A replay of a batch produces different rows, perhaps in other partitions, so all visible rows must come from one
    attempt.
    """
    spark = played(seed, are_rows_the_same=False, chaos=Chaos(repeat_stage=0))
    assert_right(spark)
    assert not spark.cluster.was_lost, "nothing that is decided is aborted, but by its timeout"


@given(seed=SEED)
@examples(60)
def test_a_decided_timed_out_batch_is_written_again(seed: int) -> None:
    assert_right(played(seed, chaos=WITH_TIMEOUTS))


@given(seed=SEED)
@examples(60)
def test_s123_no_timeout_aborts_a_decided_batch_under_two_phase_commit(seed: int) -> None:
    """If no transaction times out, no batch needs a repair, so a replay may produce different rows."""
    chaos = Chaos(time_out=4, repeat_stage=0)
    spark = played(seed, has_two_phase_commit=True, are_rows_the_same=False, chaos=chaos)
    assert_right(spark)
    assert not spark.cluster.was_lost
    assert not spark.cluster.open_now(), "what was kept and not decided is swept"


def test_s123_the_timeouts_must_go_before_the_decision() -> None:
    chaos = Chaos(time_out=4, repeat_stage=0)
    assert found_wrong(lambda spark: spark.cluster.was_lost, chaos=chaos)


@given(seed=SEED)
@examples(60)
def test_a_checkpoint_that_is_set_back_loses_and_doubles_nothing(seed: int) -> None:
    assert_right(played(seed, chaos=OLDER_CHECKPOINTS))


@given(seed=SEED)
@examples(60)
def test_a_task_that_writes_by_itself_writes_once(seed: int) -> None:
    assert_right(played(seed, delivery=Delivery.PER_TASK, chaos=WITH_TIMEOUTS))


@given(seed=SEED)
@examples(30)
def test_at_least_once_loses_nothing(seed: int) -> None:
    spark = played(seed, delivery=Delivery.AT_LEAST_ONCE)
    seen = set(spark.cluster.visible)
    assert len(seen) == sum(row.count for row in {row._replace(number=0) for row in seen})


def found_wrong(is_wrong: Callable[[Spark], bool], **options: Any) -> bool:
    return any(is_wrong(played(seed, **options)) for seed in range(TRIES))


def has_violations(spark: Spark) -> bool:
    return bool(spark.violations)


def test_at_least_once_duplicates_under_the_same_kills() -> None:
    assert found_wrong(lambda spark: spark.has_duplicates, delivery=Delivery.AT_LEAST_ONCE)


def test_records_are_lost_without_the_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout aborts a decided batch. If the sink's state did not record the aborted transaction in `lost`, the
    batch's rows would be missing permanently.
    """

    async def ended_and_forgotten(*arguments: Any) -> frozenset[int]:
        await commit_all(*arguments)
        return frozenset()

    commit_all = exactly_once.commit_decided
    monkeypatch.setattr(exactly_once, "commit_decided", ended_and_forgotten)
    assert found_wrong(has_violations, chaos=WITH_TIMEOUTS)


def test_the_log_decides_if_the_coordinator_has_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction was committed, and another transaction used its transactional id. A driver that assumes an abort
    would write the rows twice.
    """

    async def none(_: Any, places: Any) -> list[bool]:
        return [False for _ in places]

    monkeypatch.setattr(SimulatedCluster, "are_visible", none)
    assert found_wrong(has_violations, chaos=Chaos(repeat_stage=20))


def test_decisions_of_a_later_batch_must_be_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query resumes from an older checkpoint. The last decision's driver died before it had ended all transactions of
    that decision.
    """
    finish = exactly_once._finish

    async def finish_this_one(cluster: Any, found: Any, batch: Any) -> Any:
        return await finish(cluster, found, batch) if found.batch == batch.number else frozenset()

    monkeypatch.setattr(exactly_once, "_finish", finish_this_one)
    assert found_wrong(has_violations, chaos=OLDER_CHECKPOINTS)


def test_the_state_must_be_read_again_after_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was fenced after it read the state must not decide a batch, because a newer run may be writing the
    same transactions again.
    """

    class Agreeing:
        """A query state that is read once; later reads return the same value, even if it is outdated."""

        def __init__(self, cluster: Any, seen: Any) -> None:
            self._cluster, self._seen = cluster, seen

        async def read_state(self, query: Any) -> Any:
            return self._seen

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cluster, name)

    decide = exactly_once._decide

    async def decide_blindly(cluster: Any, seen: Any, *arguments: Any) -> Any:
        return await decide(Agreeing(cluster, seen), seen, *arguments)

    monkeypatch.setattr(exactly_once, "_decide", decide_blindly)
    assert found_wrong(has_violations, are_rows_the_same=False)


def test_sweeping_must_spare_newer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule, a driver that was paused after it ended its transactions would abort transactions that a newer
    driver has decided to commit.
    """

    async def sweep_all(cluster: Any, batch: Any, _: Any) -> None:
        if left := await cluster.ongoing(batch.query):
            await cluster.fence(left)

    monkeypatch.setattr(exactly_once, "_sweep", sweep_all)
    assert found_wrong(lambda spark: spark.cluster.was_lost, chaos=MANY_DRIVERS)


def test_a_run_must_have_its_name_in_the_state_before_it_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a run has written its name to the state, an older run may decide to commit transactions that the new run's
    clean-up is aborting.
    """
    finish = exactly_once._finish

    async def finish_and_sweep(cluster: Any, found: Any, batch: Any) -> Any:
        lost = await finish(cluster, found, batch)
        await exactly_once._sweep(cluster, batch, (exactly_once.short(found.run), *found.former))
        return lost

    monkeypatch.setattr(exactly_once, "_finish", finish_and_sweep)
    assert found_wrong(lambda spark: spark.cluster.was_lost, chaos=MANY_DRIVERS)


def test_a_task_by_itself_needs_its_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*_: Any) -> None:
        return None

    monkeypatch.setattr(SimulatedCluster, "marker", none)
    assert found_wrong(lambda spark: spark.has_duplicates, delivery=Delivery.PER_TASK)
