"""The last committed records of the state topic are read once, and read again when the log may be another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.pipeline.state_log import StateLog
from tests.support.virtual_time import run_virtually

from oncelog import TopicPartition
from oncelog.errors import AuthorizationFailed, CorruptRecords
from oncelog_pipeline.sink.last_records import READ_SECONDS, LastRecords
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.uuids import ZERO_UUID


class Reader:
    def __init__(self, log: Any) -> None:
        self.records = LastRecords(log, TopicPartition("states", 0))

    async def values(self) -> dict[bytes, bytes]:
        return {key: record.value for key, record in (await self.records.read()).items()}


def read_after(log: StateLog, *changes: Callable[[], None]) -> dict[bytes, bytes]:
    """Read the log, and read it again with the same reader after each change. Return the last result."""

    async def play() -> dict[bytes, bytes]:
        reader = Reader(log)
        found = await reader.values()
        for change in changes:
            change()
            found = await reader.values()
        return found

    return run_virtually(play())


@pytest.fixture
def log() -> StateLog:
    return StateLog()


def test_the_last_record_of_a_key_counts_and_a_tombstone_removes_it(log: StateLog) -> None:
    log.add(b"a", b"1")
    log.add(b"b", b"2")
    log.add(b"a", b"3")
    log.add(b"b", None)
    assert read_after(log) == {b"a": b"3"}


def test_a_second_read_fetches_only_newer_records(log: StateLog) -> None:
    log.add(b"a", b"1")
    before = log.end

    def more() -> None:
        log.fetched.clear()
        log.add(b"b", b"2")
        log.add(b"a", None)

    assert read_after(log, more) == {b"b": b"2"}
    assert log.fetched == [before]


def test_aborted_and_open_transactions_are_left_out(log: StateLog) -> None:
    log.add(b"a", b"1")
    log.add(b"a", b"aborted", commits=False, producer_id=2)
    log.add(b"a", b"open", commits=None, producer_id=3)
    assert read_after(log) == {b"a": b"1"}


def test_an_open_record_is_found_once_it_is_committed(log: StateLog) -> None:
    log.add(b"a", b"1", commits=None)

    def commit() -> None:
        log.batches.pop()
        log.add(b"a", b"1")

    assert read_after(log) == {}
    assert read_after(log, commit) == {b"a": b"1"}


def test_a_large_log_is_read_in_several_requests(log: StateLog) -> None:
    log.batches_at_once = 1
    for number in range(5):
        log.add(b"%d" % number, b"v")
    assert len(read_after(log)) == 5
    assert len(log.fetched) == 10  # each record, and each marker


def test_another_topic_of_the_same_name_is_read_from_its_beginning(log: StateLog) -> None:
    log.add(b"a", b"1")

    def create_again() -> None:
        log.topic_id = b"2" * 16
        log.batches.clear()
        for name in (b"x", b"y"):
            log.add(name, b"2")

    assert read_after(log, create_again) == {b"x": b"2", b"y": b"2"}


def test_after_a_change_of_the_leader_the_log_is_read_from_its_beginning(log: StateLog) -> None:
    """A leader that was not in sync has lost the last records, and has others at their offsets."""
    log.add(b"a", b"1")
    log.add(b"b", b"lost")

    def elect() -> None:
        log.leader_epoch += 1
        del log.batches[2:]
        log.add(b"c", b"2")

    assert read_after(log, elect) == {b"a": b"1", b"c": b"2"}


def test_a_leader_that_was_just_elected_is_read_once_its_high_watermark_has_caught_up(log: StateLog) -> None:
    """KIP-207: until then, the last stable offset may be below records that the previous leader has acknowledged."""
    log.add(b"a", b"1")

    def elect() -> None:
        log.leader_epoch += 1
        log.lag = 3

    assert read_after(log, elect) == {b"a": b"1"}


def test_a_read_goes_beyond_a_record_that_is_known_to_be_committed(log: StateLog) -> None:
    log.add(b"other", b"1", commits=None, producer_id=3)
    known = log.end
    log.add(b"a", b"1")
    log.last_stable_offset = 0

    async def play() -> list[bytes]:
        reader = LastRecords(log, TopicPartition("states", 0))  # type: ignore[arg-type]
        assert not await reader.read()
        reading = asyncio.ensure_future(reader.read(beyond=known))
        await asyncio.sleep(5)  # of virtual time
        log.last_stable_offset = log.end
        return list(await reading)

    assert b"a" in run_virtually(play())


def test_without_topic_ids_each_read_begins_at_the_beginning(log: StateLog) -> None:
    log.topic_id = ZERO_UUID
    log.add(b"a", b"1")

    def create_again() -> None:
        log.batches.clear()
        log.add(b"x", b"2")

    assert read_after(log, create_again) == {b"x": b"2"}


def test_a_log_whose_beginning_was_deleted_is_read_from_its_first_offset(log: StateLog) -> None:
    log.add(b"a", b"1")
    log.start = log.end
    log.batches.clear()
    log.add(b"b", b"2")
    assert read_after(log) == {b"b": b"2"}


def test_a_read_is_repeated_after_an_error_that_passes(log: StateLog) -> None:
    log.add(b"a", b"1")
    log.errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert read_after(log) == {b"a": b"1"}


def test_an_error_that_does_not_pass_is_raised(log: StateLog) -> None:
    log.errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(AuthorizationFailed):
        read_after(log)


@pytest.mark.parametrize("number", [0, 2])
def test_an_unreadable_batch_is_reported_and_not_skipped(log: StateLog, number: int) -> None:
    for key in (b"a", b"b", b"c"):
        log.add(key, b"1")
    log.batches[number][-2] ^= 0xFF

    async def play() -> float:
        reader = Reader(log)
        began = asyncio.get_running_loop().time()
        for _ in range(2):
            with pytest.raises(CorruptRecords):
                await reader.values()
        return asyncio.get_running_loop().time() - began

    assert run_virtually(play()) < 1


def test_a_read_waits_a_limited_time_for_the_next_records(log: StateLog) -> None:
    log.last_stable_offset = 1  # the record never arrives

    async def waiting() -> float:
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await Reader(log).values()
        return asyncio.get_running_loop().time() - began

    assert run_virtually(waiting()) == pytest.approx(READ_SECONDS, abs=1)
