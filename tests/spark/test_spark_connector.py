"""Tests Spark's own Kafka connector with oncelog's broker: it writes and reads, in batches and as a stream.

The connector is fetched with Maven and needs another JVM, so `make spark-tests` runs this test.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import connector_process
import pytest
from connector_process import ROWS, Work
from maven import Unavailable
from spark_connector import connector
from streams import committed, committed_values, create, produce, values

from oncelog import Producer

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

COMMITTED = 300
ABORTED = [b"aborted %d" % number for number in range(20)]


@pytest.fixture(scope="module")
def jars() -> list[str]:
    try:
        return [str(jar) for jar in connector()]
    except Unavailable as reason:
        pytest.skip(str(reason))


async def _abort(address: str, topic: str) -> None:
    async with Producer(address, transactional_id=topic) as producer:
        producer.begin_transaction()
        for value in ABORTED:
            await producer.send(topic, value, partition=0)
        await producer.flush()
        await producer.abort_transaction()


def test_the_connector_writes_and_reads(jars: list[str], address: str, topic: str, tmp_path: Path) -> None:
    """The test covers tables, patterns, headers and both isolation levels; it also combines oncelog's source with the
    connector's sink, and the connector's source with oncelog's sink.
    """
    work = Work(
        address, jars, f"{topic}-filled", f"{topic}-written", f"{topic}-streamed", f"{topic}-handed-over", str(tmp_path)
    )
    create(address, work.filled, work.written, work.streamed, work.handed_over)
    produce(address, work.filled, values(COMMITTED))
    asyncio.run(_abort(address, work.filled))
    produce(address, work.filled, values(COMMITTED, COMMITTED))
    found = connector_process.run(work)
    check(work, found)


def check(work: Work, found: Mapping[str, Any]) -> None:
    expected = values(2 * COMMITTED)
    written = committed(work.address, work.written)
    assert Counter(record.value for record in written) == Counter(b"%d" % number for number in range(ROWS))
    assert {(int(record.value) % 7, record.key) for record in written} == {(key, b"%d" % key) for key in range(7)}
    assert all(list(record.headers) == [("h", record.value)] for record in written)
    assert found["read_committed"] == sorted(value.decode() for value in expected)
    assert found["read_uncommitted"] == sorted(value.decode() for value in [*expected, *ABORTED])
    assert committed_values(work.address, work.streamed) == Counter(expected)
    if found["handed over"]:
        pytest.skip(f"its stream source is of another Spark than PySpark: {found['handed over']}")
    assert committed_values(work.address, work.handed_over) == Counter([*expected, b"turn 0", b"turn 1", b"turn 2"])
