"""Tests quotas on a live broker by measuring how much a client transfers in some time and by the broker's responses;
also tests clients without a quota.

A quota window lasts two seconds in these tests, so that the burst allowance is used up soon. A test requires only a
minimum of elapsed time, because a busy machine takes longer anyway.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from click.testing import CliRunner
from foreign_clients import TIMEOUT_SECONDS
from raw_client import CREATE_TOPICS_VERSION, RawClient, frame, produce_request
from secured_broker import ADMIN, ADMIN_PASSWORD, USER, SecuredBroker
from tests.support.storage import make_batch

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from oncelog.admin import DEFAULT, QuotaAlteration, QuotaEntity, QuotaFilter, QuotaKey
from oncelog.cli.quotas import quotas as quotas_command
from oncelog.connection.transport import BrokerConnection
from oncelog.errors import ErrorCode, KafkaError
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.fetch import FetchRequest

WINDOW_SECONDS = 2.0
SETTINGS = {"quota.window.num": "3", "quota.window.size.seconds": "1", "controller.quota.window.num": "2"}
RATE = 100_000
RECORD = b"v" * 20_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("quotas") / "data", SETTINGS) as process:
        yield process
    assert "Traceback" not in process.log.read_text()


async def alter(address: str, entity: QuotaEntity, settings: dict[str, Any] | None = None, **quotas: Any) -> None:
    async with Admin(address, **(settings or {})) as admin:
        await admin.alter_client_quotas([QuotaAlteration(entity, quotas)])


def set_quota(broker: BrokerProcess, client_id: str, **quotas: float) -> None:
    asyncio.run(alter(broker.address, QuotaEntity(client_id=client_id), **quotas))


def produce(client: RawClient, topic: str, client_id: str, value: bytes = RECORD) -> None:
    client.send(produce_request(topic, 0, make_batch(value)), ApiKey.PRODUCE, 9, client_id)


def fetch(client: RawClient, topic: str, client_id: str, session: tuple[int, int] = (0, -1)) -> Any:
    asked = FetchRequest.FetchTopic
    partition = asked.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[asked(topic=topic, partitions=[partition])],
    )
    client.send(request, ApiKey.FETCH, 12, client_id)
    return client.receive()


def record_bytes(answer: Any) -> int:
    return sum(len(partition.records or b"") for each in answer.responses for partition in each.partitions)


def ask(client: RawClient, client_id: str = "other") -> Any:
    client.send(ApiVersionsRequest(), ApiKey.API_VERSIONS, 2, client_id)
    return client.receive()


def test_a_producer_over_quota_is_answered_at_once_and_then_waits_alone(broker: BrokerProcess, topic: str) -> None:
    set_quota(broker, "slow", producer_byte_rate=10)
    with RawClient(broker.port) as slow, RawClient(broker.port) as other:
        slow.create_topic(topic)
        produce(slow, topic, "slow")
        answer = slow.receive()
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert answer.throttle_time_ms > (20_000 / 10 - WINDOW_SECONDS - TIMEOUT_SECONDS) * 1000, "half an hour"
        slow.send(ApiVersionsRequest(), ApiKey.API_VERSIONS, 2, "slow")
        for _ in range(20):
            produce(other, topic, "other")
            assert other.receive().throttle_time_ms == 0
        assert not slow.is_readable(), "nothing else of that connection is handled"
        assert ask(other, "slow").throttle_time_ms == 0, "what is not a Produce does not count"


def test_produced_bytes_keep_the_rate(broker: BrokerProcess, topic: str) -> None:
    set_quota(broker, "steady", producer_byte_rate=RATE)
    waits = []
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        began = time.monotonic()
        for _ in range(25):
            produce(client, topic, "steady")
            waits.append(client.receive().throttle_time_ms / 1000)
        seconds = time.monotonic() - began
    assert seconds >= (24 * len(RECORD)) / RATE - WINDOW_SECONDS - waits[-1] - 0.1
    first = next(number for number, wait in enumerate(waits) if wait)
    assert first >= WINDOW_SECONDS * RATE // (len(RECORD) + 200), "nobody waits who has used less than a window's worth"
    assert all(0 <= wait <= 2 * len(RECORD) / RATE for wait in waits), "each waits for what it was too much"
    assert sum(waits) >= 25 * len(RECORD) / RATE - WINDOW_SECONDS - seconds


@pytest.mark.parametrize("at_once", [1, 8])
def test_s95_a_connection_for_each_request_keeps_the_rate(broker: BrokerProcess, topic: str, at_once: int) -> None:
    """If a client closes its connection before the throttle time is over, its next connection must wait."""
    client_id = f"{topic}-fleeting"
    set_quota(broker, client_id, producer_byte_rate=RATE)
    with RawClient(broker.port) as client:
        client.create_topic(topic)
    enough = int(3 * WINDOW_SECONDS * RATE / len(RECORD))
    sent = itertools.count()

    def work() -> None:
        while next(sent) < enough:
            with RawClient(broker.port) as client:
                produce(client, topic, client_id)
                assert client.receive().responses[0].partition_responses[0].error_code == ErrorCode.NONE

    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(work) for _ in range(at_once)]:
            done.result(TIMEOUT_SECONDS)
    seconds = time.monotonic() - began
    assert seconds >= (enough - 1) * len(RECORD) / RATE - WINDOW_SECONDS - 0.1, "the rate, after what a pause has left"


def test_a_consumer_over_quota_gets_no_records_until_the_debt_is_paid(broker: BrokerProcess, topic: str) -> None:
    set_quota(broker, "reader", consumer_byte_rate=1000)
    with RawClient(broker.port) as client, RawClient(broker.port) as second:
        client.create_topic(topic)
        for _ in range(5):
            produce(client, topic, "other")
            client.receive()
        made = fetch(client, topic, "reader", (0, 0))
        assert len(RECORD) < record_bytes(made) < 2 * len(RECORD), "a window's worth, but one batch at least"
        assert made.throttle_time_ms > (20_000 / 1000 - WINDOW_SECONDS - 5) * 1000
        empty = fetch(second, topic, "reader", (made.session_id, 1))
        assert (empty.error_code, empty.session_id, record_bytes(empty)) == (0, made.session_id, 0)
        assert empty.throttle_time_ms > 0
        with RawClient(broker.port) as third:
            nothing = fetch(third, topic, "reader")
            assert (nothing.error_code, nothing.session_id, nothing.responses) == (0, 0, [])
        with RawClient(broker.port) as fourth:
            assert record_bytes(fetch(fourth, topic, "other")) > 4 * len(RECORD)
            wrong = fetch(fourth, topic, "reader", (made.session_id, 1))
            assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH, "the session went on"


def test_the_processors_time_is_waited_for_a_second_at_most(broker: BrokerProcess) -> None:
    set_quota(broker, "costly", request_percentage=0.0001)
    with RawClient(broker.port) as client:
        answers = [ask(client, "costly"), ask(client, "costly")]
    assert [answer.throttle_time_ms for answer in answers][-1] == 1000


async def test_too_many_topic_changes_are_refused_or_delayed(broker: BrokerProcess, topic: str) -> None:
    await alter(broker.address, QuotaEntity(client_id="changer"), controller_mutation_rate=0.1)
    async with Admin(broker.address, client_id="changer") as admin:
        with pytest.raises(KafkaError):
            await admin.create_topics([NewTopic("no/name", 100)])
        await admin.create_topics([NewTopic(f"{topic}-0", 3)], validate_only=True)
        await admin.create_topics([NewTopic(f"{topic}-1", 3)])
    changes: list[Callable[[Admin], Awaitable[object]]] = [
        lambda admin: admin.create_topics([NewTopic(f"{topic}-2", 3)]),
        lambda admin: admin.create_partitions({f"{topic}-1": 5}),
        lambda admin: admin.delete_topics([f"{topic}-1"]),
    ]
    for change in changes:
        # open a new connection, because the broker throttles the connection that it has refused
        async with Admin(broker.address, client_id="changer") as admin:
            with pytest.raises(KafkaError) as raised:
                await change(admin)
            assert raised.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    async with Admin(broker.address, client_id="other") as admin:
        assert f"{topic}-2" not in await admin.list_topics()
    wanted = CreateTopicsRequest.CreatableTopic(
        name=f"{topic}-3", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    with RawClient(broker.port) as client:
        client.send(CreateTopicsRequest(topics=[wanted]), ApiKey.CREATE_TOPICS, 5, "changer")
        answer = client.receive()
    assert answer.topics[0].error_code == ErrorCode.NONE, "this version does not know the error"
    assert answer.throttle_time_ms > 10_000


async def test_quotas_that_were_set_are_described(broker: BrokerProcess) -> None:
    entities = [
        QuotaEntity("a~ é/", "c"), QuotaEntity("a~ é/"), QuotaEntity(DEFAULT, "c"), QuotaEntity(ip="10.0.0.9"),
    ]  # fmt: skip
    async with Admin(broker.address) as admin:
        quotas: dict[QuotaKey | str, float | None] = {QuotaKey.CONSUMER_BYTE_RATE: 5e6, "request_percentage": 12.5}
        of_address: dict[QuotaKey | str, float | None] = {QuotaKey.CONNECTION_CREATION_RATE: 7}
        await admin.alter_client_quotas(
            [QuotaAlteration(entity, of_address if entity.ip else quotas) for entity in entities]
        )
        found = await admin.describe_client_quotas(QuotaFilter(user="a~ é/"))
        assert found == {entities[0]: quotas, entities[1]: quotas}
        assert list(await admin.describe_client_quotas(QuotaFilter("a~ é/", is_strict=True))) == [entities[1]]
        assert list(await admin.describe_client_quotas(QuotaFilter(DEFAULT, "c"))) == [entities[2]]
        for spelled in ("10.0.0.9", "::ffff:10.0.0.9", "0:0:0:0:0:FFFF:A00:9"):
            assert await admin.describe_client_quotas(QuotaFilter(ip=spelled)) == {entities[3]: of_address}
        assert await admin.describe_client_quotas(QuotaFilter(ip="10.0.0")) == {}
        for entity, key, value in (
            (entities[0], "producer_byte_rate", -1.0),
            (entities[0], "producer_byte_rate", 1.5),
            (entities[0], "request_percentage", float("nan")),
            (entities[0], "connection_creation_rate", 1.0),
            (entities[0], "SCRAM-SHA-256", 1.0),
            (entities[3], "producer_byte_rate", 1.0),
            (QuotaEntity(ip="localhost"), "connection_creation_rate", 1.0),
            (QuotaEntity("a", None, "10.0.0.9"), "connection_creation_rate", 1.0),
            (QuotaEntity(""), "producer_byte_rate", 1.0),
            (QuotaEntity("x" * 257), "producer_byte_rate", 1.0),
            (QuotaEntity(), "producer_byte_rate", 1.0),
        ):
            with pytest.raises(KafkaError) as raised:
                await admin.alter_client_quotas([QuotaAlteration(entity, {key: value})])
            assert raised.value.code is ErrorCode.INVALID_REQUEST, (entity, key, value)
        await admin.alter_client_quotas(
            [QuotaAlteration(entity, dict.fromkeys((*quotas, *of_address))) for entity in entities]
        )
        assert not (await admin.describe_client_quotas()).keys() & set(entities)


def test_librdkafka_obeys_the_throttle_time_and_keeps_the_rate(broker: BrokerProcess, topic: str) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    set_quota(broker, "confluent", producer_byte_rate=RATE)
    events: list[Any] = []
    delivered: list[Any] = []
    producer = confluent.Producer(
        {
            "bootstrap.servers": broker.address,
            "client.id": "confluent",
            "throttle_cb": events.append,
            "batch.num.messages": 1,
            "max.in.flight": 1,
        }
    )
    told: list[int] = []
    began, written = time.monotonic(), 0
    while not told:  # on a busy machine 25 records may be written so slowly that the client is not throttled
        assert time.monotonic() < began + TIMEOUT_SECONDS
        for _ in range(25):
            producer.produce(topic, RECORD, on_delivery=lambda error, _: delivered.append(error))
        written += 25
        assert producer.flush(TIMEOUT_SECONDS) == 0
        producer.poll(0)
        told = [event.throttle_time for event in events if event.throttle_time > 0]
    seconds = time.monotonic() - began
    assert delivered == [None] * written
    assert max(told) <= 1000 * 2 * len(RECORD) / RATE, "milliseconds"
    assert seconds >= (written - 1) * len(RECORD) / RATE - WINDOW_SECONDS - 0.3


async def test_users_have_quotas_of_their_own_and_our_client_waits(
    tmp_path: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test records the broker's responses to oncelog's clients: the user alice has a quota, and the administrator
    has none.
    """
    told: dict[str, list[float]] = {"alice": [], "admin": []}
    throttle = BrokerConnection._throttle

    def noted(connection: BrokerConnection, seconds: float) -> None:
        told[str(connection._protocol._client_id)].append(seconds)
        throttle(connection, seconds)

    monkeypatch.setattr(BrokerConnection, "_throttle", noted)
    with SecuredBroker(tmp_path, SETTINGS) as secured:
        listener = "SASL_PLAINTEXT"
        address = secured.address(listener)
        alice = secured.settings(listener, "SCRAM-SHA-256") | {"client_id": "alice"}
        admin = secured.settings(listener, "SCRAM-SHA-256", ADMIN, ADMIN_PASSWORD) | {"client_id": "admin"}
        await alter(address, QuotaEntity(USER), admin, producer_byte_rate=RATE, consumer_byte_rate=RATE)

        async def write(settings: dict[str, Any], is_enough: Callable[[int], bool]) -> float:
            """Write records, and return how many seconds longer the writes took than the quota requires; negative if
            they were faster.
            """
            async with Producer(address, **settings, batch_size=1) as producer:
                began, written = time.monotonic(), 0
                while not is_enough(written):
                    await (await producer.send(topic, RECORD))
                    written += 1
                return time.monotonic() - began - (written - 1) * len(RECORD) / RATE

        async with asyncio.timeout(2 * TIMEOUT_SECONDS):
            seconds, _ = await asyncio.gather(
                # On a busy machine even sixteen records may be written so slowly that the client is not throttled.
                write(alice, lambda written: written >= 16 and bool(told["alice"])),
                write(admin, lambda written: written >= 16),
            )
            assert seconds >= -WINDOW_SECONDS - 0.3
            assert max(told["alice"]) <= 2 * len(RECORD) / RATE
            told["alice"].clear()
            received = 0
            async with Consumer(address, **alice, auto_offset_reset="earliest", group_id="g") as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                began = time.monotonic()
                async for record in consumer:
                    received += len(record.value or b"")
                    if received >= 16 * len(RECORD):
                        break
                assert time.monotonic() - began >= received / RATE - 2 * WINDOW_SECONDS - 0.3
        assert told["alice"]
        assert told["admin"] == []
        # alice can log in: her SCRAM credentials are stored with her quotas
        async with Admin(address, **alice) as other:
            assert QuotaEntity(USER) in await other.describe_client_quotas()


def test_the_command_sets_lists_and_removes(broker: BrokerProcess) -> None:
    def quotas(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "oncelog"), "quotas", *arguments, "-b", broker.address]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)

    of_bob = ("--user", "bob", "--client-id-default")
    assert quotas("set", *of_bob, "--producer-byte-rate", "5e6", "--request-percentage", "12.5").returncode == 0
    listed = json.loads(quotas("list", "--user", "bob", "--output", "json").stdout)
    assert [tuple(row.values()) for row in listed] == [
        ("bob", "<default>", "", "producer_byte_rate", 5e6),
        ("bob", "<default>", "", "request_percentage", 12.5),
    ]
    assert quotas("remove", *of_bob, "request-percentage").returncode == 0
    assert len(json.loads(quotas("list", "--user", "bob", "--output", "json").stdout)) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["remove"], "name the entity"),
        (["set", "--user", "a", "--ip", "::1", "--request-percentage", "1"], "quotas of its own"),
        (["set", "--user", "a", "--user-default", "--request-percentage", "1"], "exclude each other"),
        (["set", "--user", "a"], "say which quota"),
    ],
)
def test_the_quota_command_names_missing_options(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(quotas_command, [*arguments, "-b", "localhost:1"])
    assert result.exit_code == 2
    assert said in result.output


def test_connections_that_come_too_fast_wait_to_be_accepted_and_brokers_do_not(tmp_path: Any) -> None:
    settings = {
        **SETTINGS,
        "listeners": "OUT://127.0.0.1:0,IN://127.0.0.1:0",
        "listener.security.protocol.map": "OUT:PLAINTEXT,IN:PLAINTEXT",
        "inter.broker.listener.name": "IN",
        "listener.name.out.max.connection.creation.rate": "5",
    }
    with BrokerProcess(tmp_path / "data", settings) as process:
        out, inside = map(int, re.findall(r"127\.0\.0\.1:(\d+)", process.start_line)[:2])
        began = time.monotonic()
        clients = [RawClient(out) for _ in range(20)]
        try:
            for client in clients:
                client.send(ApiVersionsRequest(), ApiKey.API_VERSIONS, 2, "crowd")
            with RawClient(inside) as other:
                for _ in range(20):
                    assert ask(other).error_code == ErrorCode.NONE
            assert [client.receive().error_code for client in clients] == [ErrorCode.NONE] * 20
        finally:
            for client in clients:
                client.socket.close()
        assert time.monotonic() - began >= (20 - 1 - WINDOW_SECONDS * 5) / 5 - 0.1


def test_an_address_that_connects_too_often_is_turned_away(broker: BrokerProcess) -> None:
    """Clients at other addresses of this machine count as other clients."""

    def answered(source: str) -> bool:
        with closing(
            socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_SECONDS, source_address=(source, 0))
        ) as connection:
            try:
                connection.sendall(b"\0\0\0\x0b\0\x12\0\0\0\0\0\x01\0\x01x")
                return bool(connection.recv(4))
            except ConnectionError:
                return False

    asyncio.run(alter(broker.address, QuotaEntity(ip="127.0.0.7"), connection_creation_rate=1))
    assert [answered("127.0.0.7") for _ in range(3)] == [True] * 3, "a window's worth, and one"
    outcomes = [answered("127.0.0.7") for _ in range(2)]
    assert answered("127.0.0.8")
    assert outcomes[0] is False


def test_a_refused_connection_causes_no_work(broker: BrokerProcess) -> None:
    """A request on a refused connection gets no response, so its client would not know whether the request took
    effect.
    """
    address = "127.0.0.9"
    wanted = CreateTopicsRequest.CreatableTopic(
        name="turned-away", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = frame(CreateTopicsRequest(topics=[wanted]), ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)

    def connected() -> socket.socket:
        return socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_SECONDS, source_address=(address, 0))

    async def topics() -> list[str]:
        async with Admin(broker.address) as admin:
            return await admin.list_topics()

    asyncio.run(alter(broker.address, QuotaEntity(ip=address), connection_creation_rate=1))
    with ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(connected())
        turned_away = opened.enter_context(connected())
        turned_away.sendall(request)
        with suppress(ConnectionError):
            assert turned_away.recv(4) == b""
    assert "turned-away" not in asyncio.run(topics())
