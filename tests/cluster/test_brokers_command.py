"""Tests `oncelog brokers` on three live brokers: it rebalances the load, and decommissions a broker, also after an
interruption.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_cluster import BrokerCluster
from foreign_clients import eventually
from warm_commands import COMMAND, run_oncelog_text

from oncelog import Admin, NewTopic, Producer
from oncelog.admin.resources import ConfigResource
from oncelog.cli.reassignment_throttle import LEADER_REPLICAS

LEAVING = 3
PARTITIONS = 6
RECORDS = 30
VALUE = b"v" * 20_000
SLOW = "1000"
"""A throttle in bytes per second, so low that no move ends during the test."""


@pytest.fixture
def brokers(chroots: Callable[[], str], tmp_path: Path) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path, chroots(), size=3, settings={"zookeeper.session.timeout.ms": "2000"}) as cluster:
        yield cluster
    cluster.check_logs()


def run(brokers: BrokerCluster, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_oncelog_text("brokers", *arguments, "-b", brokers.addresses)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def listed(brokers: BrokerCluster) -> dict[int, dict[str, object]]:
    return {row["broker"]: row for row in json.loads(run(brokers, "list", "-o", "json").stdout)}


async def filled(addresses: str, topic: str) -> None:
    """Create a topic whose partitions have two replicas on brokers 1 and 3, with some records."""
    async with Admin(addresses) as admin:
        assignment = dict.fromkeys(range(PARTITIONS), (1, LEAVING))
        await admin.create_topics([NewTopic(topic, replica_assignments=assignment)])
    async with Producer(addresses) as producer:
        for number in range(RECORDS):
            await producer.send(topic, VALUE, partition=number % PARTITIONS)


async def replicas_of(addresses: str, topic: str) -> dict[int, tuple[int, ...]]:
    async with Admin(addresses) as admin:
        described = await admin.describe_topics([topic])
        return {index: partition.replicas for index, partition in described[topic].partitions.items()}


async def moving(addresses: str) -> int:
    async with Admin(addresses) as admin:
        return len(await admin.list_partition_reassignments())


async def throttle_of(addresses: str, topic: str) -> str | None:
    async with Admin(addresses) as admin:
        found = await admin.describe_configs([ConfigResource.topic(topic)], keys=[LEADER_REPLICAS])
        return found[ConfigResource.topic(topic)][LEADER_REPLICAS].value


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill the process at the end of the block, also if the test fails."""
    with process:
        try:
            yield
        finally:
            process.kill()


@pytest.mark.timeout(400)
def test_load_is_spread_and_a_broker_is_let_go_after_an_interruption(brokers: BrokerCluster) -> None:
    topic = "orders"
    addresses = brokers.addresses
    asyncio.run(filled(addresses, topic))
    before = asyncio.run(replicas_of(addresses, topic))
    assert set(before.values()) == {(1, LEAVING)}

    # Rebalance: the plan is shown first, then executed.
    shown = run(brokers, "rebalance")
    assert "nothing was changed" in shown.stderr
    assert asyncio.run(replicas_of(addresses, topic)) == before
    assert "Nothing is left to do" in run(brokers, "rebalance", "--execute").stdout
    spread = asyncio.run(replicas_of(addresses, topic))
    held = Counter(node for replicas in spread.values() for node in replicas)
    assert set(held.values()) == {4}
    assert set(Counter(replicas[0] for replicas in spread.values()).values()) == {2}
    assert "0 partitions of" in run(brokers, "rebalance").stderr, "a second time nothing moves"

    # Decommission a broker: the plan is shown, begun with a throttle so low that the moves do not end, and interrupted.
    assert "nothing was changed" in run(brokers, "decommission", str(LEAVING)).stderr
    assert asyncio.run(replicas_of(addresses, topic)) == spread
    interrupted = subprocess.Popen(
        [COMMAND, "brokers", "decommission", str(LEAVING), "--execute", "--throttle", SLOW, "-b", addresses],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background processes may ignore SIGINT
    )
    with ended(interrupted):
        eventually(lambda: asyncio.run(moving(addresses)) > 0, "partitions are on the way")
        interrupted.send_signal(signal.SIGINT)
        _, said = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130, said
    assert "Run the command again" in said
    assert asyncio.run(moving(addresses)) > 0, "the throttle holds them back"
    assert asyncio.run(throttle_of(addresses, topic)), "it is still set"

    # Run the command again without a throttle: the command continues the moves, and removes the old throttle.
    done = run(brokers, "decommission", str(LEAVING), "--execute", "--throttle", "0")
    assert "already on the way" in done.stderr
    assert f"broker {LEAVING} holds no replica any more. Left to do:" in done.stdout
    assert "stop it" in done.stdout
    assert asyncio.run(moving(addresses)) == 0
    assert not asyncio.run(throttle_of(addresses, topic))
    after = asyncio.run(replicas_of(addresses, topic))
    assert {frozenset(replicas) for replicas in after.values()} == {frozenset((1, 2))}
    assert all(set(spread[index]) - {LEAVING} <= set(after[index]) for index in after), "nothing else has moved"
    assert listed(brokers)[LEAVING]["replicas"] == 0

    # The broker is gone, and no partition has a replica on it.
    brokers.kill(LEAVING)
    eventually(lambda: LEAVING not in listed(brokers), "it is not a broker any more")
    counted = run_oncelog_text("consume", topic, "--from", "earliest", "--count", str(RECORDS), "-b", addresses)
    assert len(counted.stdout.splitlines()) == RECORDS
    refused = run(brokers, "decommission", "1", code=1)
    assert "2 replicas, and only 1 brokers are left" in refused.stderr
    assert "there is no broker 9" in run(brokers, "decommission", "9", code=1).stderr


@pytest.mark.timeout(400)
def test_a_dead_broker_is_let_go_and_holds_up_a_rebalance_until_then(brokers: BrokerCluster) -> None:
    topic, addresses = "orders", brokers.addresses
    asyncio.run(filled(addresses, topic))
    brokers.kill(LEAVING)
    eventually(lambda: listed(brokers)[LEAVING]["state"] == "away", "it is away")
    assert "is away" in run(brokers, "rebalance", code=1).stderr
    done = run(brokers, "decommission", str(LEAVING), "--execute")
    assert "stop it" not in done.stdout
    assert set(asyncio.run(replicas_of(addresses, topic)).values()) <= {(1, 2), (2, 1)}
    assert LEAVING not in listed(brokers)
