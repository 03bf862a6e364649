"""Defines the tests' interface to Kafka clients, which is implemented for librdkafka, aiokafka and kafka-python, among
others.

Only this interface is used by the contract in `client_contract.py` and by the cross-client matrix, so each of the two
is written once for all clients. Adapters have no logic of their own: they translate arguments, results and errors.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_SECONDS = 45.0
"""Limit in seconds for one call of a client: far more than any call takes, so that a test fails if a broker does not
respond.
"""
LOOK_SECONDS = 0.005
FETCH_WAIT_MS = 50
"""A Fetch at the end of the log waits for this many milliseconds, as must the closing of a client that reads ahead.
"""
BROKERS = int(os.environ.pop("ONCELOG_TEST_BROKERS", "1"))
"""The number of brokers: one, or three that keep three replicas of each partition. The variable is removed from the
environment, because brokers would interpret it as a setting.
"""
COMPRESSIONS = (None, "gzip", "snappy", "lz4", "zstd")
CREATE_TIME, LOG_APPEND_TIME = 0, 1

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A record for a producer. `timestamp_ms` None means that the client uses the time of its clock."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """The partition and offset of an acknowledged record; the offset is -1 with acks=0."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a consumer received it."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return self.key, self.value, self.headers


def content_of(records: Sequence[Record]) -> list[tuple[bytes | None, bytes | None, Headers]]:
    return [(record.key, record.value, record.headers) for record in records]


class Refused(Exception):
    """The broker's error, with Kafka's error code, as the client reported it."""

    def __init__(self, code: int, reason: object) -> None:
        super().__init__(f"error {code}: {reason}")
        self.code = code


class ForeignClient(ABC):
    """The interface to one client library; each call opens its own connections. `close` closes long-lived clients
    (admin clients).
    """

    name: str
    compressions: Sequence[str | None] = COMPRESSIONS
    sends_null_headers = True
    refuses_empty_record = False
    """Whether the client itself rejects a record that has neither key nor value."""

    @abstractmethod
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int | None = 0,
        compression: str | None = None,
        acks: int = -1,
        idempotent: bool = False,
    ) -> list[Placed]:
        """Send records together (in one batch per partition if they fit), and wait until all are acknowledged.

        If the partition is None, the client's own partitioner chooses one. Raises Refused.
        """

    @abstractmethod
    def consume(
        self, topic: str, count: int, *, partition: int = 0, offset: int = 0, isolation: str = "read_uncommitted"
    ) -> list[Received]:
        """Return exactly `count` records from `offset` on. Raises Refused, or AssertionError if fewer records arrive in
        time.
        """

    @abstractmethod
    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Return the first offset and the end offset of the partition."""

    @abstractmethod
    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        """Return the first offset whose timestamp is at least `timestamp_ms`; None if there is no such record."""

    @abstractmethod
    def partition_for(self, key: bytes, partitions: int) -> int:
        """Return the partition that the client's own default partitioner chooses for a key."""

    @abstractmethod
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = BROKERS,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abstractmethod
    def topics(self) -> set[str]: ...

    @abstractmethod
    def partition_count(self, topic: str) -> int:
        """Return the number of partitions. Raises Refused if the topic does not exist; this call must not create the
        topic.
        """

    @abstractmethod
    def create_partitions(self, topic: str, total: int) -> None: ...

    @abstractmethod
    def configs(self, topic: str) -> dict[str, str | None]: ...

    @abstractmethod
    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set these settings of a topic with IncrementalAlterConfigs or with the old AlterConfigs, which resets omitted
        settings to their defaults.
        """

    @abstractmethod
    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        """Delete the records before this offset, and return the new first offset."""

    @abstractmethod
    def brokers(self) -> list[tuple[int, str, int]]:
        """Return node id, host and port of each broker."""

    @abstractmethod
    def close(self) -> None: ...


def eventually(condition: Callable[[], T], what: str, timeout: float = TIMEOUT_SECONDS) -> T:
    """Wait for a true value of `condition` and return it; each call of `condition` contacts the broker, so the loop
    needs no pause.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"not in {timeout:.0f} s: {what}")
