"""A broker with two data directories, which tests remove, exchange and restore, and the records that its topic must
have.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from broker_process import BrokerProcess
from oncelog_client import Oncelog

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition

T = TypeVar("T")

TOPIC: Final = "ledger"
PARTITIONS: Final = 4
"""The number of partitions, enough that each data directory has some of them."""
OLD_MS: Final = 1_600_000_000_000
"""The timestamp of all records in ms; it is so old that default retention settings would delete each record
immediately.
"""
SETTINGS: Final = {"log.retention.check.interval.ms": "200"}


class TwoDisks:
    """One broker with two data directories. The broker's log file is beside its data directories."""

    def __init__(self, process: BrokerProcess, directory: Path) -> None:
        self.process = process
        self.directory = directory
        self.a, self.b = directory / "a", directory / "b"
        self.use(self.a, self.b)

    def use(self, *directories: Path) -> BrokerProcess:
        """Set `log.dirs` for the next start."""
        self.process.data = Path(",".join(map(str, directories)))
        return self.process

    def start(self, *directories: Path) -> None:
        self.use(*(directories or (self.a, self.b))).start()

    def refused(self, *directories: Path) -> str:
        """Start the broker, which must refuse and change nothing in its directories, and return its message."""
        directories = directories or (self.a, self.b)
        before = content(directories)
        self.use(*directories)
        with pytest.raises(AssertionError, match="the broker ended"):
            self.process.start()
        self.process.kill()  # the process has ended, but its pipe can still be read
        assert content(directories) == before
        return self.process.log.read_text().rpartition("cannot start: ")[2]

    def said(self) -> str:
        return self.process.log.read_text()

    def save(self, name: str) -> Path:
        """Copy both directories as they are, and return the path of the copy."""
        target = self.directory / name
        for each in (self.a, self.b):
            shutil.copytree(each, target / each.name)
        return target

    @contextmanager
    def replaced(self, directory: Path, by: Path | None) -> Iterator[None]:
        """Replace `directory` until the end of the block: by a copy of `by`, or by an empty directory if `by` is
        None.
        """
        aside = directory.with_name(f"{directory.name}.aside")
        directory.rename(aside)
        try:
            directory.mkdir() if by is None else shutil.copytree(by, directory)
            yield
        finally:
            shutil.rmtree(directory)
            aside.rename(directory)


def content(directories: Iterable[Path]) -> dict[Path, bytes]:
    """Return the contents of all files except the lock, which names its holder, and the store's -shm, which contains no
    data.
    """
    files = [path for each in directories for path in each.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files if path.name != ".lock" and not path.name.endswith("-shm")}


def swap(first: Path, second: Path) -> None:
    between = first.with_name("between")
    first.rename(between)
    second.rename(first)
    between.rename(second)


def accepted_by(refusal: str) -> str:
    """Return the value of `start.accept` that the message names; if the message names several values, return all of
    them.
    """
    return re.findall(r"start\.accept=([a-z0-9:,-]+)", refusal)[-1]


class Ledger:
    """The acknowledged records, by partition."""

    def __init__(self, addresses: Callable[[], str]) -> None:
        self._addresses = addresses
        self.acknowledged: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        self._count = 0
        self.is_idempotent = True

    def create(self, replicas: tuple[int, ...] = (1,)) -> None:
        async def create() -> None:
            async with Admin(self._addresses()) as admin:
                wanted = dict.fromkeys(range(PARTITIONS), replicas)
                await admin.create_topics([NewTopic(TOPIC, configs={"retention.ms": "-1"}, replica_assignments=wanted)])

        self._run(create())

    def write(self) -> None:
        """Write one more record into each partition."""

        async def write() -> None:
            async with Producer(self._addresses(), acks="all", enable_idempotence=self.is_idempotent) as producer:
                for partition, values in self.acknowledged.items():
                    self._count += 1
                    value = b"record %d" % self._count
                    await producer.send_and_wait(TOPIC, value, partition=partition, timestamp_ms=OLD_MS)
                    values.append(value)

        self._run(write())

    def check(self) -> None:
        """Check that every acknowledged record is in the log at its offset, and no other record."""

        async def read() -> dict[int, list[bytes]]:
            found: dict[int, list[bytes]] = {partition: [] for partition in self.acknowledged}
            places = [TopicPartition(TOPIC, partition) for partition in found]
            async with Consumer(
                self._addresses(), auto_offset_reset="none", allow_auto_create_topics=False
            ) as consumer:
                ends = await consumer.end_offsets(places)
                assert {place.partition: end for place, end in ends.items()} == {
                    partition: len(values) for partition, values in self.acknowledged.items()
                }
                consumer.assign(places)
                for place in places:
                    consumer.seek(place, 0)
                while any(len(found[place.partition]) < end for place, end in ends.items()):
                    for place, records in (await consumer.poll(1000)).items():
                        for record in records:
                            assert record.offset == len(found[place.partition])
                            found[place.partition].append(bytes(record.value or b""))
            return found

        assert self._run(read()) == self.acknowledged

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        client = Oncelog(self._addresses())
        try:
            return client.run(work)
        finally:
            client.close()
