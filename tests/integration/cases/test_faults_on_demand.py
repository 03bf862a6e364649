"""Tests that a fault which a test sets in a running broker strikes once, strikes only the chosen requests, and that
clients survive it.

The plugin is used in this file as in an application's tests: `oncelog_broker` is its fixture.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer as Librdkafka

from oncelog import Consumer, ConsumerGroupMetadata, Producer, TopicPartition
from oncelog_testing.application import ApplicationHistory
from oncelog_testing.broker import Broker
from oncelog_testing.control import BrokerGone, NotStruck
from oncelog_testing.history.events import End, Place
from oncelog_testing.readers import content

PATIENCE = 60.0
API_VERSIONS = bytes.fromhex("0000000b 0012 0000 00000001 0001") + b"a"
"""The bytes of a complete ApiVersions request."""


def transactional(broker: Broker, name: str) -> Librdkafka:
    """Return a transactional producer without rebootstrap, because rebootstrap would make librdkafka forget its only
    broker and close a connection.
    """
    settings = {"bootstrap.servers": str(broker), "transactional.id": name, "metadata.recovery.strategy": "none"}
    producer = Librdkafka(settings)
    producer.init_transactions(PATIENCE)
    return producer


def committed(broker: Broker, topic: str) -> list[bytes]:
    return [value for _, value in content(str(broker), [topic])[Place(topic)]]


def write(producer: Librdkafka, topic: str, value: bytes) -> None:
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.commit_transaction(PATIENCE)


@pytest.mark.parametrize(
    ("point", "what"),
    [
        ("EndTxn.answer", {"drop": True}),
        ("EndTxn.answer", {"delay": 50}),
        ("EndTxn.request", {"drop": True}),
        ("EndTxn.request", {"delay": 50}),
        ("EndTxn.request", {"refuse": "NOT_COORDINATOR"}),
        ("marker-sent", {"drop": True}),
        ("complete-logged", {"delay": 50, "after": True}),
    ],
    ids=str,
)
def test_a_transaction_survives(
    oncelog_broker: Broker,
    oncelog_topic: str,
    oncelog_history: ApplicationHistory,
    point: str,
    what: dict[str, Any],
) -> None:
    producer = transactional(oncelog_broker, oncelog_topic)
    transaction = oncelog_history.transaction("billing")
    producer.begin_transaction()
    send = oncelog_history.send("billing", oncelog_topic, b"invoice", transaction)
    with oncelog_broker.fail(point, **what) as fault:
        producer.produce(oncelog_topic, send.value)
        producer.commit_transaction(PATIENCE)
        oncelog_history.ended(transaction, End.COMMITTED)
        fault.wait(PATIENCE)
        oncelog_history.read(oncelog_topic)
        assert fault.struck == 1
    oncelog_history.check()


@pytest.mark.parametrize("point", ["Produce.answer", "Produce.request"])
@pytest.mark.parametrize("what", [{"drop": True}, {"delay": 50}], ids=str)
async def test_our_client_writes_once_though_a_produce_or_its_answer_is_lost_or_late(
    oncelog_broker: Broker, oncelog_topic: str, point: str, what: dict[str, Any]
) -> None:
    async with Producer(str(oncelog_broker)) as producer:
        with oncelog_broker.fail(point, topic=oncelog_topic, **what) as lost:
            await producer.send_and_wait(oncelog_topic, b"once")
            assert lost.struck == 1
    assert await asyncio.to_thread(committed, oncelog_broker, oncelog_topic) == [b"once"]


async def test_offsets_are_committed_though_they_are_refused_first(oncelog_broker: Broker, oncelog_topic: str) -> None:
    async with Consumer(str(oncelog_broker), group_id=oncelog_topic, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(oncelog_topic, 0)])
        refuse = "COORDINATOR_LOAD_IN_PROGRESS"
        with oncelog_broker.fail("OffsetCommit.request", refuse=refuse, group_id=oncelog_topic, times=2) as fault:
            await consumer.commit({TopicPartition(oncelog_topic, 0): 0})
            assert fault.struck == 2


def test_a_fault_is_for_whom_it_is_ordered(oncelog_broker: Broker, oncelog_topic: str) -> None:
    ours, other = transactional(oncelog_broker, f"{oncelog_topic}-1"), transactional(oncelog_broker, oncelog_topic)
    with oncelog_broker.fail("EndTxn.answer", drop=True, transactional_id=f"{oncelog_topic}-1") as fault:
        write(other, oncelog_topic, b"1")
        assert fault.struck == 0
        with pytest.raises(NotStruck, match=r"EndTxn\.answer"):
            fault.wait(0.01)
        write(ours, oncelog_topic, b"2")
        assert fault.struck == 1
    assert committed(oncelog_broker, oncelog_topic) == [b"1", b"2"]


def test_every_step_of_one_broker_is_met_by_the_filters_that_it_has(oncelog_broker: Broker, oncelog_topic: str) -> None:
    """Fail points of followers are left out, because a follower needs a second broker."""
    names = {"topic": oncelog_topic, "transactional_id": oncelog_topic, "group_id": oncelog_topic}
    faults = {}
    for name, point in oncelog_broker.points().items():
        if "." not in name and name not in ("replicate", "marker-replicated"):
            filters = {each: names[each] for each in point["filters"]}
            faults[name] = oncelog_broker.fail(name, delay=1, times=None, **filters)

    async def work() -> None:
        offsets = {TopicPartition(oncelog_topic, 0): 1}
        async with Producer(str(oncelog_broker), transactional_id=oncelog_topic) as producer, producer.transaction():
            await producer.send(oncelog_topic, b"1")
            await producer.send_offsets(offsets, ConsumerGroupMetadata(oncelog_topic, -1, "", None))

    asyncio.run(work())
    committed(oncelog_broker, oncelog_topic)
    for fault in faults.values():
        fault.wait(PATIENCE)


def test_a_broker_that_crashes_on_order_continues_where_it_was(oncelog_broker: Broker, oncelog_topic: str) -> None:
    producer = transactional(oncelog_broker, oncelog_topic)
    before = oncelog_broker.bootstrap_servers
    crash = oncelog_broker.fail("marker-sent", crash=True, topic=oncelog_topic)
    write(producer, oncelog_topic, b"decided")
    crash.wait(PATIENCE)
    assert not oncelog_broker.is_running
    with pytest.raises(BrokerGone):
        oncelog_broker.fail("EndTxn.answer", drop=True)
    oncelog_broker.restart()
    assert crash.struck == 1
    assert oncelog_broker.bootstrap_servers == before
    assert committed(oncelog_broker, oncelog_topic) == [b"decided"]


@pytest.mark.parametrize("first", ["struck", "restart", "start"])
def test_the_control_reports_a_crash_as_soon_as_clients_notice(oncelog_broker: Broker, first: str) -> None:
    """A client sees the end of its connection before the broker's parent process sees the end of the broker process."""
    for _ in range(3):
        crash = oncelog_broker.fail("ApiVersions.request", crash=True)
        with socket.create_connection(("127.0.0.1", oncelog_broker.port), 60) as client:
            client.sendall(API_VERSIONS)
            with suppress(ConnectionError):
                assert client.recv(1) == b""
        if first != "struck":
            getattr(oncelog_broker, first)()
        assert crash.struck == 1
        oncelog_broker.start()
        assert oncelog_broker.ask("GET", "/faults") == {"faults": []}


def test_a_paused_broker_answers_when_it_continues(oncelog_broker: Broker, oncelog_topic: str) -> None:
    delivered: list[object] = []
    producer = Librdkafka({"bootstrap.servers": str(oncelog_broker)})
    oncelog_broker.pause()
    producer.produce(oncelog_topic, b"1", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(0.2) == 1
    oncelog_broker.resume()
    assert producer.flush(PATIENCE) == 0
    assert delivered == [None]


def test_a_fault_knows_that_its_broker_has_ended_and_not_of_it(oncelog_broker: Broker) -> None:
    crash = oncelog_broker.fail("marker-sent", crash=True)
    drop = oncelog_broker.fail("EndTxn.answer", drop=True)
    oncelog_broker.restart()
    others = [oncelog_broker.fail("Heartbeat.answer", drop=True) for _ in range(2)]
    for fault in (crash, drop):
        # removing a fault of the ended process must not remove the fault with the same number in the new broker process
        fault.remove()
        with pytest.raises(BrokerGone, match="has ended since"):
            assert fault.struck
    assert [other.struck for other in others] == [0, 0]


def test_a_step_that_stands_still_continues_when_all_faults_are_taken_back(
    oncelog_broker: Broker, oncelog_topic: str
) -> None:
    producer = transactional(oncelog_broker, oncelog_topic)
    producer.begin_transaction()
    stands = oncelog_broker.fail("append", delay=600_000, topic=oncelog_topic)
    producer.produce(oncelog_topic, b"1")
    assert producer.flush(0.01) == 1
    stands.wait(PATIENCE)
    oncelog_broker.clear_faults()
    producer.commit_transaction(PATIENCE)
    assert committed(oncelog_broker, oncelog_topic) == [b"1"]


class TestOneAfterTheOther:
    """These tests undo their faults, so the next test finds an undisturbed broker."""

    @pytest.mark.parametrize("deed", ["kill", "pause", "stop"])
    def test_a_broker_gets_a_fault_in_one_test(self, oncelog_broker: Broker, deed: str) -> None:
        assert oncelog_broker.is_well
        oncelog_broker.fail("EndTxn.answer", drop=True, times=None)
        getattr(oncelog_broker, deed)()
        assert not oncelog_broker.is_well
        oncelog_broker.mend()
        assert oncelog_broker.ask("GET", "/faults") == {"faults": []}

    def test_a_fault_of_one_test_is_not_there_in_the_next(self, oncelog_broker: Broker) -> None:
        assert oncelog_broker.ask("GET", "/faults") == {"faults": []}


# --- the control server, over which a test sets faults


@pytest.fixture
def control(oncelog_broker: Broker) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(urlsplit(oncelog_broker.control_url).netloc, timeout=PATIENCE)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/crash", None, {}, 415),
        ("POST", "/crash", "{}", {"Content-Type": "text/plain"}, 415),
        ("POST", "/crash", None, {"Content-Type": "application/json", "Host": "evil.example"}, 403),
        ("GET", "/faults", None, {"Host": "evil.example:80"}, 403),
        ("POST", "/faults", "{", {"Content-Type": "application/json"}, 400),
        ("POST", "/faults", "[" * 60_000, {"Content-Type": "application/json"}, 400),
        ("POST", "/faults", "[]", {"Content-Type": "application/json"}, 400),
        ("POST", "/faults", None, {"Content-Type": "application/json", "Content-Length": "-1"}, 413),
        ("POST", "/faults", None, {"Content-Type": "application/json", "Content-Length": "9" * 30}, 413),
        ("POST", "/faults", None, {"Content-Type": "application/json", "Content-Length": "70000"}, 413),
        ("GET", "/faults/1000000", None, {}, 404),
        ("GET", "/faults/x", None, {}, 404),
        ("GET", "/faults/" + "9" * 5000, None, {}, 404),
        ("GET", "/../etc/passwd", None, {}, 404),
        ("DELETE", "/points", None, {}, 404),
        ("PUT", "/faults", None, {}, 501),
    ],
)
def test_requests_of_a_browser_page_or_by_mistake_do_nothing(
    oncelog_broker: Broker,
    control: http.client.HTTPConnection,
    method: str,
    path: str,
    body: str | None,
    headers: dict[str, str],
    status: int,
) -> None:
    pid = oncelog_broker.pid
    control.request(method, path, body, headers)
    answer = control.getresponse()
    assert answer.status == status
    if status != 501:
        assert json.loads(answer.read())["error"]
    assert oncelog_broker.pid == pid


def test_many_connections_to_the_control_leave_the_broker_alone(oncelog_broker: Broker, oncelog_topic: str) -> None:
    host = urlsplit(oncelog_broker.control_url).netloc
    connections = [http.client.HTTPConnection(host, timeout=PATIENCE) for _ in range(200)]
    try:
        for connection in connections:
            connection.connect()
        write(transactional(oncelog_broker, oncelog_topic), oncelog_topic, b"1")
    finally:
        for connection in connections:
            connection.close()
    deadline = time.monotonic() + PATIENCE
    while True:  # closed connections free their slots only when the control server notices that they are closed
        try:
            assert oncelog_broker.ask("GET", "/faults") == {"faults": []}
            return
        except BrokerGone:
            assert time.monotonic() < deadline
