"""How many times an idle stream requests the ends of its partitions, counted in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pytest

from oncelog import TopicPartition
from oncelog.errors import ConnectionFailed
from oncelog_pipeline.source.ends import FRESH_SECONDS, FULL_SECONDS, LONGEST_SECONDS, Ends
from oncelog_pipeline.source.offsets import Offsets
from oncelog_pipeline.source.progress import Log

POLL_SECONDS = 0.01
"""Seconds that Spark pauses between two requests."""


class Cluster:
    """A model of a cluster; each request for the end of a partition costs some CPU time."""

    def __init__(self, partitions: int, cpu_per_partition: float) -> None:
        self.now = 100.0
        self.cpu = 0.0
        self.ends = {TopicPartition("a", index): 10 for index in range(partitions)}
        self.asked: Counter[str] = Counter()
        self._cost = cpu_per_partition * partitions
        self.is_away = False
        self.is_watched = False

    def look(self) -> Log:
        self.asked["everything"] += 1
        self._pay(2 * self._cost)
        return Log(dict.fromkeys(self.ends, 0), dict(self.ends))

    def look_at_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        self.asked["ends"] += 1
        self._pay(self._cost)
        if self.is_away:
            raise ConnectionFailed("away")
        return {partition: self.ends[partition] for partition in partitions}

    def _pay(self, seconds: float) -> None:
        self.cpu += seconds
        self.now += seconds

    def made(self) -> Ends:
        return Ends(self.look, self.look_at_ends, lambda: self.now, lambda: self.cpu, lambda: self.is_watched)

    def poll(self, ends: Ends, seconds: float) -> None:
        """Poll for this many seconds, as Spark does on an idle stream."""
        until = self.now + seconds
        while self.now < until:
            ends.log()
            self.now += POLL_SECONDS


def test_a_thousand_idle_partitions_take_at_most_two_percent_of_a_core() -> None:
    cluster = Cluster(1000, 20e-6)
    ends = cluster.made()
    cluster.poll(ends, 10)  # the pauses become longer
    cluster.cpu, cluster.asked = 0.0, Counter()
    cluster.poll(ends, 100)
    assert cluster.cpu <= 2.0
    assert cluster.asked["everything"] <= 100 / FULL_SECONDS + 1
    assert 10 <= sum(cluster.asked.values()) <= 60
    assert ends.are_dear


def test_a_few_partitions_are_looked_at_as_often_as_ever() -> None:
    cluster = Cluster(3, 20e-6)
    ends = cluster.made()
    cluster.poll(ends, 20)
    assert sum(cluster.asked.values()) >= 20 / (FRESH_SECONDS + 2 * POLL_SECONDS)
    assert cluster.asked["everything"] <= 20 / FULL_SECONDS + 1
    assert not ends.are_dear


def test_new_records_are_seen_within_the_pause_and_end_it() -> None:
    cluster = Cluster(1000, 20e-6)
    ends = cluster.made()
    cluster.poll(ends, 20)
    cluster.ends[TopicPartition("a", 7)] = 11
    since, before = cluster.now, ends.log()
    while ends.log() is before:
        cluster.now += POLL_SECONDS
    assert cluster.now - since <= LONGEST_SECONDS
    assert ends.log().latest[TopicPartition("a", 7)] == 11
    asked = sum(cluster.asked.values())
    cluster.poll(ends, FRESH_SECONDS + 2 * POLL_SECONDS)
    assert sum(cluster.asked.values()) == asked + 1


def test_new_partitions_are_seen_within_the_time_of_a_full_look() -> None:
    cluster = Cluster(3, 20e-6)
    ends = cluster.made()
    cluster.poll(ends, 1)
    cluster.ends[TopicPartition("a", 3)] = 0
    cluster.poll(ends, FULL_SECONDS + FRESH_SECONDS)
    assert TopicPartition("a", 3) in ends.log().latest


def test_all_partitions_are_fetched_if_the_ends_are_unknown() -> None:
    """A full request shows the reason: a deleted topic, or an unreachable cluster."""
    cluster = Cluster(3, 20e-6)
    ends = cluster.made()
    ends.log()
    cluster.is_away = True
    cluster.now += FRESH_SECONDS + POLL_SECONDS
    ends.log()
    assert cluster.asked == {"everything": 2, "ends": 1}


@pytest.mark.parametrize("cost", [1e-6, 1e-3])
def test_a_pause_between_looks_is_bounded(cost: float) -> None:
    cluster = Cluster(1000, cost)
    ends = cluster.made()
    cluster.poll(ends, 60)
    cluster.ends[TopicPartition("a", 7)] = 11
    cluster.poll(ends, LONGEST_SECONDS + POLL_SECONDS)
    assert ends.log().latest[TopicPartition("a", 7)] == 11


def test_ends_that_are_watched_are_looked_at_only_in_case_the_watch_has_failed_without_a_word() -> None:
    cluster = Cluster(3, 20e-6)
    cluster.is_watched = True
    ends = cluster.made()
    cluster.poll(ends, 10)
    cluster.asked = Counter()
    cluster.poll(ends, 100)
    assert 100 / LONGEST_SECONDS - 2 <= sum(cluster.asked.values()) <= 100 / LONGEST_SECONDS + 2
    cluster.is_watched = False
    cluster.poll(ends, 10)
    cluster.asked = Counter()
    cluster.poll(ends, 20)
    assert sum(cluster.asked.values()) >= 20 / (FRESH_SECONDS + 2 * POLL_SECONDS)


def test_a_hint_of_new_records_causes_a_full_look_at_once() -> None:
    cluster = Cluster(3, 20e-6)
    ends = cluster.made()
    ends.log()
    cluster.asked = Counter()
    cluster.ends[TopicPartition("a", 1)] = 11
    ends.hurry()
    assert ends.log().latest[TopicPartition("a", 1)] == 11
    ends.log()
    assert cluster.asked == {"everything": 1}


def test_a_look_that_fails_is_still_due() -> None:
    cluster = Cluster(3, 20e-6)
    fails = True

    def look() -> Log:
        if fails:
            raise ConnectionFailed("away")
        return cluster.look()

    ends = Ends(look, cluster.look_at_ends, lambda: cluster.now, lambda: cluster.cpu)
    fails = False
    ends.log()
    fails = True
    ends.hurry()
    with pytest.raises(ConnectionFailed):
        ends.log()
    fails = False
    cluster.asked = Counter()
    ends.log()
    assert cluster.asked == {"everything": 1}
