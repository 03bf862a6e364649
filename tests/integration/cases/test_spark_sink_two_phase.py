"""Tests the sink's steps against a broker with two-phase commit: a driver may be down for longer than any timeout
(S123).

In tests that wait for the timeout, the tasks' transactions have a timeout of a few seconds. Another transaction, which
begins later with a longer timeout, shows when the timeout of the tasks' transactions is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator

import pytest
from broker_process import BrokerProcess
from foreign_clients import eventually
from raw_client import RawClient
from raw_transactions import RawTransactions
from spark_sink_process import TASK_TIMEOUT, TASKS, Commit, die, start_process
from test_spark_sink import Sink, batches

from oncelog import Admin
from oncelog.admin.transactions import TransactionAdmin
from oncelog.errors import ErrorCode, error_for
from oncelog_pipeline.sink.cluster import KafkaCluster
from oncelog_pipeline.sink.state import TaskMessage

TIMEOUT_MS = 6_000
ENABLED = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}


@pytest.fixture(scope="module")
def two_phase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("two-phase") / "data", ENABLED) as process:
        yield process
    assert "Traceback" not in process.log.read_text()


@pytest.fixture
async def sink(two_phase: BrokerProcess, topic: str) -> Sink:
    made = Sink(two_phase.address, topic)
    await made.create()
    return made


def wait_out(broker: BrokerProcess, topic: str) -> None:
    """Wait until every transaction that is open now and has the tasks' timeout is aborted."""
    with RawClient(broker.port) as client:
        later = RawTransactions(client, f"{topic}-later")
        later.take_over(timeout_ms=TIMEOUT_MS + 500)
        assert later.add(topic) == ErrorCode.NONE
        eventually(lambda: later.add(topic) == ErrorCode.PRODUCER_FENCED, "its producer is fenced")


async def still_open(sink: Sink, messages: list[TaskMessage]) -> list[bool]:
    """Return for each task whether its transaction is open and has no timeout."""
    ids = [message.written.transaction.transactional_id for message in messages if message.written is not None]
    async with Admin(sink.address) as admin:
        described = await admin.transactions.describe(ids)
    return [described[each].state == "Ongoing" and not described[each].has_timeout for each in ids]


async def test_s123_k14_a_decision_outlives_the_timeout(
    sink: Sink, two_phase: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TASK_TIMEOUT, str(TIMEOUT_MS))
    # start the process before the transactions begin, since its imports take seconds
    driver = start_process(sink.address, sink.topic)
    batch = sink.new_run(0)
    messages = await sink.tasks(batch)
    die(driver, Commit(batch, messages), "decided")
    await asyncio.to_thread(wait_out, two_phase, sink.topic)
    assert await still_open(sink, messages) == [True] * TASKS
    again = sink.new_run(0)
    replayed = await sink.replay(again)
    assert [message.written for message in replayed] == [None] * TASKS, "nothing was lost"
    assert await sink.seen() == batches(0)


async def test_s123_a_kept_undecided_transaction_is_swept(sink: Sink, two_phase: BrokerProcess) -> None:
    batch = sink.new_run(0)
    messages = await sink.tasks(batch)
    sink.dies(Commit(batch, messages), "decision")
    assert await still_open(sink, messages) == [True] * TASKS
    await sink.replay(sink.new_run(0))
    assert await still_open(sink, messages) == [False] * TASKS
    assert await sink.seen() == batches(0)


async def test_s123_a_kept_undecided_transaction_is_aborted_by_its_driver(sink: Sink) -> None:
    """Spark calls abort after a commit has died in a separate process."""
    batch = sink.new_run(0)
    messages = await sink.tasks(batch)
    sink.dies(Commit(batch, messages), "decision")
    await sink.abort(batch, messages)
    assert await still_open(sink, messages) == [False] * TASKS
    assert await sink.seen() == Counter()


async def test_s123_a_commit_is_repeated_for_the_same_batch(sink: Sink) -> None:
    batch = sink.new_run(0)
    messages = await sink.tasks(batch)
    sink.dies(Commit(batch, messages), "one ended")
    await sink.commit(batch, messages)
    assert await sink.seen() == batches(0)


async def test_s123_the_sink_continues_with_timeouts_without_the_right(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(*_: object) -> None:
        raise error_for(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no TwoPhaseCommit")

    monkeypatch.setattr(TransactionAdmin, "keep", refused)
    batch = sink.new_run(0)
    messages = await sink.tasks(batch)
    prepared = [message.written.transaction for message in messages if message.written is not None]
    with caplog.at_level(logging.WARNING, "oncelog_pipeline.sink.cluster"):
        async with KafkaCluster(sink.address, task_timeout_ms=TIMEOUT_MS) as cluster:
            assert await cluster.keep(prepared) == prepared
            assert await cluster.keep(prepared) == prepared
    assert [record for record in caplog.messages if "TwoPhaseCommit" in record] == caplog.messages
    assert len(caplog.messages) == 1
    await sink.commit(batch, messages)
    assert await sink.seen() == batches(0)
