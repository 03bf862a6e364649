"""Tests that the examples do what they claim, even when they are killed with -9 in the middle (S61-S66)."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path

import pytest
from broker_process import BrokerFactory, BrokerProcess
from committed_reader import committed_values
from examples import kafka_to_sqlite, outbox, publish_then_consume, two_phase_sink, zombies
from foreign_clients import eventually
from raw_client import PRODUCE_VERSION, RawClient, produce_request
from raw_transactions import RawTransactions, is_stable
from tests.support.storage import make_batch
from warm_commands import CLIENT, Child, Program

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode

SEED = 61
REPOSITORY = Path(__file__).parents[3]
TIMEOUT_SECONDS = 60
KILLS = 5


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that allows short session timeouts, so that groups notice killed members soon."""
    settings = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as process:
        yield process
    assert "Traceback" not in process.log.read_text()


class Example:
    """A running example in its own process."""

    def __init__(self, broker: BrokerProcess, module: str, *arguments: object) -> None:
        program = Program(("-m", f"examples.{module}"), CLIENT)
        servers = ("--servers", broker.address)
        self.child = Child(program, *servers, *map(str, arguments), directory=REPOSITORY, mixes=True)

    def ends(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        with closing(self.child):
            self.output = self.child.stdout.read()
            return self.child.process.wait(TIMEOUT_SECONDS)

    def succeeds(self) -> str:
        assert self.ends() == 0, self.output
        return self.output

    def says(self, lines: int) -> list[str]:
        """Wait until the example has printed this many lines, or has ended."""
        return list(islice(self.child.stdout, lines))

    def kill(self) -> None:
        """Kill the process with -9, unless it has already ended."""
        self.child.process.send_signal(signal.SIGKILL)
        assert self.ends() in (0, -signal.SIGKILL), self.output


def moments() -> Iterator[float]:
    """Yield, for each kill, how many seconds after the start of its work the example is killed."""
    rng = random.Random(SEED)
    for _ in range(KILLS):
        yield rng.uniform(0, 0.4)


def do_until_killed(example: Example, seconds: float, do: Callable[[], None], progress: Callable[[], object]) -> None:
    """Call `do` repeatedly, and kill the example `seconds` after the return value of `progress()` has changed."""
    before, deadline = progress(), time.monotonic() + TIMEOUT_SECONDS
    while progress() == before:
        assert time.monotonic() < deadline, "it does not come to work"
        do()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        do()
    example.kill()


def produce(client: RawClient, topic: str, *records: tuple[bytes | None, bytes]) -> None:
    for key, value in records:
        batch = make_batch(value, key=key)
        answer = client.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == 0


def values(client: RawClient, topic: str) -> list[str]:
    return [(value or b"").decode() for value in committed_values(client, topic)]


# --- S61


def test_s61_the_outbox_is_told_once_though_the_relay_is_killed(
    broker: BrokerProcess, raw: RawClient, topic: str, tmp_path: Path
) -> None:
    raw.create_topic(topic)
    path, numbers = str(tmp_path / "shop.db"), count()
    database = outbox.open_database(path)

    def order() -> None:
        number = next(numbers)
        outbox.place_order(database, f"{topic}-{number}", f"item {number}")
        time.sleep(0.001)

    for seconds in moments():
        relay = Example(broker, "outbox", "--database", path, "--topic", topic)
        do_until_killed(relay, seconds, order, progress=lambda: raw.list_offset(topic, 0))
    Example(broker, "outbox", "--database", path, "--topic", topic, "--until-empty").succeeds()
    placed = [row[0] for row in database.execute("SELECT value FROM outbox ORDER BY seq")]
    assert len(placed) == next(numbers) > 50
    assert values(raw, topic) == placed
    (last,) = database.execute("SELECT max(seq) FROM outbox").fetchone()
    assert values(raw, outbox.POSITIONS)[-1] == str(last + 1)
    database.close()


def test_s61_of_two_relays_the_first_is_fenced(
    broker: BrokerProcess, raw: RawClient, topic: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "shop.db")
    database = outbox.open_database(path)
    outbox.place_order(database, "a", "a")
    first = Example(broker, "outbox", "--database", path, "--topic", topic)
    eventually(lambda: values_if_there(raw, topic) == ["ordered: a"], "the first relay works")
    second = Example(broker, "outbox", "--database", path, "--topic", topic)
    for number in range(1000):
        outbox.place_order(database, f"b{number}", "b")
        if first.child.process.poll() is not None:
            break
        time.sleep(0.02)
    assert first.ends() == 1
    assert "ProducerFenced" in first.output
    second.kill()
    Example(broker, "outbox", "--database", path, "--topic", topic, "--until-empty").succeeds()
    assert values(raw, topic) == [row[0] for row in database.execute("SELECT value FROM outbox ORDER BY seq")]
    database.close()


def values_if_there(client: RawClient, topic: str) -> list[str] | None:
    try:
        return values(client, topic)
    except AssertionError:
        return None


# --- S62


@pytest.mark.parametrize("mode", kafka_to_sqlite.MODES)
def test_s62_each_record_counts_once_though_the_consumer_is_killed(
    broker: BrokerProcess, raw: RawClient, topic: str, tmp_path: Path, mode: str
) -> None:
    raw.create_topic(topic)
    path, numbers = str(tmp_path / "payments.db"), count()
    arguments = ("--mode", mode, "--topic", topic, "--database", path, "--instance", "one")
    database = kafka_to_sqlite.open_database(path)

    def pay() -> None:
        produce(raw, topic, (b"account", b"%d" % (next(numbers) % 7)))
        time.sleep(0.001)

    def counted() -> object:
        table = "payments" if mode == "upsert" else "balances"
        return database.execute(f"SELECT count(*), sum(amount) FROM {table}").fetchone()

    for seconds in moments():
        do_until_killed(Example(broker, "kafka_to_sqlite", *arguments), seconds, pay, progress=counted)
    Example(broker, "kafka_to_sqlite", *arguments, "--until-caught-up").succeeds()
    total = next(numbers)
    query = "SELECT sum(amount) FROM " + ("payments" if mode == "upsert" else "balances")
    (amount,) = database.execute(query).fetchone()
    assert amount == sum(number % 7 for number in range(total))
    database.close()


def test_s62_a_consumer_that_lost_its_partition_changes_nothing(tmp_path: Path) -> None:
    """The offset in the database fences the old owner of a partition: in this test two consumers each believe that they
    own the partition.
    """
    database = kafka_to_sqlite.open_database(str(tmp_path / "payments.db"))
    partition = kafka_to_sqlite.TopicPartition("payments", 0)
    stored = kafka_to_sqlite.stored_offset(database, partition)
    record = kafka_to_sqlite.ConsumerRecord("payments", 0, 4, 0, 0, b"account", b"5", (), 0)
    kafka_to_sqlite.add_up(database, {partition: [record]}, {partition: stored})
    with pytest.raises(kafka_to_sqlite.LostPartition):
        kafka_to_sqlite.add_up(database, {partition: [record]}, {partition: stored})
    assert database.execute("SELECT amount FROM balances").fetchall() == [(5,)]
    assert kafka_to_sqlite.stored_offset(database, partition) == 5
    database.close()


# --- S63


def test_s63_own_records_are_not_visible_before_the_commit(broker: BrokerProcess, topic: str) -> None:
    seen = asyncio.run(publish_then_consume.show(broker.address, topic))
    assert seen == publish_then_consume.Seen(
        committed_before=0, uncommitted_before=1, committed_after_abort=0, committed_after_commit=1, mails=2
    )


# --- S64


@pytest.mark.parametrize("mode", zombies.MODES)
def test_s64_a_worker_taken_for_dead_changes_nothing(
    broker: BrokerProcess, raw: RawClient, topic: str, mode: str
) -> None:
    raw.create_topic(topic)
    produce(raw, topic, *((None, b"%d" % number) for number in range(5)))
    target = f"{topic}-out"
    is_accepted = asyncio.run(zombies.run(broker.address, topic, target, mode))
    assert is_accepted == (mode == "old")
    once = ["0", "1", "2", "3", "4"]
    assert values(raw, target) == (once + once if mode == "old" else once)
    eventually(lambda: is_stable(raw, target), "nothing hangs")


# --- S65


def test_s65_checkpoints_are_whole_though_the_job_is_killed(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    checkpoints = 400
    rng = random.Random(SEED)
    for _ in range(KILLS):
        example = Example(broker, "two_phase_sink", "--topic", topic, "--checkpoints", checkpoints)
        assert example.says(rng.randint(1, 60)), "it comes to work"
        example.kill()
    output = Example(broker, "two_phase_sink", "--topic", topic, "--checkpoints", checkpoints).succeeds()
    assert not output.startswith("checkpoint 1\n"), "it went on from where it was"
    numbers = [int(value) for value in values(raw, topic)]
    assert sorted(numbers) == list(range(checkpoints * two_phase_sink.PER_CHECKPOINT))
    for writer in range(two_phase_sink.WRITERS):
        mine = [number for number in numbers if number % two_phase_sink.WRITERS == writer]
        assert mine == sorted(mine)


def test_s65_a_job_killed_between_two_commits_recovers(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    """Before the kill, one of two writers has committed its part of the checkpoint's transaction; after the restart
    only the other writer commits.
    """

    async def torn() -> None:
        await two_phase_sink.run(broker.address, topic, 1)
        writers = [two_phase_sink.TwoPhaseWriter(broker.address, f"{topic}-writer-{n}") for n in range(2)]
        for number, writer in enumerate(writers):
            await writer.start()
            writer.begin()
            await writer.write(topic, two_phase_sink.share(2, number))
            await writer.prepare(2)
        await writers[0].commit()
        # The example is killed with an open transaction, which its next run takes over.
        await two_phase_sink.run(broker.address, topic, 3)
        for writer in writers:
            await writer.close()

    asyncio.run(torn())
    assert sorted(int(value) for value in values(raw, topic)) == list(range(30))


def test_s65_a_prepared_transaction_can_be_committed_by_another_process(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    """Another process can commit the transaction, because a producer id and an epoch identify a transaction, and not a
    connection; Flink relies on this.
    """
    raw.create_topic(topic, 2)
    with RawClient(broker.port) as client:
        txn = RawTransactions(client, topic)
        prepared = txn.take_over()
        txn.write(topic, 0, 1, value=b"prepared")
    successor = RawTransactions(raw, topic)
    assert values(raw, topic) == []
    assert successor.end(asking=prepared) == ErrorCode.NONE
    eventually(lambda: is_stable(raw, topic, 0) and is_stable(raw, topic, 1), "the transaction is complete")
    assert values(raw, topic) == ["prepared"]
    assert successor.end(asking=prepared) == ErrorCode.NONE, "and again, after its answer was lost"


# --- S66


@pytest.mark.parametrize("level", ["at-most-once", "at-least-once", "exactly-once"])
def test_s66_a_crash_affects_each_delivery_level_as_stated(
    broker: BrokerProcess, raw: RawClient, topic: str, level: str
) -> None:
    raw.create_topic(topic)
    target = f"{topic}-copied"
    produce(raw, topic, *((None, b"%d" % number) for number in range(100)))
    arguments = ("--level", level, "--source", topic, "--target", target)
    crashed = Example(broker, "delivery_levels", *arguments, "--crash-after", 35)
    assert crashed.ends() == -signal.SIGKILL, crashed.output
    Example(broker, "delivery_levels", *arguments, "--until-caught-up").succeeds()
    copies = Counter(values(raw, target))
    numbers = {str(number) for number in range(100)}
    assert set(copies) <= numbers
    is_missing, is_twice = set(copies) != numbers, max(copies.values()) > 1
    assert (is_missing, is_twice) == {
        "at-most-once": (True, False),
        "at-least-once": (False, True),
        "exactly-once": (False, False),
    }[level]


def test_s66_exactly_once_survives_a_killed_broker(broker_factory: BrokerFactory, topic: str) -> None:
    broker = broker_factory().start()
    target = f"{topic}-copied"
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        client.create_topic(target)
        produce(client, topic, *((None, b"%d" % number) for number in range(300)))
    arguments = ("--level", "exactly-once", "--source", topic, "--target", target, "--until-caught-up")
    example = Example(broker, "delivery_levels", *arguments)
    for copied in (20, 110, 200):  # the example may copy some more records before the kill takes effect
        with RawClient(broker.port) as client:
            eventually(lambda: client.list_offset(target, 0)[0] > copied, "it copies")  # noqa: B023
        broker.kill()
        broker.start()
    example.succeeds()
    with RawClient(broker.port) as client:
        assert values(client, target) == [str(number) for number in range(300)]
