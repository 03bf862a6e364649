"""Jobs compute the assignments of large groups; a result is applied even if the group has changed since then."""

from __future__ import annotations

import pytest
from tests.support.consumer_groups import Client848, ConsumerDriver, owned, topic
from tests.support.groups import state_of

from oncelog_broker.coordinator.group.consumer import target
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroupState


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> ConsumerDriver:
    """A driver with a limit so low that every group counts as large."""
    monkeypatch.setattr(target, "SMALL", 0)
    return ConsumerDriver()


@pytest.fixture
def first(driver: ConsumerDriver) -> Client848:
    return driver.joined()


def test_the_assignment_comes_with_a_later_heartbeat(driver: ConsumerDriver, first: Client848) -> None:
    assert (owned(first), first.epoch) == ([], 1)
    assert [job.name for job in driver.jobs] == ["assign"]
    driver.run_jobs()
    first.beat()
    assert (len(first.owns), first.epoch) == (4, 2)
    assert state_of(driver.replayed()) == state_of(driver.machine)


def test_heartbeats_before_the_assignment_ask_again_and_come_soon(driver: ConsumerDriver, first: Client848) -> None:
    first.beat()
    first.beat()
    assert [job.name for job in driver.jobs] == ["assign"] * 3, "the runtime does one of them"
    assert first.interval_ms <= 1000


def test_a_member_that_left_during_the_computation_is_skipped(driver: ConsumerDriver, first: Client848) -> None:
    second = driver.joined()
    driver.run_jobs_after(lambda: second.leave())
    assert driver.consumers.targets.keys() == {"m1"}
    driver.settle(first)
    assert len(first.owns) == 4


def test_a_member_that_joined_during_the_computation_waits_for_the_next_assignment(
    driver: ConsumerDriver, first: Client848
) -> None:
    joined: list[Client848] = []
    driver.run_jobs_after(lambda: joined.append(driver.joined()))
    assert driver.consumers.assignment_epoch < driver.consumers.epoch
    driver.settle(first, *joined)
    assert [len(client.owns) for client in (first, *joined)] == [2, 2]


def test_a_static_member_that_was_replaced_meanwhile_gets_what_its_older_self_was_to_have(
    driver: ConsumerDriver, first: Client848
) -> None:
    old = driver.joined(instance_id="i")
    old.leave(-2)
    again: list[Client848] = []
    driver.run_jobs_after(lambda: again.append(driver.joined(instance_id="i")))
    driver.settle(first, *again)
    assert driver.consumers.state is ConsumerGroupState.STABLE
    assert sorted([*first.owns, *again[0].owns]) == [("t", n) for n in range(4)]


def test_a_result_for_a_deleted_group_is_dropped(driver: ConsumerDriver, first: Client848) -> None:
    second = driver.joined()

    def create_again() -> None:
        second.leave()
        first.leave()
        driver.run(lambda answer: driver.machine.delete("g"))
        first.join()

    driver.run_jobs_after(create_again)
    assert driver.consumers.assignment_epoch < driver.consumers.epoch
    driver.settle(first)
    assert len(first.owns) == 4


def test_a_result_that_is_too_late_is_dropped(driver: ConsumerDriver, first: Client848) -> None:
    late = list(driver.jobs)
    driver.run_jobs()
    logged = len(driver.log)
    driver.jobs = late
    driver.run_jobs()
    assert len(driver.log) == logged


def test_s85_a_result_that_cannot_be_logged_is_asked_for_again(driver: ConsumerDriver, first: Client848) -> None:
    driver.fail_appends = True
    driver.run_jobs()
    driver.fail_appends = False
    assert driver.consumers.assignment_epoch == 1
    first.beat()
    driver.run_jobs()
    first.beat()
    assert len(first.owns) == 4


def test_a_partly_logged_assignment_is_computed_again_as_a_whole(driver: ConsumerDriver) -> None:
    """The assignment epoch is logged after the members' target assignments. If the broker dies before, the log mixes
    targets of two assignments, which may overlap.
    """
    driver.set_topics(topic("t", 6))
    members = [driver.joined() for _ in range(2)]
    driver.settle(*members)
    third = driver.joined()
    driver.advance(2)
    members[0].beat()
    before = len(driver.log)
    driver.run_jobs()
    assert len(driver.log) - before == 4
    del driver.log[before + 1 :]
    driver.restart()
    driver.settle(*members, third)
    assert owned(*members, third) == [("t", n) for n in range(6)]
    assert driver.consumers.state is ConsumerGroupState.STABLE
