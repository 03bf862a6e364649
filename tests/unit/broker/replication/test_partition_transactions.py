"""The last stable offset of a partition advances, and wakes the fetches that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.producers import ABORT, COMMIT, sequenced
from tests.support.storage import make_batch, open_log

from oncelog_broker.replication.partition import MARKER_SIZE, READ_COMMITTED, READ_UNCOMMITTED, Partition
from oncelog_broker.replication.purgatory import DelayedFetch
from oncelog_broker.replication.verification_guards import Guard
from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.server.records import list_offsets
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch

ACKS_ALL = -1


def leader(directory: Path) -> Partition:
    partition = Partition("orders", bytes(16), 0, open_log(directory), broker_id=1)
    partition.lead(0, (1,))
    return partition


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    made = leader(tmp_path / "orders-0")
    yield made
    made.log.close()


def produce(partition: Partition, pid: int, sequence: int, *, transactional: bool = True) -> tuple[int, int]:
    batch = sequenced(pid, sequence, transactional=transactional)
    return partition.append(memoryview(batch), required_acks=ACKS_ALL)


def plain(partition: Partition) -> None:
    partition.append(memoryview(make_batch()), required_acks=ACKS_ALL)


def end(partition: Partition, pid: int, kind: ControlType = COMMIT) -> int:
    return partition.append_marker(EndTransactionMarker(kind, 0), producer_id=pid, producer_epoch=0)


def waiting(partition: Partition, missing_bytes: int, *, read_committed: bool) -> asyncio.Future[None]:
    return DelayedFetch([partition], missing_bytes, read_committed=read_committed).enough


def test_s50_the_last_stable_offset_follows_the_high_watermark_unless_a_transaction_is_open(
    partition: Partition,
) -> None:
    plain(partition)
    assert partition.last_stable_offset == 1
    produce(partition, 1, 0)
    plain(partition)
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 3)
    assert partition.upper_bound(READ_COMMITTED) == 1
    assert partition.upper_bound(READ_UNCOMMITTED) == 3
    end(partition, 1)
    assert partition.last_stable_offset == partition.high_watermark == 4


def test_s50_a_long_transaction_hides_later_ones(partition: Partition) -> None:
    produce(partition, 1, 0)
    produce(partition, 2, 0)
    end(partition, 2)
    assert partition.last_stable_offset == 0
    end(partition, 1, ABORT)
    assert partition.last_stable_offset == 4


async def test_s50_the_last_stable_offset_is_right_after_a_restart(tmp_path: Path) -> None:
    before = leader(tmp_path / "orders-0")
    produce(before, 1, 0)
    end(before, 1)
    produce(before, 2, 0)
    plain(before)
    before.log.close()
    partition = leader(tmp_path / "orders-0")
    assert (partition.last_stable_offset, partition.high_watermark) == (2, 4)
    done = waiting(partition, 1, read_committed=True)
    plain(partition)
    assert not done.done()
    end(partition, 2)
    assert done.done()
    assert partition.last_stable_offset == 6
    partition.log.close()


async def test_e24_a_waiting_read_committed_fetch_wakes_when_the_transaction_ends(partition: Partition) -> None:
    committed = waiting(partition, 1, read_committed=True)
    uncommitted = waiting(partition, 1, read_committed=False)
    produce(partition, 1, 0)
    assert (committed.done(), uncommitted.done()) == (False, True)
    plain(partition)
    assert not committed.done()
    end(partition, 1)
    assert committed.done()


async def test_e24_a_read_committed_fetch_wakes_on_an_append_without_open_transactions(partition: Partition) -> None:
    committed = waiting(partition, 1, read_committed=True)
    plain(partition)
    assert committed.done()


async def test_e24_a_read_committed_fetch_counts_stable_bytes(partition: Partition) -> None:
    plain(partition)
    size = len(make_batch())
    committed = waiting(partition, 3 * size + MARKER_SIZE, read_committed=True)
    produce(partition, 1, 0)
    plain(partition)
    end(partition, 1)
    assert not committed.done()
    plain(partition)
    plain(partition)
    assert committed.done()


def test_e24_the_latest_offset_is_the_last_stable_offset_for_read_committed(partition: Partition) -> None:
    plain(partition)
    produce(partition, 1, 0)
    plain(partition)
    assert run_steps(list_offsets.find(partition, list_offsets.LATEST, READ_COMMITTED, 7)).offset == 1
    assert run_steps(list_offsets.find(partition, list_offsets.LATEST, READ_UNCOMMITTED, 7)).offset == 3
    assert run_steps(list_offsets.find(partition, list_offsets.MAX_TIMESTAMP, READ_COMMITTED, 7)).offset == 0
    end(partition, 1)
    assert run_steps(list_offsets.find(partition, list_offsets.LATEST, READ_COMMITTED, 7)).offset == 4


async def test_s8_a_duplicate_wakes_no_fetch(partition: Partition) -> None:
    first = produce(partition, 1, 0, transactional=False)
    done = waiting(partition, 1, read_committed=False)
    assert produce(partition, 1, 0, transactional=False) == first
    assert not done.done()
    assert partition.high_watermark == 1


def test_the_size_of_a_marker_is_known() -> None:
    assert (
        len(marker_batch(EndTransactionMarker(ABORT, 3), producer_id=1, producer_epoch=1, timestamp=1)) == MARKER_SIZE
    )


def test_e3_a_former_leader_keeps_no_guard(partition: Partition) -> None:
    """Another leader may append the marker, and the verification's response may arrive when this broker leads again."""

    def ask(guard: Guard) -> bool:
        partition.resign()
        return partition.guards.holds(guard)

    assert not partition.guards.during(1, 0, ask)
