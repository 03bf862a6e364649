"""If the query has no committed offset (it is new, or its offset has expired), its state is searched in the topic."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.pipeline.state_log import StateLog
from tests.support.virtual_time import run_virtually

from oncelog import TopicPartition
from oncelog_pipeline.sink.names import STATE_TOPIC, Query
from oncelog_pipeline.sink.state import State
from oncelog_pipeline.sink.state_topic import StateTopic

QUERY = Query("q")


class NoOffsets(StateLog):
    """Return a state topic. The groups of its queries have no committed offset, so each state is searched."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = self

    async def offsets(self, group: str, *, require_stable: bool) -> dict[TopicPartition, Any]:
        return {}


@pytest.fixture
def log() -> NoOffsets:
    return NoOffsets()


def states(log: Any) -> StateTopic:
    return StateTopic(log)


def test_a_query_without_a_committed_offset_finds_its_last_decision(log: NoOffsets) -> None:
    for number in (6, 7):
        log.add(QUERY.id.encode(), State("run", number).as_json())
    log.add(Query("other").id.encode(), State("run", 9).as_json())
    assert run_virtually(states(log).read(QUERY)) == State("run", 7)


def test_a_decision_that_is_written_between_two_reads_is_found(log: NoOffsets) -> None:
    """The second read begins where the first one has ended."""

    async def play() -> list[State | None]:
        topic = states(log)
        found = [await topic.read(QUERY)]
        log.add(QUERY.id.encode(), State("run", 7).as_json())
        found.append(await topic.read(QUERY))
        log.add(QUERY.id.encode(), None)
        return [*found, await topic.read(QUERY)]

    assert run_virtually(play()) == [None, State("run", 7), None]


class OffsetOfRecord(NoOffsets):
    """A state topic with a committed offset for each query, at the first record."""

    async def offsets(self, group: str, *, require_stable: bool) -> dict[TopicPartition, Any]:
        return {TopicPartition(STATE_TOPIC, 0): SimpleNamespace(offset=0)}


def test_a_decision_that_a_new_leader_does_not_show_yet_is_waited_for() -> None:
    """Its high watermark may be below the record (KIP-207), though the record's offset is committed."""
    log = OffsetOfRecord()
    log.add(QUERY.id.encode(), State("run", 7).as_json())
    log.lag = 3
    assert run_virtually(states(log).read(QUERY)) == State("run", 7)


def test_the_search_goes_beyond_the_committed_offset() -> None:
    """A former leader that does not know its successor ends before the record."""
    log = OffsetOfRecord()

    async def play() -> State | None:
        reading = asyncio.ensure_future(states(log).read(QUERY))
        await asyncio.sleep(5)  # of virtual time
        log.add(QUERY.id.encode(), State("run", 7).as_json())
        return await reading

    assert run_virtually(play()) == State("run", 7)


@pytest.fixture
def hidden(log: NoOffsets) -> NoOffsets:
    """A log with a decision behind the open transaction of another query's owner."""
    log.add(Query("other").id.encode(), State("x", 1).as_json(), commits=None, producer_id=3)
    log.add(QUERY.id.encode(), State("run", 7).as_json())
    log.last_stable_offset = 0
    return log


def test_all_states_include_a_decision_behind_an_open_transaction(hidden: NoOffsets) -> None:
    """Otherwise a retry would not find the write that it repeats."""

    async def play() -> list[str]:
        topic = states(hidden)
        reading = asyncio.ensure_future(topic.all())
        await asyncio.sleep(5)  # of virtual time
        assert await topic.read(Query("new")) is None  # does not wait
        assert not reading.done()
        hidden.aborted.append((3, 0))
        hidden.last_stable_offset = hidden.end
        hidden.add(Query("later").id.encode(), State("y", 1).as_json(), commits=None, producer_id=4)  # not waited for
        return list(await reading)

    assert run_virtually(play()) == ["q"]


def test_a_transaction_that_does_not_end_is_reported(hidden: NoOffsets) -> None:
    with pytest.raises(TimeoutError, match=r"no record from offset 0 on .* oncelog txns find-hanging"):
        run_virtually(states(hidden).all())


@pytest.mark.parametrize("is_newer", [False, True])
def test_among_all_states_one_of_a_newer_release_is_skipped(
    log: NoOffsets, caplog: pytest.LogCaptureFixture, is_newer: bool
) -> None:
    """The record belongs to another query, and this release need not understand it."""
    log.add(QUERY.id.encode(), b'{"version": 99}' if is_newer else State("run", 7).as_json())
    assert list(run_virtually(states(log).all())) == ([] if is_newer else ["q"])
    assert ("query q: record skipped" in caplog.text) == is_newer
