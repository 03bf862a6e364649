"""Consumers are directed to a replica in their own rack, and followers respond as far as they know (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.served import EPOCH, FOLLOWER, LEADER, Client, Served
from tests.support.storage import make_batch

from oncelog_broker.config.broker_keys import RACK_AWARE_SELECTORS, REPLICA_SELECTOR_CLASS
from oncelog_broker.metadata.model.image import Broker, ClusterImage
from oncelog_broker.metadata.model.payloads import Endpoint
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest, IsolationLevel
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch

BOTH = (LEADER, FOLLOWER)
LEADER_EPOCH = 3
RACKS = {LEADER: "here", FOLLOWER: "there"}
ENDPOINT = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")


def image(racks: dict[int, str | None], endpoints: tuple[Endpoint, ...] = (ENDPOINT,)) -> ClusterImage:
    return ClusterImage("", {broker: Broker(broker, EPOCH, endpoints, rack) for broker, rack in racks.items()})


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    made.services.config[REPLICA_SELECTOR_CLASS] = RACK_AWARE_SELECTORS[1]
    made.services.image = image({**RACKS})
    yield made
    made.leave()


def fetch(
    offset: int,
    rack: str = "there",
    *,
    last_epoch: int = -1,
    leader_epoch: int = -1,
    wait_ms: int = 60_000,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> FetchRequest:
    wanted = FetchRequest.FetchTopic.FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    topics = [FetchRequest.FetchTopic(topic="orders", topic_id=bytes(16), partitions=[wanted])]
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, topics=topics, rack_id=rack, isolation_level=isolation, session_epoch=-1
    )


async def ask(served: Served, request: FetchRequest, version: int = 17) -> Any:
    client = Client(served)
    client.send(request, api=ApiKey.FETCH, version=version)
    ((_, response),) = await client.answered(1)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def offsets(answer: Any) -> list[int]:
    return [batch.base_offset for batch in batches(bytes(answer.records))]


# --- requests to the leader


def lead(served: Served, *, isr: tuple[int, ...] = BOTH, follower_end: int = 2, follower_start: int = 0) -> None:
    """Lead the partition with two records; the follower has the records below `follower_end`."""
    (partition,) = served.partitions
    partition.lead(LEADER_EPOCH, isr, BOTH)
    for _ in range(2):
        partition.append(memoryview(make_batch()), required_acks=1)
    partition.on_follower_fetch(FOLLOWER, follower_end, log_start_offset=follower_start)


@pytest.mark.parametrize("version", [11, 12, 17])
async def test_a_consumer_is_sent_to_the_replica_in_its_rack_at_once(served: Served, version: int) -> None:
    lead(served)
    answer = await ask(served, fetch(0), version)
    assert (answer.preferred_read_replica, bytes(answer.records), answer.high_watermark) == (FOLLOWER, b"", 2)


@pytest.mark.parametrize(
    "case",
    ["own rack", "unknown rack", "no rack", "not in sync", "behind", "begins later", "dead", "elsewhere", "v10", "off"],
)
async def test_a_consumer_stays_at_the_leader_without_a_suitable_replica(served: Served, case: str) -> None:
    lead(
        served,
        isr=(LEADER,) if case == "not in sync" else BOTH,
        follower_end=0 if case == "behind" else 2,
        follower_start=2 if case == "begins later" else 0,
    )
    if case == "dead":
        served.services.image = image({LEADER: "here"})
    if case == "elsewhere":
        served.services.image = image({**RACKS}, (Endpoint("OTHER", "127.0.0.1", 9093, "PLAINTEXT"),))
    if case == "off":
        served.services.config[REPLICA_SELECTOR_CLASS] = None
    rack = {"own rack": "here", "unknown rack": "nowhere", "no rack": ""}.get(case, "there")
    answer = await ask(served, fetch(1, rack, wait_ms=0), 10 if case == "v10" else 17)
    assert (answer.preferred_read_replica, answer.error_code) == (-1, 0)
    assert offsets(answer) == ([] if case == "behind" else [1])  # in the case "behind" no record is replicated yet


async def test_a_preferred_replica_is_returned_in_an_incremental_response(served: Served) -> None:
    """The preferred replica is the only change since the last response."""
    lead(served)
    client = Client(served)
    first = fetch(2, "nowhere", wait_ms=0)
    first.session_epoch = 0
    client.send(first, api=ApiKey.FETCH, version=17)
    ((_, session),) = await client.answered(1)
    second = fetch(2, wait_ms=0)
    second.session_id, second.session_epoch, second.topics = session.session_id, 1, []
    client.send(second, api=ApiKey.FETCH, version=17)
    _, (_, response) = await client.answered(2)
    assert response.responses[0].partitions[0].preferred_read_replica == FOLLOWER


# --- requests to a follower


def follow(served: Served, records: int = 3, *, high_watermark: int = 2) -> Any:
    """Make this broker the follower."""
    (partition,) = served.partitions
    partition.follow(FOLLOWER, LEADER_EPOCH)
    for offset in range(records):
        take(partition, make_batch(base_offset=offset, partition_leader_epoch=LEADER_EPOCH), high_watermark)
    return partition


def take(partition: Any, records: bytes | bytearray, high_watermark: int) -> None:
    partition.append_as_follower(
        memoryview(records), leader_epoch=LEADER_EPOCH, high_watermark=high_watermark, log_start_offset=0
    )


async def test_a_follower_gives_what_it_knows_to_be_replicated(served: Served) -> None:
    follow(served)
    answer = await ask(served, fetch(0, leader_epoch=LEADER_EPOCH))
    assert (offsets(answer), answer.high_watermark, answer.preferred_read_replica) == ([0, 1], 2, -1)


@pytest.mark.parametrize("offset", [2, 3])
async def test_a_reader_at_its_end_waits_for_the_high_watermark(served: Served, offset: int) -> None:
    """Consumers may have read records from the leader that are above the high watermark which this follower knows."""
    partition = follow(served)
    client = Client(served)
    client.send(fetch(offset, last_epoch=LEADER_EPOCH), api=ApiKey.FETCH, version=17)
    assert client.answers() == []
    take(partition, b"", 3)
    if offset == 3:
        served.deadlines.fire()
    ((_, response),) = await client.answered(1)
    assert offsets(response.responses[0].partitions[0]) == ([2] if offset == 2 else [])


@pytest.mark.parametrize("last_epoch", [-1, LEADER_EPOCH, LEADER_EPOCH + 1])
async def test_a_follower_reports_nothing_about_records_that_it_lacks(served: Served, last_epoch: int) -> None:
    """The follower reports neither a truncation nor an offset out of range, because a lagging follower could be wrong
    about both.
    """
    follow(served)
    answer = await ask(served, fetch(4, last_epoch=last_epoch))
    assert answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert answer.diverging_epoch is None


async def test_an_offset_below_the_followers_log_is_sent_to_the_leader(served: Served) -> None:
    follow(served).log.trimmer.delete_records_before(1)
    assert (await ask(served, fetch(0))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(LEADER_EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH), (LEADER_EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
async def test_a_reader_of_another_epoch_is_refused(served: Served, epoch: int, code: ErrorCode) -> None:
    follow(served)
    assert (await ask(served, fetch(0, leader_epoch=epoch))).error_code == code


@pytest.mark.parametrize("case", ["off", "does not hear its leader", "v10"])
async def test_a_consumer_is_sent_back_to_the_leader(served: Served, case: str) -> None:
    follow(served)
    if case == "off":
        served.services.config[REPLICA_SELECTOR_CLASS] = None
    served.hears_leader = case != "does not hear its leader"
    answer = await ask(served, fetch(0), 10 if case == "v10" else 17)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_reader_that_waits_is_told_of_a_new_leader(served: Served) -> None:
    partition = follow(served)
    client = Client(served)
    client.send(fetch(2, leader_epoch=LEADER_EPOCH), api=ApiKey.FETCH, version=17)
    partition.follow(FOLLOWER, LEADER_EPOCH + 1)
    ((_, response),) = await client.answered(1)
    assert response.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_read_committed_fetch_ends_at_the_open_transaction_and_names_aborted_ones(served: Served) -> None:
    partition = follow(served, 0)
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    take(partition, make_batch(base_offset=0, partition_leader_epoch=LEADER_EPOCH, base_sequence=0, **options), 1)
    marker = marker_batch(
        EndTransactionMarker(ControlType.ABORT, 0),
        producer_id=7, producer_epoch=0, timestamp=1, base_offset=1,
        partition_leader_epoch=LEADER_EPOCH,
    )  # fmt: skip
    take(partition, marker, 2)
    take(partition, make_batch(base_offset=2, partition_leader_epoch=LEADER_EPOCH, base_sequence=1, **options), 3)
    answer = await ask(served, fetch(0, isolation=IsolationLevel.READ_COMMITTED))
    assert (offsets(answer), answer.last_stable_offset, answer.high_watermark) == ([0, 1], 2, 3)
    assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [(7, 0)]
