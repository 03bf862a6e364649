"""Tests @platformatic/kafka, a JavaScript client with its own protocol implementation, which uses the highest version
that a broker has.

The client sends AddPartitionsToTxn v5 for its own transaction, to three brokers that have a separate listener for one
another (S97). Its groups use the consumer protocol (KIP-848), while a member and brokers are killed. The package on npm
does not contain the library's own tests.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from conftest import or_skip
from foreign_clients import eventually
from maven import BUILD, HERE, fetch, need
from raw_client import RawClient
from replicated_cluster import BROKERS, ReplicatedCluster

from oncelog.admin import Admin
from oncelog.errors import ErrorCode, KafkaError
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest

SOURCE = HERE / "platformatic"
RUN_SECONDS = 120
# No broker is killed here, and a busy machine must not cause elections.
SETTINGS = {"zookeeper.session.timeout.ms": "18000"}
MORTAL = {
    # Longer than a fail-over takes on a busy machine, so that only the member that is killed loses its session.
    "group.consumer.session.timeout.ms": "20000",
}
PARTITIONS = 6
GROUP, TOPIC = "readers", "events"
RECORDS = 150
"""The number of records that are written in each of the test's four steps."""
WAIT_SECONDS = 120.0


class Member:
    """A process of `member.mjs`."""

    def __init__(self, library: Path, addresses: str, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["node", "member.mjs", addresses, TOPIC, GROUP],
                cwd=library,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def read(self) -> list[str]:
        """The values of the records that this member has read, in order."""
        lines = [line.split() for line in self._log.read_text().splitlines()]
        assert all(len(line) == 3 and line[0].isdigit() for line in lines), self._log.read_text()[-3000:]
        return [value for _, _, value in lines]

    def end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(WAIT_SECONDS)


@pytest.fixture(scope="module")
def library() -> Path:
    """Return the directory in which the library is installed, with the test programs."""
    or_skip(lambda: need("node", "npm"))
    directory = BUILD / "platformatic"
    directory.mkdir(parents=True, exist_ok=True)
    for path in SOURCE.iterdir():
        shutil.copy(path, directory)
    if not (directory / "node_modules" / "@platformatic").exists():
        command = ["npm", "install", "--prefix", str(directory), "--no-audit", "--no-fund", "--ignore-scripts"]
        or_skip(lambda: fetch([*command, "--no-save"], "@platformatic/kafka"))
    return directory


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReplicatedCluster]:
    with ReplicatedCluster(tmp_path, request.getfixturevalue("chroots")(), SETTINGS) as started:
        yield started
    started.check_logs()


def test_s97_e58_platformatic_transactions_work_with_an_inter_broker_listener(
    library: Path, cluster: ReplicatedCluster
) -> None:
    address = cluster.brokers[2].address  # the client's bootstrap broker, which need not be the controller
    done = subprocess.run(
        ["node", "transactions.mjs", address, "orders"],
        cwd=library,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == ["committed-1", "committed-2", "committed-3"]
    eventually(lambda: committed(cluster) == 6, "the offset of its last transaction is committed")


def committed(cluster: ReplicatedCluster) -> int:
    """Return the group's committed offset. After the third committed record the committed offset is 6: two records, a
    marker, an aborted
    record, its marker, and the third record.
    """
    group = "orders-readers"
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    )
    for broker in cluster.brokers.values():
        with RawClient(broker.port) as client:
            answer = client.call(request, ApiKey.OFFSET_FETCH, 5)
        if answer.error_code == 0:
            return int(answer.topics[0].partitions[0].committed_offset)
    return -1


@pytest.mark.timeout(600)
def test_a_group_of_the_consumer_protocol_reads_everything_though_a_member_and_brokers_are_killed(
    library: Path, chroots: object, tmp_path: Path
) -> None:
    with ReplicatedCluster(tmp_path, chroots(), MORTAL) as cluster:  # type: ignore[operator]
        cluster.create_topic(TOPIC, *(BROKERS[index % 3 :] + BROKERS[: index % 3] for index in range(PARTITIONS)))
        producer = Producer({"bootstrap.servers": cluster.addresses, "enable.idempotence": True})
        written = 0

        def write() -> None:
            nonlocal written
            for number in range(written, written + RECORDS):
                producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
            written += RECORDS
            assert producer.flush(WAIT_SECONDS) == 0

        def until_read(members: list[Member]) -> None:
            def is_read() -> bool:
                return {int(value) for member in members for value in member.read} == set(range(written))

            eventually(is_read, f"{written} records are read", WAIT_SECONDS)

        members = [Member(library, cluster.addresses, tmp_path / f"member{number}.log") for number in range(3)]
        try:
            eventually(lambda: assigned(cluster) == [2, 2, 2], "each member has two partitions", WAIT_SECONDS)
            write()
            until_read(members)
            victim, *others = members
            coordinator = cluster.coordinator(GROUP, CoordinatorType.GROUP)
            cluster.kill(coordinator)
            write()
            until_read(members)
            victim.end(signal.SIGKILL)
            cluster.start(coordinator)
            write()
            until_read(members)
            eventually(lambda: assigned(cluster) == [3, 3], "the others have its partitions", WAIT_SECONDS)
            cluster.kill(next(broker for broker in BROKERS if broker != coordinator))
            write()
            until_read(members)
            twice = [
                value for value, times in Counter(value for each in members for value in each.read).items() if times > 1
            ]
            assert set(twice) <= set(victim.read), "only what a dead member has not committed is read again"
            for member in others:
                member.end(signal.SIGTERM)
            eventually(lambda: assigned(cluster) == [], "the members have left", WAIT_SECONDS)
        finally:
            for member in members:
                member.end(signal.SIGKILL)


def assigned(cluster: ReplicatedCluster) -> list[int]:
    """Return the numbers of partitions of the group's members, sorted."""

    async def ask() -> list[int]:
        async with Admin(cluster.addresses) as admin:
            found = (await admin.groups.describe([GROUP]))[GROUP]
        return sorted(len(member.assignment) for member in found.members)

    try:
        return asyncio.run(ask())
    except KafkaError as error:
        assert error.code is ErrorCode.GROUP_ID_NOT_FOUND
        return [-1]  # no member has joined yet
