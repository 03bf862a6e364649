"""What the replicas that may be elected have said of their logs: up to where they go, or that they are offline. Pure.

A replica that came back may have lost the end of its log, and only its broker knows how much is left. So before a
leader is elected of several replicas that were away, the controller asks them (`candidate_questions.py`). What a broker
says holds for its registration, and for a partition until somebody leads it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from oncelog_broker.metadata.reader import PartitionKey


class LogEnd(NamedTuple):
    """Up to where a log goes. Of two logs of a partition, the one with the larger LogEnd holds all records that the
    other one holds and that were ever committed, and equal ones hold the same (KIP-101, KIP-279)."""

    leader_epoch: int
    """Of its last batch; -1: it has none."""
    offset: int
    """Log end offset."""


UNKNOWN: Final = LogEnd(-2, -1)
"""The broker does not know the question, or did not answer in time: it is taken as one that has least."""
OFFLINE: Final = LogEnd(-3, -1)
"""The log cannot be opened, or has failed: the replica cannot lead."""


class Question(NamedTuple):
    """Up to where does the log of a replica go? Asked while the partition's state has that version."""

    broker: int
    broker_epoch: int
    key: PartitionKey
    version: int


class Answers(NamedTuple):
    """What one registration of a broker has said, by question."""

    broker: int
    broker_epoch: int
    ends: Mapping[Question, LogEnd]


class CandidateLogs:
    """Changed in place, with the `ClusterView` that it is a part of."""

    def __init__(self, *, is_asked_for: bool = False) -> None:
        """`is_asked_for`: whether somebody asks the brokers. If not, nothing is waited for."""
        self.is_asked_for = is_asked_for
        self._told: dict[int, dict[PartitionKey, LogEnd]] = {}
        self._waited_enough: set[PartitionKey] = set()

    def end_of(self, key: PartitionKey, broker: int) -> LogEnd | None:
        """What a broker has said of its replica. None: it is still to be asked."""
        told = self._told.get(broker, {}).get(key)
        return told if told is not None or self.is_asked_for else UNKNOWN

    def note(self, key: PartitionKey, broker: int, end: LogEnd) -> None:
        """A broker has said this in its present registration."""
        self._told.setdefault(broker, {})[key] = end

    def waits_for_absent(self, key: PartitionKey) -> bool:
        """Whether an election of this partition still waits for replicas that may have lost records and are away."""
        return self.is_asked_for and key not in self._waited_enough

    def wait_no_longer(self, key: PartitionKey) -> None:
        """The time is over for which an election waits for those that are away."""
        self._waited_enough.add(key)

    def forget_brokers(self, brokers: Collection[int]) -> None:
        """These came, went, or came again: what they said was said by others."""
        for broker in brokers:
            self._told.pop(broker, None)

    def forget(self, key: PartitionKey) -> None:
        """Somebody leads the partition: from now on its logs change."""
        self._waited_enough.discard(key)
        for told in self._told.values():
            told.pop(key, None)

    def forget_answer(self, key: PartitionKey, broker: int) -> None:
        """It is to be asked again."""
        self._told.get(broker, {}).pop(key, None)
