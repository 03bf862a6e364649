"""Several brokers and their ZooKeeper, with three replicas of each partition."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from oncelog_broker.local_cluster.broker_process import members_seen_by, out_of_sync_for, settings_of
from oncelog_broker.local_cluster.state import Member
from oncelog_broker.runtime.private_files import opened_privately
from oncelog_testing.broker import QUICK_SETTINGS, Broker, BrokerStartError
from oncelog_testing.control import WAIT_SECONDS, BrokerGone, Fault, NotStruck
from oncelog_testing.topics import create_topic, run

__tracebackhide__ = True  # hides this module in the traceback of a failed test

BROKERS: Final = 3
WHOLE_SECONDS: Final = 120.0
"""Seconds until all brokers must see each other and all replicas must be in sync."""
POLL_SECONDS: Final = 0.1
PORT_LATER: Final = 0
SESSION_TIMEOUT: Final = "zookeeper.session.timeout.ms"
SESSION_MS: Final = "6000"
"""Session timeout in milliseconds, after which another broker takes over from a killed broker. The value is a third of
the default, but long enough for a busy machine.
"""


class NoZooKeeper(Exception):
    """Raised if Java or ZooKeeper's jars are missing; the message says what to do."""


class Cluster:
    """A cluster of three brokers, numbered from 1. `start`, or a `with` statement, returns when all brokers see each
    other.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, *, brokers: int = BROKERS) -> None:
        """`settings`, by Kafka's keys, override the settings for tests."""
        self.directory = directory
        self._settings = {**QUICK_SETTINGS, SESSION_TIMEOUT: SESSION_MS, **(settings or {})}
        self._size = brokers
        self._zookeeper: subprocess.Popen[str] | None = None
        self.brokers: dict[int, Broker] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The comma-separated addresses of all brokers, for any client."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def __str__(self) -> str:
        return self.bootstrap_servers

    def __getitem__(self, number: int) -> Broker:
        """Return one broker; changes that a test makes with its methods are also undone at the end of the test."""
        return self.brokers[number]

    def __iter__(self) -> Iterator[Broker]:
        return iter(self.brokers.values())

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic. Raises TopicAlreadyExists, InvalidTopic and other KafkaErrors."""
        create_topic(self.bootstrap_servers, name, partitions, configs)

    # --- faults

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the number of the broker that leads the partition; -1 means that none does now. Raises KafkaError."""

        async def ask() -> int:
            from oncelog.admin import Admin

            async with Admin(self.bootstrap_servers) as admin:
                return (await admin.describe_topics([topic]))[topic].partitions[partition].leader

        return run(ask)

    def fail(self, point: str, **what: Any) -> ClusterFault:
        """Set a fault at the fail point `point` (a named step) in every broker, for a test that does not know which
        broker will reach the step.

        `times` counts separately in each broker, so that a fault may crash one broker after another;
        `cluster[cluster.leader_of(topic)].fail(...)` sets the fault on one broker. Raises ValueError or BrokerGone.
        """
        return ClusterFault([broker.fail(point, **what) for broker in self if broker.is_running])

    def mend(self) -> None:
        """Repair all brokers: they run without faults; if any was used, all replicas are in sync again."""
        were_well = all(broker.is_well for broker in self)
        for broker in self:
            broker.mend()
        if not were_well:
            self.until_whole()

    def logged(self) -> list[tuple[str, str]]:
        """Return the log lines of all brokers, for the report of a test."""
        return [section for broker in self for section in broker.logged()]

    def until_whole(self) -> None:
        """Wait until all brokers see each other, and all replicas are in sync. Raises TimeoutError."""
        deadline = time.monotonic() + WHOLE_SECONDS
        for number, broker in self.brokers.items():
            member = Member(number, broker.port)
            while not (self._sees_all(member) and self._is_in_sync(member)):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{broker.name} does not see a whole cluster after {WHOLE_SECONDS:g} s")
                time.sleep(POLL_SECONDS)

    def _sees_all(self, member: Member) -> bool:
        return run(lambda: members_seen_by(member)) >= self.brokers.keys()

    def _is_in_sync(self, member: Member) -> bool:
        return run(lambda: out_of_sync_for(member)) == []

    # --- the cluster's processes

    def start(self) -> Self:
        """Start ZooKeeper and the brokers; returns when all replicas are in sync. Raises NoZooKeeper, BrokerStartError
        or TimeoutError.
        """
        with ExitStack() as undo:
            undo.callback(self.stop)
            connect_string = self._start_zookeeper()
            for number in range(1, self._size + 1):
                settings = settings_of(self.directory, Member(number, PORT_LATER), self._size, connect_string, {})
                broker = Broker(self.directory, {**settings, **self._settings}, name=f"broker-{number}")
                self.brokers[number] = broker
                broker.launch()
            for broker in self:
                broker.wait_ready()
            self.until_whole()
            undo.pop_all()
        return self

    def stop(self) -> None:
        """Stop all brokers simultaneously, without moving leaderships, because no broker would remain to take over."""
        for broker in self:
            broker.kill()
        zookeeper, self._zookeeper = self._zookeeper, None
        if zookeeper is not None:
            zookeeper.communicate()  # closes ZooKeeper's standard input, which ends the process

    def _start_zookeeper(self) -> str:
        """Start ZooKeeper; returns its connect string. Raises NoZooKeeper or BrokerStartError."""
        log = self.directory / "zookeeper.log"
        command = [sys.executable, "-P", "-m", "oncelog_testing.zookeeper_keeper", str(self.directory)]
        with opened_privately(log, "ab") as output:
            self._zookeeper = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        assert self._zookeeper.stdout is not None
        what, _, details = self._zookeeper.stdout.readline().strip().partition(" ")
        if what == "missing":
            raise NoZooKeeper(details)
        if what != "ready":
            raise BrokerStartError(f"ZooKeeper does not start: {log.read_text(errors='replace')[-3000:]}")
        return details

    def __enter__(self) -> Self:
        return self if self.brokers else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class ClusterFault:
    """The same fault, set in each broker of a cluster. As a context manager, it is removed at the end of the block."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults

    @property
    def struck(self) -> int:
        """How often the fault has been applied so far, in all brokers that have not ended for another reason."""
        found = 0
        for fault in self.faults:
            with suppress(BrokerGone):
                found += fault.struck
        return found

    def wait(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the fault has been applied in one of the brokers. Raises NotStruck."""
        deadline = time.monotonic() + seconds
        while not self.struck:
            if time.monotonic() > deadline:
                raise NotStruck(f"{self.faults[0]} has struck in no broker within {seconds:g} s")
            time.sleep(POLL_SECONDS)

    def remove(self) -> None:
        for fault in self.faults:
            fault.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
