"""Which AddPartitionsToTxn, transactional Produce and EndTxn requests take the fast code path (the lane), and that fail
points take effect there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.served import TOPIC
from tests.support.transaction_lanes import BEGUN, NEW, OLD, USUAL, World, transaction

from oncelog.fail_points.point import VARIABLE
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.server.lanes import add_partitions_to_txn, end_txn
from oncelog_broker.server.lanes.add_partitions_to_txn import AddPartitionsToTxnLane
from oncelog_broker.server.lanes.end_txn import EndTxnLane
from oncelog_broker.server.lanes.produce import ProduceLane
from oncelog_broker.server.net.lane import VARIABLE as LANES
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.quotas import QuotaKey

ALL = {"AddPartitionsToTxnLane": 1, "ProduceLane": 2, "EndTxnLane": 2}


def count_served(counts: Counter[str], kind: Any) -> Any:
    """Return a `serve` for lanes of this kind that counts the requests that the lanes have served."""
    serve = kind.serve

    def counted(self: Any, *arguments: Any) -> bool:
        is_served: bool = serve(self, *arguments)
        counts[kind.__name__] += is_served
        return is_served

    return counted


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of requests that each kind of lane has served."""
    counts: Counter[str] = Counter()
    for kind in (AddPartitionsToTxnLane, ProduceLane, EndTxnLane):
        monkeypatch.setattr(kind, "serve", count_served(counts, kind))
    return counts


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A broker with two transactional producers, whose lanes recognise the next requests."""
    made = World(str(tmp_path / "data"), has_lanes=True)
    await perform(made, BEGUN)
    yield made
    await made.files()


async def perform(world: World, steps: list[tuple[Any, ...]]) -> None:
    for step, *arguments in steps:
        await world.perform(step, *arguments)


async def test_every_request_of_a_usual_transaction_takes_a_lane(world: World, served: Counter[str]) -> None:
    served.clear()
    await perform(world, USUAL)
    assert served == ALL


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5])
async def test_every_version_of_an_end_takes_the_lane(
    world: World, served: Counter[str], version: int, commits: bool
) -> None:
    name = NEW if version == 5 else OLD
    await perform(world, [("reconnect", name, 3, version), *transaction(name, commits=commits) * 4])
    served.clear()
    await perform(world, transaction(name, commits=commits))
    assert served["EndTxnLane"] == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_every_version_for_clients_of_an_addition_takes_the_lane(
    world: World, served: Counter[str], version: int
) -> None:
    await perform(world, [("reconnect", OLD, version, 3), *transaction(OLD, (0, 1)) * 4])
    served.clear()
    await perform(world, transaction(OLD, (0, 1)))
    assert served["AddPartitionsToTxnLane"] == 1


async def test_partitions_that_the_transaction_has_already_are_not_logged_again(
    world: World, served: Counter[str]
) -> None:
    await perform(world, [("add", OLD, (0,), 0)])
    served.clear()
    end = world.transactions.runtime.shard(OLD).partition.log.log_end_offset
    await perform(world, [("add", OLD, (0,), 0)])
    assert (served["AddPartitionsToTxnLane"], end) == (
        0,
        world.transactions.runtime.shard(OLD).partition.log.log_end_offset,
    )


async def test_a_batch_of_transactions_v2_takes_no_lane_while_its_registration_must_be_replicated(
    world: World, served: Counter[str]
) -> None:
    await perform(world, [("gain_follower", True), ("follow",)])
    served.clear()
    await perform(world, [("produce", NEW, (0,), 0)])
    assert served["ProduceLane"] == 0
    await perform(world, [("follow",), ("produce", NEW, (0,), 0)])
    assert served["ProduceLane"] == 1, "the transaction is open in the partition"


@pytest.mark.parametrize(
    ("key", "is_served"), [(QuotaKey.REQUEST_PERCENTAGE, False), (QuotaKey.CONTROLLER_MUTATION_RATE, True)]
)
async def test_clients_with_a_quota_on_processor_time_take_no_lane(
    world: World, served: Counter[str], key: QuotaKey, is_served: bool
) -> None:
    await perform(world, [("quota", 5000.0, key, "test"), *USUAL])
    served.clear()
    await perform(world, USUAL)
    assert (served["AddPartitionsToTxnLane"], served["EndTxnLane"]) == ((1, 2) if is_served else (0, 0))


async def test_a_lane_remembers_a_limited_number_of_requests(
    world: World, served: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (add_partitions_to_txn, end_txn):
        monkeypatch.setattr(module, "MAX_KNOWN", 1)
    await perform(world, transaction(OLD, (1,), commits=False) * 3)
    served.clear()
    await perform(world, transaction(OLD, (1,), commits=False))
    assert (served["AddPartitionsToTxnLane"], served["EndTxnLane"]) == (0, 0)
    await perform(world, transaction(OLD))
    assert (served["AddPartitionsToTxnLane"], served["EndTxnLane"]) == (1, 1)


async def test_a_batch_takes_no_lane_while_an_earlier_batch_must_be_sent_again(
    world: World, served: Counter[str]
) -> None:
    """KAFKA-14561: the handler then checks the sequence."""
    sender = world.senders[OLD]
    producer = ProducerIdAndEpoch(sender.producer_id, sender.epoch)
    world.transactions.refused_sequences.note(TopicPartition(TOPIC, 1), producer, 0)
    served.clear()
    await perform(world, transaction(OLD))
    assert served["ProduceLane"] == 0


async def test_the_lane_of_ends_notes_the_client_of_a_transactional_id(world: World, served: Counter[str]) -> None:
    before = world.transactions.last_clients.of(NEW)
    world.transactions.last_clients._clients.clear()
    served.clear()
    await perform(world, transaction(NEW))
    assert served["EndTxnLane"] == 1
    assert world.transactions.last_clients.of(NEW) == before


async def test_a_lane_forgets_the_requests_of_earlier_epochs(
    world: World, served: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_partitions_to_txn, "MAX_KNOWN", 1)
    for _ in range(3):
        await perform(world, [("init", OLD), *transaction(OLD)])
        served.clear()
        await perform(world, transaction(OLD))
        assert served["AddPartitionsToTxnLane"] == 1


PROGRAM = """
import asyncio, json, sys
from collections import Counter
from tests.support.transaction_lanes import BEGUN, USUAL, World
from tests.unit.broker.server.lanes.test_transaction_lanes import count_served
from oncelog_broker.server.lanes.add_partitions_to_txn import AddPartitionsToTxnLane
from oncelog_broker.server.lanes.end_txn import EndTxnLane
from oncelog_broker.server.lanes.produce import ProduceLane

counts = Counter()
for kind in (AddPartitionsToTxnLane, ProduceLane, EndTxnLane):
    kind.serve = count_served(counts, kind)

async def main():
    world = World(sys.argv[1], has_lanes=True)
    for step, *arguments in [*BEGUN, *USUAL * 6]:
        await world.perform(step, *arguments)
    outcome = world.outcome()
    found = [[each.hex() for each in outcome["answers"]], repr(outcome["states"]), repr(outcome["logs"])]
    await world.files()
    print(json.dumps([*found, sum(counts.values())]))

asyncio.run(main())
"""


def run(directory: Path, fail_points: str, *, lanes: str) -> list[Any]:
    """Return the responses, the states, the logs, and how many requests took a lane."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory)],
        env={**os.environ, VARIABLE: fail_points, LANES: lanes},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "points",
    [
        "register-partitions@9 = drop; register-partitions@14 = duplicate",
        "prepare-logged@10 = duplicate; reply-sent@9 = duplicate; reply-sent@12 = drop",
        "complete-logged@9 = duplicate; complete-logged@12 = drop",
        "marker-sent@9 = duplicate; marker-written@12 = duplicate; append@11 = duplicate",
    ],
)
def test_fail_points_strike_in_the_lanes_as_in_the_usual_way(tmp_path: Path, points: str) -> None:
    *fast, taken = run(tmp_path / "fast", points, lanes="on")
    *usual, not_taken = run(tmp_path / "usual", points, lanes="off")
    *plain, _ = run(tmp_path / "plain", "", lanes="on")
    assert fast == usual
    assert fast != plain, "the points have struck"
    assert taken > 10
    assert not_taken == 0
