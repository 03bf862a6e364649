"""Remembers the log ends that brokers have reported for replicas that may be elected. Pure.

A replica that returned may have lost the end of its log, and only the replica's broker knows where the log ends now.
Before the controller elects a returned replica, it therefore asks the brokers of all returned replicas for their log
ends (`candidate_questions.py`). A reported log end is valid while the broker keeps its registration and the partition
has no leader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_protocol.light_classes import NamedTuple


class LogEnd(NamedTuple):
    """The end of a log, for comparing the logs of replicas. If two logs of a partition have different ends, the log
    with the larger LogEnd has all committed records of the other log. Two logs with equal ends have the same records
    (KIP-101, KIP-279).
    """

    leader_epoch: int
    """Leader epoch of the last batch; -1 if the log is empty."""
    offset: int
    """The log end offset of the replica."""


UNKNOWN: Final = LogEnd(-2, -1)
"""The log end of a replica whose broker does not support log end requests or did not answer in time. The log of such a
replica counts as the least complete log.
"""
OFFLINE: Final = LogEnd(-3, -1)
"""The log end of a replica whose log cannot be opened or has failed: the replica cannot lead."""


class Question(NamedTuple):
    """A controller's request for the end of a replica's log. `version`: the version of the partition's state when the
    request was sent.
    """

    broker: int
    broker_epoch: int
    key: PartitionKey
    version: int


class Answers(NamedTuple):
    """The log ends that a broker reported during one registration."""

    broker: int
    broker_epoch: int
    ends: Mapping[Question, LogEnd]


class CandidateLogs:
    """The log ends that all brokers have reported; a part of the `ClusterView`. The controller changes this object in
    place.
    """

    def __init__(self, *, is_asked_for: bool = False) -> None:
        """`is_asked_for`: whether the controller asks brokers for log ends. If `is_asked_for` is False, no election
        waits for log ends.
        """
        self.is_asked_for = is_asked_for
        self._told: dict[int, dict[PartitionKey, LogEnd]] = {}
        self._waited_enough: set[PartitionKey] = set()

    def end_of(self, key: PartitionKey, broker: int) -> LogEnd | None:
        """Return the log end that a broker has reported; None if the broker has not been asked or has not answered."""
        told = self._told.get(broker, {}).get(key)
        return told if told is not None or self.is_asked_for else UNKNOWN

    def note(self, key: PartitionKey, broker: int, end: LogEnd) -> None:
        """Note the log end that a broker has reported in its present registration."""
        self._told.setdefault(broker, {})[key] = end

    def waits_for_absent(self, key: PartitionKey) -> bool:
        """Whether an election of this partition still waits for absent replicas that may have lost records."""
        return self.is_asked_for and key not in self._waited_enough

    def wait_no_longer(self, key: PartitionKey) -> None:
        """Note that elections of this partition no longer wait for absent replicas."""
        self._waited_enough.add(key)

    def forget_brokers(self, brokers: Collection[int]) -> None:
        """Forget the log ends that these brokers have reported, because their registrations have changed."""
        for broker in brokers:
            self._told.pop(broker, None)

    def forget(self, key: PartitionKey) -> None:
        """Forget the reported log ends of a partition that has a leader, because its logs change from now on."""
        self._waited_enough.discard(key)
        for told in self._told.values():
            told.pop(key, None)

    def forget_answer(self, key: PartitionKey, broker: int) -> None:
        """Forget one reported log end, so that the broker is asked again."""
        self._told.get(broker, {}).pop(key, None)
