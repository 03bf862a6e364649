"""Which Produce requests take the fast code path (the lane); if lanes are disabled, no request takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from tests.support.producers import COMMIT, sequenced
from tests.support.served import Client, Coordinator, Served, produce
from tests.support.storage import make_batch

from oncelog.fail_points import point
from oncelog.fail_points.faults import Faults
from oncelog.fail_points.specification import Action, Kind
from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.replication.partition import Partition
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.dispatch.throttling import Throttling
from oncelog_broker.server.lanes import produce as lane_of_produce
from oncelog_broker.server.lanes.produce import (
    MAX_DESTINATIONS,
    MAX_HEAD_BYTES,
    MAX_LENGTHS,
    MIN_VERSION,
    ProduceLane,
)
from oncelog_broker.server.lanes.produce_waits import MAX_TOGETHER, TOGETHER_SECONDS
from oncelog_broker.server.lanes.repeated import MAX_FAILED_ATTEMPTS
from oncelog_broker.server.net import lane
from oncelog_broker.server.records.produce import SYNC_SECONDS
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.quotas import QuotaEntity, QuotaKey
from oncelog_protocol.records.control import EndTransactionMarker
from oncelog_protocol.templates import around_records

VERSIONS = SERVED[ApiKey.PRODUCE].versions
UNKNOWN_TAG = b"\x01\x63\x01\x00"
"""Tagged fields of a message: one field of one byte with tag 99, which the broker does not know."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path, partitions=3)
    for partition in made.partitions:
        partition.lead(0, (1,))
    yield made
    made.leave()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for each request that reached a lane whether the lane handled it."""
    found: list[bool] = []
    serve = ProduceLane.serve

    def noted(self: ProduceLane, *arguments: Any) -> bool:
        found.append(serve(self, *arguments))
        return found[-1]

    monkeypatch.setattr(ProduceLane, "serve", noted)
    return found


def plain(*, timeout_ms: int = 1000, **options: Any) -> Any:
    request = produce(bytes(make_batch()), **options)
    request.timeout_ms = timeout_ms
    return request


@pytest.mark.parametrize("version", range(VERSIONS.low, VERSIONS.high + 1))
async def test_a_repeated_request_takes_the_lane_the_next_time(served: Served, taken: list[bool], version: int) -> None:
    client = Client(served)
    client.send(*(plain(acks=acks) for acks in (1, 1, 1, 1, -1, -1)), version=version)
    found = [response.responses[0].partition_responses[0] for _, response in await client.answered(6)]
    assert [(answer.error_code, answer.base_offset) for answer in found] == [(0, offset) for offset in range(6)]
    in_lane = version >= MIN_VERSION
    assert taken == [False, in_lane, False, in_lane], "the first request made the route, the second one the lane"


async def test_a_connection_may_write_to_several_partitions_in_turn(served: Served, taken: list[bool]) -> None:
    client = Client(served)
    for _ in range(4):
        client.send(*(plain(index=index) for index in range(3)))
    assert taken == [False] * 3 + [True] * 7, "the third partition of the first round was the first to be remembered"
    assert [partition.log.log_end_offset for partition in served.partitions] == [4, 4, 4]


async def test_a_lane_remembers_a_bounded_number_of_destinations(served: Served) -> None:
    client = Client(served)
    for number in range(MAX_DESTINATIONS + 10):
        batch = sequenced(number, 0, transactional=False)
        request = produce(bytes(batch))
        request.timeout_ms = number
        client.send(request)
    (found,) = client.connection.lanes.values()
    assert isinstance(found, ProduceLane)
    assert len(found._known) == MAX_DESTINATIONS


async def test_a_lane_keeps_no_long_names(served: Served, taken: list[bool]) -> None:
    served.services.transactions = Coordinator()
    client = Client(served)
    for sequence in range(4):
        request = produce(bytes(sequenced(7, sequence, transactional=True)), transactional_id="t" * MAX_HEAD_BYTES)
        client.send(request)
    assert taken == [False, False]
    assert served.partitions[0].log.log_end_offset == 4
    (found,) = client.connection.lanes.values()
    assert isinstance(found, ProduceLane)
    assert found._known == {}


async def test_a_client_with_many_head_lengths_does_not_pay_for_an_attempt_at_each_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.services.transactions = Coordinator()
    client, attempts = Client(served), []

    def noted(*arguments: Any) -> Any:
        attempts.append(arguments)
        return around_records(*arguments)

    monkeypatch.setattr(lane_of_produce, "around_records", noted)
    for sequence in range(MAX_LENGTHS + MAX_FAILED_ATTEMPTS + 20):
        batch, length = bytes(sequenced(7, sequence, transactional=True)), 1 + sequence % 20
        client.send(produce(batch, transactional_id="t" * length))
    (found,) = client.connection.lanes.values()
    assert isinstance(found, ProduceLane)
    assert len(found._lengths) == len(found._known) == MAX_LENGTHS
    assert len(attempts) == MAX_LENGTHS + MAX_FAILED_ATTEMPTS


async def test_a_full_lane_forgets_deleted_partitions(served: Served, taken: list[bool], tmp_path: Path) -> None:
    client, old = Client(served), served.partitions[0]
    for number in range(MAX_DESTINATIONS + 10):
        client.send(plain(timeout_ms=number))
    old.resign()
    served.partitions[0] = new = Served(tmp_path / "new").partitions[0]
    new.lead(1, (1,))
    taken.clear()
    for _ in range(2):
        client.send(plain(timeout_ms=1_000_000))
    assert taken == [False, True]
    (found,) = client.connection.lanes.values()
    assert isinstance(found, ProduceLane)
    assert {known.partition for known in found._known.values()} == {new}
    old.log.close()


async def test_a_transaction_takes_the_lane_if_its_coordinator_verifies_it_at_once(
    served: Served, taken: list[bool]
) -> None:
    served.services.transactions = coordinator = Coordinator()
    client, partition = Client(served), served.partitions[0]

    def send(sequence: int) -> None:
        client.send(produce(bytes(sequenced(7, sequence, transactional=True)), transactional_id="txn"))

    for sequence in range(4):
        send(sequence)
    assert taken == [False, True]
    partition.append_marker(EndTransactionMarker(COMMIT, 0), producer_id=7, producer_epoch=0)
    send(4)
    send(5)
    assert taken[2:] == [True, True]
    partition.append_marker(EndTransactionMarker(COMMIT, 0), producer_id=7, producer_epoch=0)
    coordinator.code = ErrorCode.NOT_COORDINATOR
    send(6)
    assert taken[4:] == [False], "each transaction is verified"


async def test_a_partition_that_came_anew_under_the_same_name_is_written_to(
    served: Served, taken: list[bool], tmp_path: Path
) -> None:
    client, old = Client(served), served.partitions[0]
    for _ in range(4):
        client.send(plain())
    assert taken == [False, True]
    old.resign()
    served.partitions[0] = new = Served(tmp_path / "new").partitions[0]
    new.lead(1, (1,))
    for _ in range(3):
        client.send(plain())
    assert (old.log.log_end_offset, new.log.log_end_offset) == (4, 3)
    assert taken[2:] == [False, True, True], "it is remembered at once"
    old.log.close()


@pytest.mark.parametrize(
    ("key", "client", "is_taken"),
    [
        (QuotaKey.PRODUCER_BYTE_RATE, "test", True),
        (QuotaKey.CONSUMER_BYTE_RATE, "test", True),
        (QuotaKey.REQUEST_PERCENTAGE, "test", False),
        (QuotaKey.REQUEST_PERCENTAGE, "other", True),
    ],
)
async def test_a_quota_of_what_is_produced_is_charged_in_the_lane(
    served: Served, taken: list[bool], key: QuotaKey, client: str, is_taken: bool
) -> None:
    throttling = Throttling({each: each.default for each in BROKER_KEYS.values()}, served.clock)  # type: ignore[arg-type]
    image = ClusterImage("").with_quotas({QuotaEntity(None, client): {key: 1e9}})
    served.dispatcher.throttling = throttling.on_image(image)
    producer = Client(served)
    producer.send(*(plain(acks=1) for _ in range(4)))
    assert taken == [False, is_taken]
    served.dispatcher.throttling = throttling.on_image(image.with_quotas({QuotaEntity(None, client): {key: 10.0}}))
    producer.send(plain(acks=1))
    producer.send(plain(acks=1))
    answers = [response.throttle_time_ms for _, response in producer.answers()]
    assert (answers[-1] > 0) is (key is QuotaKey.PRODUCER_BYTE_RATE), "two requests of 200 bytes, at 10 bytes a second"


def test_lanes_are_closed_by_the_environment() -> None:
    assert lane.are_open({})
    assert lane.are_open({lane.VARIABLE: "on"})
    assert not lane.are_open({lane.VARIABLE: "off"})


async def test_lanes_are_closed_while_a_test_has_set_a_fault(
    served: Served, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    armed = Faults([])
    monkeypatch.setattr(point, "ACTIVE_FAULTS", armed)
    served.dispatcher = Dispatcher(served.services)
    client = Client(served)
    client.send(*(plain() for _ in range(4)))
    assert taken == [False, True]
    fault = armed.controlled.add("Produce.request", Action(Kind.DROP), times=1)
    client.send(plain())
    assert client.wire.aborted, "the request is lost, and with it the connection"
    assert taken == [False, True]
    armed.controlled.remove(fault.number)
    client = Client(served)
    client.send(*(plain() for _ in range(4)))
    assert taken[-1]


async def test_a_closed_lane_is_never_made(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lane.VARIABLE, "off")
    client = Client(served)
    for _ in range(3):
        client.send(plain())
    assert client.connection.lanes == {}
    assert isinstance(served.partitions[0], Partition)


async def test_s124_requests_that_wait_for_one_sync_are_answered_together(tmp_path: Path, taken: list[bool]) -> None:
    served = Served(tmp_path, flush_messages=1)
    (partition,) = served.partitions
    partition.lead(0, (1,))
    client, other = Client(served), Client(served)
    for each in (client, other):
        each.send(plain(acks=1), plain(acks=1), plain(acks=1))
        each.send(plain(acks=1), plain(acks=1), plain(acks=-1))
    assert served.sync_requests
    await some_turns()
    assert (client.answers(), partition.log.log_end_offset) == ([], 12)
    end_sync = begin_sync(partition)
    client.send(plain(acks=1))
    writes: list[bytes] = []
    client.wire.write = writes.append  # type: ignore[method-assign,assignment]
    end_sync()
    await some_turns()
    assert [base_offset for _, base_offset in map(outcome, other.answers())] == [6, 7, 8, 9, 10, 11]
    client.wire.bytes = b"".join(writes)
    assert [base_offset for _, base_offset in map(outcome, client.answers())] == [0, 1, 2, 3, 4, 5]
    assert len(writes) <= 4, "the responses of requests in the lane leave together"
    begin_sync(partition)()
    await some_turns()
    client.wire.bytes = b"".join(writes)
    assert [base_offset for _, base_offset in map(outcome, client.answers())] == [0, 1, 2, 3, 4, 5, 12]
    assert sum(taken) >= 6
    served.leave()


async def test_s124_a_request_that_waits_for_a_sync_has_a_time_limit(tmp_path: Path, taken: list[bool]) -> None:
    served = Served(tmp_path, flush_messages=1)
    (partition,) = served.partitions
    partition.lead(0, (1,))
    client = Client(served)
    client.send(*(plain(acks=1) for _ in range(4)))
    end_sync = begin_sync(partition)
    await some_turns()
    served.deadlines.fire()
    await some_turns()
    assert {error for error, _ in map(outcome, client.answers())} == {ErrorCode.REQUEST_TIMED_OUT}
    assert len(client.answers()) == 4
    end_sync()
    await some_turns()
    assert len(client.answers()) == 4
    client.send(plain(acks=1))
    client.connection.connection_lost(None)
    begin_sync(partition)()
    await some_turns()
    assert True in taken
    served.leave()


@pytest.mark.parametrize("acks", [1, -1])
async def test_the_timeout_of_a_request_does_not_count_the_sync_of_this_broker(
    tmp_path: Path, taken: list[bool], acks: int
) -> None:
    """Kafka syncs within the append. With a timeout of 0, a producer would otherwise be told REQUEST_TIMED_OUT for a
    record that is in the log, and would send it again.
    """
    served = Served(tmp_path, flush_messages=1)
    (partition,) = served.partitions
    partition.lead(0, (1,))
    client = Client(served)
    requests = [replace(plain(acks=acks), timeout_ms=0) for _ in range(4)]
    for request in requests:
        client.send(request)
    assert {seconds for seconds, _ in served.deadlines.set} == {SYNC_SECONDS}, "in the lane, and before"
    begin_sync(partition)()
    await some_turns()
    assert list(map(outcome, client.answers())) == [(ErrorCode.NONE, offset) for offset in range(4)]
    assert True in taken
    served.deadlines.set.clear()
    partition.lead(0, (1, 2), (1, 2), partition_epoch=1)
    client.send(replace(plain(), timeout_ms=500))
    assert {seconds for seconds, _ in served.deadlines.set} == {0.5}, "other replicas have the time of the request"
    served.leave()


async def test_acks_all_waits_for_a_replica_that_joins_the_isr_during_the_sync(
    tmp_path: Path, taken: list[bool]
) -> None:
    """If the leader died now, the replica that has joined could be elected without the records."""
    served = Served(tmp_path, flush_messages=1)
    (partition,) = served.partitions
    partition.lead(0, (1,))
    client = Client(served)
    for acks in (-1, -1, -1, -1, 1, 1, 1):
        client.send(plain(acks=acks))
    assert taken.count(True) >= 3, "the last requests of both kinds are in the lane"
    end_sync = begin_sync(partition)
    partition.lead(0, (1, 2), (1, 2), partition_epoch=1)
    partition.on_follower_fetch(2, 3)
    end_sync()
    await some_turns()
    assert partition.high_watermark == 3, "the request with offset 3 is the first one in the lane"
    assert [base_offset for _, base_offset in map(outcome, client.answers())] == [0, 1, 2]
    partition.on_follower_fetch(2, 7)
    await some_turns()
    assert list(map(outcome, client.answers())) == [(ErrorCode.NONE, offset) for offset in range(7)]
    served.leave()


async def test_acks_all_that_waits_for_a_new_replica_has_a_time_limit(tmp_path: Path, taken: list[bool]) -> None:
    served = Served(tmp_path, flush_messages=1)
    (partition,) = served.partitions
    partition.lead(0, (1,))
    client = Client(served)
    for _ in range(4):
        client.send(plain())
    end_sync = begin_sync(partition)
    partition.lead(0, (1, 2), (1, 2), partition_epoch=1)
    end_sync()
    await some_turns()
    assert client.answers() == []
    served.deadlines.fire()
    await some_turns()
    assert [error for error, _ in map(outcome, client.answers())] == [ErrorCode.REQUEST_TIMED_OUT] * 4
    assert True in taken
    served.leave()


async def test_a_group_of_requests_that_wait_for_a_sync_has_limits(tmp_path: Path) -> None:
    """A request that joined a group of waiting requests much later would get the time limit of the group's first
    request.
    """
    served = Served(tmp_path, flush_messages=1)
    (partition,) = served.partitions
    partition.lead(0, (1,))
    client = Client(served)
    for _ in range(2):
        client.send(plain(acks=1))  # the first request takes the general path and prepares the lane
    learning = len(partition.purgatory.unsynced)
    for _ in range(MAX_TOGETHER + 1):
        client.send(plain(acks=1))
    await some_turns()
    assert len(partition.purgatory.unsynced) == learning + 2
    served.clock.advance_ms(int(TOGETHER_SECONDS * 1000))
    client.send(plain(acks=1))
    await some_turns()
    assert len(partition.purgatory.unsynced) == learning + 3
    begin_sync(partition)()
    assert len(await client.answered(MAX_TOGETHER + 4)) == MAX_TOGETHER + 4
    served.leave()


async def test_s12_an_old_duplicate_with_acks_all_waits_for_the_replicas(served: Served, taken: list[bool]) -> None:
    """Producers treat DUPLICATE_SEQUENCE_NUMBER as success, so the batch must be replicated before the response."""
    client, partition = Client(served), served.partitions[0]
    for sequence in range(8):
        client.send(produce(bytes(sequenced(5, sequence))))
    partition.lead(1, (1, 2), (1, 2))
    Client(served).send(plain(acks=1))
    client.send(produce(bytes(sequenced(5, 0))))
    await some_turns()
    assert taken[-1]
    assert len(client.answers()) == 8, "the follower has not fetched in this leader epoch"
    partition.on_follower_fetch(2, partition.log.log_end_offset)
    error, _ = outcome((await client.answered(9))[8])
    assert error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


async def test_s12_an_old_duplicate_waits_for_the_disk(tmp_path: Path, taken: list[bool]) -> None:
    served = Served(tmp_path, flush_messages=1)
    (partition,) = served.partitions
    partition.lead(0, (1,))
    client = Client(served)
    for sequence in range(8):
        client.send(produce(bytes(sequenced(5, sequence)), acks=1))
    begin_sync(partition)()
    await client.answered(8)
    Client(served).send(plain(acks=0))
    client.send(produce(bytes(sequenced(5, 0)), acks=1))
    await some_turns()
    assert taken[-1]
    assert len(client.answers()) == 8, "the last record of the log is not on the disk"
    begin_sync(partition)()
    error, _ = outcome((await client.answered(9))[8])
    assert error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    served.leave()


async def test_a_lane_does_not_examine_a_foreign_encoding_again_and_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examination costs more than the handler, so a client with its own encoding would be slower than without
    lanes.
    """
    examined: list[object] = []

    def noted(*arguments: Any) -> Any:
        examined.append(arguments[0])
        return around_records(*arguments)

    monkeypatch.setattr(lane_of_produce, "around_records", noted)
    client = Client(served)
    body = client._frame(plain(acks=1), ApiKey.PRODUCE, 9)[4:-1] + UNKNOWN_TAG
    for _ in range(100):
        client._receive(pack(">i", len(body)) + body)
    assert served.partitions[0].log.log_end_offset == 100
    assert len(examined) < 50


def outcome(answer: tuple[int, Any]) -> tuple[int, int]:
    """Return (error code, base offset) of a response about one partition."""
    found = answer[1].responses[0].partition_responses[0]
    return found.error_code, found.base_offset


def begin_sync(partition: Partition) -> Callable[[], None]:
    """Begin a sync of the partition's records, as group commit does; return a function that ends the sync."""
    assert partition.begin_sync()
    pending = partition.log.flusher.prepare_sync()
    assert pending is not None

    def end() -> None:
        pending.sync()
        partition.log.flusher.finish_sync(pending)
        partition.on_synced()

    return end


async def some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
