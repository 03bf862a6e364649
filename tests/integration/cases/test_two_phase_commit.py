"""Tests two-phase commit against live brokers: transactions are prepared, the broker or the application is killed at
every step, and each transaction is committed or aborted once (S120-S122).

`two_phase` is a broker with two-phase commit, on which transactions that have a timeout end after a moment.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerFactory, BrokerProcess
from committed_reader import committed_values
from examples import two_phase_database
from foreign_clients import eventually
from raw_client import RawClient
from raw_transactions import RawTransactions, content, is_stable
from test_examples import Example
from warm_commands import run_oncelog_text

from oncelog import Admin, PreparedTransaction, Producer
from oncelog.errors import FatalError, KafkaError, ProducerFenced, UnsupportedVersion
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch

ENABLED = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
SHORT_TIMEOUT_MS = 300


@pytest.fixture(scope="module")
def two_phase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("two-phase") / "data", ENABLED) as process:
        yield process
    assert "Traceback" not in process.log.read_text()


@pytest.fixture
def client(two_phase: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(two_phase.port) as client:
        yield client


def init(client: RawClient, transactional_id: str, **fields: object) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
    for name, value in fields.items():
        setattr(request, name, value)
    answer: InitProducerIdResponse = client.call(request, ApiKey.INIT_PRODUCER_ID, 6)
    return answer


def kept(client: RawClient, transactional_id: str) -> tuple[ProducerIdAndEpoch, ProducerIdAndEpoch]:
    """Initialise a new producer that owns the transactional id and keeps the prepared transaction; return the new
    producer's id and epoch, and those of the kept transaction.
    """
    answer = init(client, transactional_id, enable2_pc=True, keep_prepared_txn=True)
    assert answer.error_code == ErrorCode.NONE, answer
    return (
        ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch),
        ProducerIdAndEpoch(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch),
    )


async def prepared_one(address: str, name: str, *values: bytes) -> PreparedTransaction:
    """Return a prepared transaction whose producer has ended without completing it, as after a kill -9."""
    async with Producer(address, transactional_id=name, two_phase_commit=True) as producer:
        producer.begin_transaction()
        for value in values or (b"v",):
            await producer.send(name, value, partition=0)
        prepared = await producer.prepare_transaction()
    assert prepared is not None
    return prepared


async def complete(address: str, name: str, stored: PreparedTransaction | None) -> bool | None:
    async with Producer(address, transactional_id=name, two_phase_commit=True) as producer:
        return await producer.complete_transaction(stored)


# --- support in ApiVersions


def highest_init(client: RawClient) -> int:
    answer = client.call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
    return next(each.max_version for each in answer.api_keys if each.api_key == ApiKey.INIT_PRODUCER_ID)


def test_s120_two_phase_commit_is_offered_only_with_the_setting(
    broker: BrokerProcess, raw: RawClient, client: RawClient, topic: str
) -> None:
    assert (highest_init(raw), highest_init(client)) == (5, 6)
    with pytest.raises((EOFError, ConnectionError)):
        init(raw, topic)  # the broker responds in the same way as for any version that it does not support

    async def ask() -> None:
        async with Producer(broker.address, transactional_id=topic, two_phase_commit=True):
            pass

    with pytest.raises(UnsupportedVersion, match=r"set transaction\.two\.phase\.commit\.enable=true"):
        asyncio.run(ask())


# --- no timeout


def test_s120_only_transactions_with_a_timeout_are_aborted(
    two_phase: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    client.create_topic(f"{topic}-timed")
    prepared = asyncio.run(prepared_one(two_phase.address, topic))
    timed = RawTransactions(client, f"{topic}-timed")
    timed.take_over(timeout_ms=SHORT_TIMEOUT_MS)
    timed.write(f"{topic}-timed")
    eventually(lambda: is_stable(client, f"{topic}-timed"), "a younger transaction has timed out")
    assert not is_stable(client, topic)
    assert asyncio.run(complete(two_phase.address, topic, prepared)) is True
    eventually(lambda: is_stable(client, topic), "the markers are written")
    assert content(client, topic) == ["data", "commit"]
    assert asyncio.run(complete(two_phase.address, topic, prepared)) is None


def test_s121_a_transaction_kept_by_an_admin_does_not_time_out(
    two_phase: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    client.create_topic(f"{topic}-timed")

    async def keep_and_wait() -> None:
        async with Producer(two_phase.address, transactional_id=topic, transaction_timeout_ms=2000) as producer:
            producer.begin_transaction()
            await producer.send(topic, b"v", partition=0)
            prepared = await producer.prepare_transaction()
        assert prepared is not None
        async with Admin(two_phase.address) as admin:
            owned = await admin.transactions.keep(prepared)
            assert owned is not None
            later = RawTransactions(client, f"{topic}-timed")
            later.take_over(timeout_ms=2500)
            later.write(f"{topic}-timed")
            eventually(lambda: is_stable(client, f"{topic}-timed"), "a later transaction with a longer timeout is over")
            with pytest.raises(ProducerFenced, match="is open, and another process has taken it over"):
                await admin.transactions.end(prepared, commits=True)
            assert await admin.transactions.end(owned, commits=True)

    asyncio.run(keep_and_wait())
    assert committed_values(client, topic) == [b"v"]


# --- the new owner ends the transaction


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_s120_the_last_owner_ends_the_transaction_and_earlier_ones_are_fenced(
    client: RawClient, topic: str, commits: bool
) -> None:
    client.create_topic(topic)
    txn = RawTransactions(client, topic, is_v2=True)
    _, nothing = kept(client, topic)
    assert nothing == (-1, -1)
    wrote = txn.take_over(version=6)
    txn.write(topic)
    owners = []
    for _ in range(3):
        owner, found = kept(client, topic)
        assert found == wrote
        owners.append(owner)
    for zombie in (wrote, *owners[:-1]):
        assert txn.end(commits, asking=zombie) == ErrorCode.PRODUCER_FENCED
        assert txn.end(not commits, asking=zombie) == ErrorCode.PRODUCER_FENCED
    assert content(client, topic) == ["data"]
    assert txn.end(commits, asking=owners[-1]) == ErrorCode.NONE
    assert txn.producer == owners[-1]._replace(epoch=owners[-1].epoch + 1)
    eventually(lambda: is_stable(client, topic), "the markers are written")
    txn.write(topic)  # the partition accepts the new owner's next records
    assert txn.end() == ErrorCode.NONE
    eventually(lambda: is_stable(client, topic), "the markers are written")
    assert content(client, topic) == ["data", "commit" if commits else "abort", "data", "commit"]


def test_s120_a_zombie_adds_nothing_and_the_owner_neither(client: RawClient, topic: str) -> None:
    client.create_topic(topic, 2)
    txn = RawTransactions(client, topic, is_v2=True)
    wrote = txn.take_over()
    txn.write(topic, 0)
    owner, _ = kept(client, topic)
    assert txn.produce(topic, 1, asking=wrote, sequence=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    for partition in (0, 1):
        assert txn.produce(topic, partition, asking=owner, sequence=0) == ErrorCode.INVALID_TXN_STATE
    assert txn.end(asking=owner) == ErrorCode.NONE
    eventually(lambda: is_stable(client, topic), "the markers are written")
    assert (content(client, topic, 0), content(client, topic, 1)) == (["data", "commit"], [])


def test_s121_one_of_many_simultaneous_starts_completes_the_transaction(
    two_phase: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    prepared = asyncio.run(prepared_one(two_phase.address, topic))

    async def contend() -> list[object]:
        return await asyncio.gather(
            *(complete(two_phase.address, topic, prepared) for _ in range(6)), return_exceptions=True
        )

    outcomes = asyncio.run(contend())
    assert outcomes.count(True) <= 1
    assert all(each in (True, None) or isinstance(each, FatalError) for each in outcomes), outcomes
    # one more call completes the transaction if every concurrent owner was fenced
    assert asyncio.run(complete(two_phase.address, topic, prepared)) in (True, None)
    eventually(lambda: is_stable(client, topic), "the markers are written")
    assert content(client, topic) == ["data", "commit"]


def test_s121_an_operator_ends_a_prepared_transaction_by_hand(
    two_phase: BrokerProcess, client: RawClient, topic: str
) -> None:
    names = [f"{topic}-commit", f"{topic}-abort"]

    async def by_hand() -> None:
        for name in names:
            client.create_topic(name)
            await prepared_one(two_phase.address, name)
        async with Admin(two_phase.address) as admin:
            described = await admin.transactions.describe(names)
            assert not any(each.has_timeout for each in described.values())
            assert await admin.transactions.find_hanging() == []
            await admin.transactions.commit(names[0])
            await admin.transactions.fence([names[1]])
            with pytest.raises(KafkaError, match="no open transaction"):
                await admin.transactions.commit(names[1])

    asyncio.run(by_hand())
    for name, end in zip(names, ("commit", "abort"), strict=True):
        eventually(lambda: is_stable(client, name), "the markers are written")  # noqa: B023
        assert content(client, name) == ["data", end]


def test_s121_commands_show_a_prepared_transaction_and_ask_before_they_end_it(
    two_phase: BrokerProcess, client: RawClient, topic: str
) -> None:
    names = [f"{topic}-commit", f"{topic}-abort"]
    for name in names:
        client.create_topic(name)
        asyncio.run(prepared_one(two_phase.address, name))
    timed = RawTransactions(client, f"{topic}-timed")
    timed.take_over()
    client.create_topic(topic)
    assert timed.add(topic) == ErrorCode.NONE

    def oncelog(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_oncelog_text("txns", *arguments, "--bootstrap-server", two_phase.address)
        assert done.returncode == code, done.stderr
        return done

    listed = json.loads(oncelog("list", "--transactional-id-pattern", f"{topic}-.*", "--output", "json").stdout)
    assert {each["transactional_id"]: each["timeout_ms"] for each in listed} == {
        names[0]: "none",
        names[1]: "none",
        timed.transactional_id: 60_000,
    }
    assert all(each["duration_ms"] >= 0 for each in listed)
    for command, name in (("commit", names[0]), ("fence", names[1])):
        assert "Standard input is not a terminal: use --yes" in oncelog(command, name, code=1).stderr
    assert [content(client, name) for name in names] == [["data"], ["data"]]
    assert oncelog("commit", names[0], "--yes").stderr == f"committed {names[0]}\n"
    assert oncelog("fence", names[1], "--yes").stderr == f"fenced {names[1]}\n"
    assert oncelog("fence", timed.transactional_id).stderr == f"fenced {timed.transactional_id}\n"
    assert "has no open transaction" in oncelog("commit", names[0], "--yes", code=1).stderr
    for name, end in zip(names, ("commit", "abort"), strict=True):
        eventually(lambda: is_stable(client, name), "the markers are written")  # noqa: B023
        assert content(client, name) == ["data", end]


# --- kill -9 of the broker


BROKER_DIES = [
    pytest.param("", id="while-prepared"),
    pytest.param("prepare-logged = before crash", id="before-the-decision"),
    pytest.param("prepare-logged = after crash", id="after-the-decision"),
    pytest.param("reply-sent = after crash", id="after-the-answer"),
    pytest.param("marker-sent@2 = crash", id="between-two-markers"),
    pytest.param("complete-logged = before crash", id="before-complete"),
    pytest.param("complete-logged = after crash", id="after-complete"),
]


@pytest.mark.parametrize("fail_points", BROKER_DIES)
def test_s120_s44_the_coordinator_dies_in_each_state(
    broker_factory: BrokerFactory, topic: str, fail_points: str
) -> None:
    """The coordinator is killed while the transaction is prepared, while a new owner takes over, and at `fail_points`
    of the commit: the transaction is committed once.
    """
    broker = broker_factory(ENABLED).start()

    async def prepare() -> PreparedTransaction:
        async with Producer(broker.address, transactional_id=topic, two_phase_commit=True) as producer:
            producer.begin_transaction()
            for partition in range(3):
                await producer.send(topic, b"v", partition=partition)
            prepared = await producer.prepare_transaction()
            assert prepared is not None
            return prepared

    with RawClient(broker.port) as client:
        client.create_topic(topic, 3)
    prepared = asyncio.run(prepare())
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        txn = RawTransactions(client, topic)
        eventually(lambda: kept_by(client, topic) == prepared.producer, "it is kept after a restart")
    broker.kill()
    broker.start(fail_points)

    async def complete_again_and_again() -> None:
        async with Producer(broker.address, transactional_id=topic, two_phase_commit=True) as producer:
            completing = asyncio.create_task(producer.complete_transaction(prepared))
            if fail_points:
                await asyncio.to_thread(broker.wait_killed)
                await asyncio.to_thread(broker.start)
            assert await completing is True
            async with producer.transaction():
                await producer.send(topic, b"next", partition=0)

    asyncio.run(complete_again_and_again())
    with RawClient(broker.port) as client:
        txn.client = client
        eventually(lambda: all(is_stable(client, topic, each) for each in range(3)), "the markers are written")
        assert [content(client, topic, each) for each in range(3)] == [
            ["data", "commit", "data", "commit"],
            ["data", "commit"],
            ["data", "commit"],
        ]
        assert txn.end(False, asking=prepared.producer, version=5) == ErrorCode.PRODUCER_FENCED


def kept_by(client: RawClient, topic: str) -> ProducerIdAndEpoch | None:
    """Return the producer id and epoch of the records in the open transaction; None while the coordinator loads."""
    answer = init(client, topic, enable2_pc=True, keep_prepared_txn=True)
    if answer.error_code:
        return None
    return ProducerIdAndEpoch(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)


# --- kill -9 of the application


@pytest.mark.parametrize("step", two_phase_database.STEPS)
def test_s122_database_and_topic_agree_though_the_application_is_killed(
    two_phase: BrokerProcess, client: RawClient, topic: str, tmp_path: Path, step: str
) -> None:
    client.create_topic(topic)
    path = tmp_path / "bank.db"
    arguments = ("--database", path, "--topic", topic, "--book", 10)
    for crashes in (step, step, step):
        crashed = Example(two_phase, "two_phase_database", *arguments, "--crash-after", crashes)
        assert crashed.ends() == -signal.SIGKILL, crashed.output
    Example(two_phase, "two_phase_database", *arguments).succeeds()
    database = two_phase_database.open_database(str(path))
    booked = [b"%d" % amount for (amount,) in database.execute("SELECT amount FROM bookings ORDER BY id")]
    decided = two_phase_database.STEPS.index(step) >= two_phase_database.STEPS.index("decided")
    assert len(booked) == 10 + 3 * two_phase_database.BOOKINGS_PER_TRANSACTION * decided
    eventually(lambda: is_stable(client, topic), "the markers are written")
    assert committed_values(client, topic) == booked


def test_s122_database_and_topic_agree_though_both_are_killed(
    broker_factory: BrokerFactory, topic: str, tmp_path: Path
) -> None:
    broker = broker_factory(ENABLED).start()
    path = tmp_path / "bank.db"
    arguments = ("--database", path, "--topic", topic, "--book", 10)
    for step in ("prepared", "decided"):
        crashed = Example(broker, "two_phase_database", *arguments, "--crash-after", step)
        assert crashed.ends() == -signal.SIGKILL, crashed.output
        broker.kill()
        broker.start()
    Example(broker, "two_phase_database", *arguments).succeeds()
    database = two_phase_database.open_database(str(path))
    booked = [b"%d" % amount for (amount,) in database.execute("SELECT amount FROM bookings ORDER BY id")]
    with RawClient(broker.port) as client:
        eventually(lambda: is_stable(client, topic), "the markers are written")
        assert committed_values(client, topic) == booked == [b"%d" % amount for amount in range(15)]
