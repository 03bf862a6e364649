"""Tests two-phase commit over three brokers: coordinators are killed between prepare and complete, and at the end of
the transaction (S120).

Between the two steps the application has no process, as after a kill -9: only its stored data remain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from crash_points import CrashPoints
from raw_transactions import RawTransactions, content
from replicated_cluster import ReplicatedCluster

from oncelog import PreparedTransaction, Producer
from oncelog_protocol.errors import ErrorCode

POINTS = ("prepare-logged", "reply-sent", "marker-sent", "marker-written", "complete-logged")
PARTITIONS = 3
SOAK = pytest.mark.soak
MOMENTS = [
    pytest.param("before", "prepare-logged", marks=SOAK),
    ("after", "prepare-logged"),
    pytest.param("after", "reply-sent", marks=SOAK),
    ("after", "marker-written"),
    pytest.param("before", "complete-logged", marks=SOAK),
    pytest.param("after", "complete-logged", marks=SOAK),
]


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashPoints]:
    with CrashPoints(tmp_path_factory.mktemp("points"), POINTS) as points:
        yield points


@pytest.fixture(scope="module")
def asking(
    chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory, points: CrashPoints
) -> Iterator[ReplicatedCluster]:
    """Yield a cluster with two-phase commit, whose brokers wait at their fail points for the test."""
    directory = tmp_path_factory.mktemp("asking")
    settings = {"transaction.two.phase.commit.enable": "true"}
    with ReplicatedCluster(directory, chroots(), settings, fail_points=points.specification) as cluster:
        yield cluster
    cluster.check_logs()


async def prepare(addresses: str, topic: str) -> PreparedTransaction:
    async with Producer(addresses, transactional_id=topic, two_phase_commit=True) as producer:
        await producer.complete_transaction(None)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            await producer.send(topic, b"v", partition=partition)
        prepared = await producer.prepare_transaction()
    assert prepared is not None
    return prepared


async def complete(addresses: str, topic: str, stored: PreparedTransaction | None) -> bool | None:
    async with Producer(addresses, transactional_id=topic, two_phase_commit=True) as producer:
        return await producer.complete_transaction(stored)


@pytest.mark.parametrize(("when", "point"), MOMENTS)
@pytest.mark.parametrize("commits", [True, pytest.param(False, marks=SOAK)], ids=["commit", "abort"])
def test_s120_coordinators_die_between_prepare_and_complete_and_while_it_ends(
    asking: ReplicatedCluster, points: CrashPoints, topic: str, when: str, point: str, commits: bool
) -> None:
    asking.mend()
    asking.create_topic(topic, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    prepared = asyncio.run(prepare(asking.addresses, topic))

    dead = asking.coordinator(topic)
    asking.kill(dead)
    asking.coordinator(topic, but=dead)  # the new coordinator has loaded the prepared transaction
    zombie = PreparedTransaction(*prepared)
    asking.start(dead)
    asking.mend()

    points.arm(when, point)
    assert asyncio.run(complete(asking.addresses, topic, prepared if commits else None)) is commits
    assert points.struck.wait(60), "no broker came to that point"
    asking.note_death()
    asking.mend()

    assert asyncio.run(complete(asking.addresses, topic, prepared)) is None, "it was ended once"
    with asking.client(asking.coordinator(topic), 60) as client:
        late = RawTransactions(client, topic)
        for version in (3, 5):
            assert late.end(not commits, asking=zombie.producer, version=version) in (
                ErrorCode.PRODUCER_FENCED,
                ErrorCode.INVALID_PRODUCER_EPOCH,
            )
    for index in range(PARTITIONS):
        expected = ["data", "commit" if commits else "abort"]
        found = asking.until(lambda: has_content(asking, topic, index, expected), f"{expected} in {index}")  # noqa: B023
        assert found


def has_content(cluster: ReplicatedCluster, topic: str, index: int, expected: list[str]) -> bool:
    """Check the records at a partition's leader; a marker counts once, even if it was written again for another
    coordinator.
    """
    with cluster.client(cluster.until_led(topic, index).leader) as client:
        found = content(client, topic, index)
    return list(dict.fromkeys(found)) == expected
