"""Fetches that wait hang on their partitions and let go of them."""

from __future__ import annotations

from typing import Any

from oncelog_broker.replication.delayed import DelayedFetch


class FakePartition:
    def __init__(self) -> None:
        self.waiting_fetches: set[DelayedFetch] = set()


def waiting(missing_bytes: int) -> tuple[DelayedFetch, list[Any], list[str]]:
    partitions: list[Any] = [FakePartition(), FakePartition()]
    completed: list[str] = []
    return DelayedFetch(partitions, missing_bytes, lambda: completed.append("done")), partitions, completed


def test_it_completes_once_when_enough_bytes_can_be_read() -> None:
    fetch, partitions, completed = waiting(100)
    fetch.on_readable(60)
    assert completed == []
    assert all(fetch in partition.waiting_fetches for partition in partitions)
    fetch.on_readable(40)
    fetch.on_readable(40)
    assert completed == ["done"]


def test_it_lets_go_of_its_partitions_when_it_ends() -> None:
    fetch, partitions, completed = waiting(100)
    fetch.finish()
    assert completed == ["done"]
    assert not any(partition.waiting_fetches for partition in partitions)


def test_a_late_deadline_does_nothing() -> None:
    fetch, _, completed = waiting(1)
    fetch.on_readable(1)
    fetch.finish()
    assert completed == ["done"]
