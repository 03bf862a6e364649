"""A coordinator loads its state from the log: skipping superseded records does not change the loaded state, and the
replay never blocks the event loop.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from tests.support.counters import Counters
from tests.support.groups import state_of
from tests.support.transactions import TransactionDriver, begun

from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.records import CoordinatorRecord, encode, group_record, offset_record
from oncelog_broker.coordinator.loading import RECORDS_PER_STEP, replay_log
from oncelog_broker.coordinator.shard import Shard
from oncelog_broker.coordinator.transaction.config import TransactionConfig
from oncelog_broker.coordinator.transaction.machine import TransactionMachine
from oncelog_broker.log.validation import AppendOrigin
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.coordinator_records.consumer_offsets import GroupMetadataValue, OffsetCommitValue
from oncelog_protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, CorruptBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.control import KEY_LENGTH, ControlType, EndTransactionMarker, marker_batch
from oncelog_protocol.records.record import Record

PRODUCERS = (5, 6)


class Log:
    """Appends random records of groups and transactions, and immediately replays each record into the machine
    `expected`.
    """

    def __init__(self, internal_topic: Any, seed: int) -> None:
        internal_topic.lead()
        self.partition = internal_topic.led[0]
        self.rng = random.Random(seed)
        self.expected = machine()

    def append(self, batch: bytes | bytearray) -> int:
        base_offset, _ = self.partition.append(memoryview(batch), required_acks=-1, origin=AppendOrigin.COORDINATOR)
        return int(base_offset)

    def record(self, *, in_transaction: bool) -> CoordinatorRecord:
        rng = self.rng
        group = rng.choice(["g", "h"])
        if not in_transaction and rng.random() < 0.3:
            members = [member(f"m{number}") for number in range(rng.randint(0, 3))]
            leader = members[0].member_id if members else None
            value = GroupMetadataValue(
                protocol_type="consumer",
                generation=rng.randint(1, 9),
                protocol="range",
                leader=leader,
                current_state_timestamp=1,
                members=members,
            )
            return group_record(group, None if rng.random() < 0.2 else value)
        is_tombstone = not in_transaction and rng.random() < 0.2
        value = None if is_tombstone else OffsetCommitValue(offset=rng.randint(0, 99), metadata="", commit_timestamp=7)
        return offset_record(group, rng.choice("tu"), rng.randint(0, 1), value)

    def batch_of_records(self) -> None:
        producer_id = self.rng.choice([NO_PRODUCER_ID, NO_PRODUCER_ID, *PRODUCERS])
        in_transaction = producer_id != NO_PRODUCER_ID
        records = [self.record(in_transaction=in_transaction) for _ in range(self.rng.choice([1, 1, 2, 40]))]
        batch = build_batch(
            [Record(0, 1, *encode(each), []) for each in records],
            producer_id=producer_id,
            producer_epoch=0 if in_transaction else NO_PRODUCER_EPOCH,
            transactional=in_transaction,
        )
        for offset, record in enumerate(records, self.append(batch)):
            self.expected.replay(record, offset, producer_id)

    def marker(self) -> None:
        producer_id, commits = self.rng.choice(PRODUCERS), self.rng.random() < 0.6
        marker = EndTransactionMarker(ControlType.COMMIT if commits else ControlType.ABORT, 0)
        self.append(marker_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=1))
        self.expected.replay_end_transaction(producer_id, commits)


def member(member_id: str) -> GroupMetadataValue.MemberMetadata:
    return GroupMetadataValue.MemberMetadata(
        member_id=member_id,
        group_instance_id=None,
        client_id="c",
        client_host="/1",
        rebalance_timeout=100,
        session_timeout=100,
        subscription=b"s",
        assignment=b"a",
    )


def machine() -> GroupMachine:
    return GroupMachine(GroupConfig(), lambda: 0, lambda: "x")


def known(found: GroupMachine) -> Any:
    kept = found.offsets
    return kept._groups, kept._pending, kept._open, state_of(found)


@pytest.mark.parametrize("seed", range(40))
def test_superseded_records_within_a_chunk_make_no_difference(internal_topic, seed, monkeypatch):
    log = Log(internal_topic, seed)
    for _ in range(60):
        log.rng.choice([log.batch_of_records] * 4 + [log.marker])()
    monkeypatch.setattr("oncelog_broker.coordinator.loading.LOAD_CHUNK_BYTES", log.rng.choice([1, 500, 4000, 10**6]))
    loaded = machine()
    assert run_steps(replay_log(Shard(0, log.partition, loaded), 0, lambda: True)) == log.partition.log.log_end_offset
    assert known(loaded) == known(log.expected)


@pytest.mark.parametrize("chunk_bytes", [1, 300, 500, 800, 1200, 10**6])
def test_s42_the_age_of_a_transaction_is_its_own_wherever_a_chunk_ends(internal_topic, chunk_bytes, monkeypatch):
    """Only the first record of the second transaction is replayed, because the records between the two transactions are
    superseded.
    """
    monkeypatch.setattr("oncelog_broker.coordinator.loading.LOAD_CHUNK_BYTES", chunk_bytes)
    internal_topic.lead()
    partition, driver = internal_topic.led[0], TransactionDriver()
    for _ in range(5):
        driver.end(begun(driver))
        driver.complete()
        driver.advance(3600.0)
    begun(driver)
    for key, value in driver.log:
        batch = build_batch([Record(0, 1, key, value, [])])
        partition.append(memoryview(batch), required_acks=-1, origin=AppendOrigin.COORDINATOR)
    loaded = TransactionMachine(TransactionConfig(), driver.now_ms, lambda: driver.seconds)
    run_steps(replay_log(Shard(0, partition, loaded), 0, lambda: True))
    assert loaded.open_transactions == 1
    assert loaded.oldest_seconds() < 1, "not the age of one before it"
    assert loaded.timed_out() == []


class Decodes(Counters):
    """Counts the records that it decodes."""

    decoded = 0

    def decode(self, key, value):
        self.decoded += 1
        return super().decode(key, value)


def put(partition, *numbered: tuple[str, int | None]) -> None:
    records = [Record(0, 1, name.encode(), None if n is None else str(n).encode(), []) for name, n in numbered]
    partition.append(memoryview(build_batch(records)), required_acks=-1, origin=AppendOrigin.COORDINATOR)


def test_a_superseded_record_is_not_decoded(internal_topic):
    internal_topic.lead()
    partition = internal_topic.led[0]
    for number in range(1000):
        put(partition, ("a", number), (f"b{number % 3}", number))
    toy = Decodes(0)
    run_steps(replay_log(Shard(0, partition, toy), 0, lambda: True))
    assert toy.numbers == {"a": 999, "b0": 999, "b1": 997, "b2": 998}
    assert toy.decoded == 4


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_flipped_bit_fails_the_loading_though_the_record_can_be_decoded(internal_topic, name):
    internal_topic.lead()
    partition = internal_topic.led[0]
    put(partition, ("first", 1))
    put(partition, ("second", 1))
    change_bit(internal_topic, name.encode(), 1)
    counters = Counters(0)
    with pytest.raises(CorruptBatch, match="CRC"):
        run_steps(replay_log(Shard(0, partition, counters), 0, lambda: True))
    assert counters.numbers == {}


def test_a_flipped_bit_fails_the_loading_instead_of_turning_an_abort_into_a_commit(internal_topic):
    internal_topic.lead()
    abort = EndTransactionMarker(ControlType.ABORT, 0)
    marker = marker_batch(abort, producer_id=5, producer_epoch=0, timestamp=1)
    internal_topic.led[0].append(memoryview(marker), required_acks=-1, origin=AppendOrigin.COORDINATOR)
    change_bit(internal_topic, bytes([KEY_LENGTH]) + abort.key(), ControlType.ABORT ^ ControlType.COMMIT)
    with pytest.raises(CorruptBatch, match="CRC"):
        run_steps(replay_log(Shard(0, internal_topic.led[0], machine()), 0, lambda: True))


def change_bit(internal_topic: Any, before: bytes, bits: int) -> None:
    """Invert `bits` in the last byte of `before`, at its last position in the file of the log."""
    (path,) = (internal_topic.directory / f"{internal_topic.topic}-0").glob("*.log")
    with path.open("r+b") as log_file:
        content = log_file.read()
        position = content.rindex(before) + len(before) - 1
        log_file.seek(position)
        log_file.write(bytes([content[position] ^ bits]))


@pytest.mark.parametrize("per_batch", [1, 1000])
def test_other_work_gets_its_turn_after_some_records(internal_topic, per_batch):
    """Each record that is read counts as work, even if it is not replayed, because reading a chunk of superseded
    records takes long, too.
    """
    internal_topic.lead()
    partition = internal_topic.led[0]
    for first in range(0, 2000, per_batch):
        put(partition, *((f"n{number % 700}", number) for number in range(first, first + per_batch)))
    steps = replay_log(Shard(0, partition, Counters(0)), 0, lambda: True)
    pauses = sum(1 for _ in iter(partial(next, steps, "the end"), "the end"))
    assert pauses >= 2000 // RECORDS_PER_STEP + 700 // RECORDS_PER_STEP - 2
