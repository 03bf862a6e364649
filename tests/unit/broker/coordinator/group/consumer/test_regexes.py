"""Subscriptions by regular expression: when the group looks topics up, and the resulting assignments."""

from __future__ import annotations

import pytest
from tests.support.consumer_groups import ConsumerDriver, owned, topic
from tests.support.groups import state_of

from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroupState
from oncelog_broker.coordinator.group.consumer.regexes import Resolved
from oncelog_broker.coordinator.group.consumer_records import GroupEpochRecord
from oncelog_protocol.errors import ErrorCode

ALL_T = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver()


def test_a_member_gets_the_topics_that_match_as_a_whole(driver: ConsumerDriver) -> None:
    driver.set_topics(topic("tt", 1))
    first = driver.joined(topics=None, regex="t|nothing")
    assert (owned(first), first.epoch, first.interval_ms) == ([], 1, 1000)
    driver.run_jobs()
    assert driver.consumers.state is ConsumerGroupState.ASSIGNING
    first.beat()
    assert owned(first) == ALL_T
    assert first.interval_ms == 5000


def test_a_subscription_by_names_and_pattern_is_their_union(driver: ConsumerDriver) -> None:
    first = driver.joined(topics=("u",), regex="t.*")
    assert owned(first) == [("u", 0), ("u", 1)]
    driver.run_jobs()
    driver.advance(2)
    first.beat()
    assert owned(first) == [*ALL_T, ("u", 0), ("u", 1)]


def test_c8_a_pattern_that_is_wrong_is_refused_when_it_is_new(driver: ConsumerDriver) -> None:
    first = driver.joined()
    answer = first.beat(subscribed_topic_regex="(", wrong_regex="missing )")
    assert answer.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert driver.consumers.members["m1"].regex == ""


def test_c8_a_member_drops_its_pattern_and_takes_it_again(driver: ConsumerDriver) -> None:
    first = driver.joined(topics=("u",), regex="t")
    driver.run_jobs()
    driver.advance(2)
    first.beat()
    epoch = driver.consumers.epoch
    driver.advance(2)
    first.beat(subscribed_topic_regex="")
    assert driver.consumers.epoch == epoch + 1
    assert driver.consumers.regexes == {}
    assert owned(first) == [("u", 0), ("u", 1)]
    driver.advance(2)
    first.beat(subscribed_topic_regex="t")
    assert driver.consumers.epoch == epoch + 1, "what it matches is not known yet"
    driver.run_jobs()
    assert driver.consumers.epoch == epoch + 2
    first.beat()
    assert len(first.owns) == 6


def test_a_second_member_with_a_known_pattern_is_assigned_at_once(driver: ConsumerDriver) -> None:
    first = driver.joined(topics=None, regex="t")
    driver.run_jobs()
    first.beat()
    driver.advance(2)
    driver.joined(topics=None, regex="t")
    assert driver.consumers.assignment_epoch == driver.consumers.epoch
    assert driver.jobs == []


def test_c8_a_pattern_is_dropped_with_its_last_member(driver: ConsumerDriver) -> None:
    first = driver.joined(topics=None, regex="t")
    driver.joined(topics=("u",))
    driver.run_jobs()
    assert driver.consumers.regexes.keys() == {"t"}
    first.leave()
    assert driver.consumers.regexes == {}
    assert state_of(driver.replayed()) == state_of(driver.machine)


def test_c9_a_new_topic_is_found_ten_seconds_after_the_last_look(driver: ConsumerDriver) -> None:
    first = driver.joined(topics=None, regex="t.*")
    driver.run_jobs()
    first.beat()
    driver.set_topics(topic("t2", 1))
    driver.advance(10)
    first.idle()
    assert driver.jobs == []
    driver.advance(1)
    first.idle()
    driver.run_jobs()
    first.idle()
    assert ("t2", 0) in first.owns


def test_the_topics_are_those_that_the_member_may_describe(driver: ConsumerDriver) -> None:
    first = driver.client(topics=None, regex=".*")
    first.epoch = 0
    first.believe(
        driver.consumer_heartbeat(
            member_id="m1",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex=".*",
            topic_partitions=[],
            may_describe=lambda name: name == "u",
        )
    )
    driver.run_jobs()
    first.beat()
    assert owned(first) == [("u", 0), ("u", 1)]


def test_rights_that_change_have_an_effect_in_time(driver: ConsumerDriver) -> None:
    first = driver.joined(topics=None, regex=".*")
    driver.run_jobs()
    first.beat()
    for _ in range(20):
        driver.advance(30)
        first.idle()
    assert driver.jobs == []
    driver.advance(1)
    first.idle()
    assert [job.name for job in driver.jobs] == ["regexes"]


def test_a_restart_looks_again_at_once(driver: ConsumerDriver) -> None:
    first = driver.joined(topics=None, regex="t.*")
    driver.run_jobs()
    first.beat()
    driver.advance(11)
    driver.restart()
    driver.jobs.clear()
    first.idle()
    assert [job.name for job in driver.jobs] == ["regexes"]


def test_a_pattern_of_another_broker_that_is_none_here_matches_nothing(driver: ConsumerDriver) -> None:
    first = driver.joined(topics=None, regex=r"(a)\1")  # no topics were looked up
    driver.run_jobs()
    assert driver.consumers.regexes["(a)\\1"].topics == frozenset()
    first.beat()
    assert driver.jobs == []


def test_topics_of_many_patterns_may_be_logged_in_several_batches(driver: ConsumerDriver) -> None:
    for number in range(20):
        driver.joined(topics=None, regex=f"t|nothing{number}")
    group = driver.consumers
    found = {regex: frozenset({"t"}) for regex in group.regex_members}
    effects = driver.machine.on_job("g", Resolved(found, driver.view.names_of_topics))
    assert effects.may_be_divided, "in one batch they would be too large, and the group would wait for ever"
    assert isinstance(effects.records[0], GroupEpochRecord), "what is logged in part is assigned"
    assert len(effects.records) == 21
