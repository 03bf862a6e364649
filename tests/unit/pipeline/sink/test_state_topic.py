"""If the committed offset of a query's state has expired, the search for the state reads the entire state topic. The
search uses a client with the same settings as the query's other clients.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.virtual_time import run_virtually

from oncelog import ConsumerRecord, TopicPartition
from oncelog_pipeline.sink import state_topic
from oncelog_pipeline.sink.cluster import KafkaCluster
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.state import State

QUERY = Query("q")
SETTINGS = {"request_timeout_ms": 1234, "client_id": "mine"}


class OneRecord:
    """Replaces a consumer: the topic has one record; with `is_hanging`, no record ever arrives."""

    is_hanging = False
    value = State("run", 7).as_json()

    def __init__(self, _servers: str, **options: Any) -> None:
        self.options = options
        made.append(self)
        self._at = 0

    async def __aenter__(self) -> OneRecord:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def assign(self, partitions: list[TopicPartition]) -> None:
        (self._partition,) = partitions

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 1)

    async def position(self, _: TopicPartition) -> int:
        return self._at

    async def poll(self, timeout_ms: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        if self.is_hanging:
            await asyncio.sleep(timeout_ms / 1000)
            return {}
        self._at = 1
        return {self._partition: [ConsumerRecord(*self._partition, 0, 0, 0, QUERY.id.encode(), self.value, [], 0)]}


made: list[OneRecord] = []


@pytest.fixture(autouse=True)
def without_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    made.clear()
    monkeypatch.setattr(state_topic, "Consumer", OneRecord)


async def read() -> State | None:
    cluster = KafkaCluster("localhost:1", task_timeout_ms=1000, settings=SETTINGS)

    async def expired(*_: object, **__: object) -> dict[TopicPartition, int]:
        return {}

    cluster._admin.groups.offsets = expired  # type: ignore[method-assign,assignment]
    return await cluster.read_state(QUERY)


def test_the_client_that_reads_the_state_topic_has_the_common_settings() -> None:
    found = run_virtually(read())
    assert found == State("run", 7)
    (consumer,) = made
    assert SETTINGS.items() <= consumer.options.items()


@pytest.mark.parametrize("is_newer", [False, True])
def test_among_all_states_one_of_a_newer_release_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_newer: bool
) -> None:
    """The record belongs to another query, and this release need not understand it."""
    if is_newer:
        monkeypatch.setattr(OneRecord, "value", b'{"version": 99}')

    async def names() -> list[str]:
        return list(await KafkaCluster("localhost:1", task_timeout_ms=1000).states_by_name())

    assert run_virtually(names()) == ([] if is_newer else ["q"])
    assert ("query q: record skipped" in caplog.text) == is_newer


def test_reading_the_state_topic_has_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneRecord, "is_hanging", True)

    async def waiting() -> float:
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(), 3600)
        return asyncio.get_running_loop().time() - began

    assert run_virtually(waiting()) == pytest.approx(state_topic.READ_SECONDS, abs=1)
