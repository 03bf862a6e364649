"""The interface of the tests to foreign Kafka clients: one for librdkafka, aiokafka, kafka-python.

The contract in `client_contract.py` and the cross-client matrix use only this interface, so that each of them is
written once. Adapters hold no logic of their own: they translate arguments, results and errors.
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
"""The limit of one call of a client: far more than any call takes, so that a broker which does not answer fails a
test."""
LOOK_SECONDS = 0.005
FETCH_WAIT_MS = 50
"""How long a fetch at the end of the log waits: clients that read ahead sit it out when they are closed."""
BROKERS = int(os.environ.pop("ONCELOG_TEST_BROKERS", "1"))
"""The number of brokers: one, or three that keep three replicas of each partition. Popped: brokers would take it for a
setting."""
COMPRESSIONS = (None, "gzip", "snappy", "lz4", "zstd")
CREATE_TIME, LOG_APPEND_TIME = 0, 1

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A record for a producer. `timestamp_ms` None: the client's clock."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an acknowledged record lies; offset -1 with acks=0."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Received:
    """A record that a consumer got."""

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
    """The broker's error, by Kafka's number, as the client reported it."""

    def __init__(self, code: int, reason: object) -> None:
        super().__init__(f"error {code}: {reason}")
        self.code = code


class ForeignClient(ABC):
    """One client library; connections last only for a call. `close` ends long-lived clients (admin clients)."""

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
        """Send records together (one batch per partition where they fit) and wait until all are acknowledged.

        partition None leaves the choice to the client's own partitioner. Raises Refused.
        """

    @abstractmethod
    def consume(
        self, topic: str, count: int, *, partition: int = 0, offset: int = 0, isolation: str = "read_uncommitted"
    ) -> list[Received]:
        """Exactly `count` records from `offset` on. Raises Refused, or AssertionError if fewer came in time."""

    @abstractmethod
    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Begin and end offset."""

    @abstractmethod
    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        """The first offset whose timestamp is at least `timestamp_ms`; None beyond the last."""

    @abstractmethod
    def partition_for(self, key: bytes, partitions: int) -> int:
        """Where the client's own default partitioner puts a key."""

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
        """Raises Refused if the topic does not exist; must not create it."""

    @abstractmethod
    def create_partitions(self, topic: str, total: int) -> None: ...

    @abstractmethod
    def configs(self, topic: str) -> dict[str, str | None]: ...

    @abstractmethod
    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """The old AlterConfigs: omitted settings return to their defaults."""

    @abstractmethod
    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        """The new begin offset."""

    @abstractmethod
    def brokers(self) -> list[tuple[int, str, int]]:
        """Node id, host, port of each broker."""

    @abstractmethod
    def close(self) -> None: ...


def eventually(condition: Callable[[], T], what: str, timeout: float = TIMEOUT_SECONDS) -> T:
    """The first true value of `condition`, which talks to the broker and so takes its time."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"not in {timeout:.0f} s: {what}")
