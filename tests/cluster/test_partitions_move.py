"""Tests partitions that move to another broker while transactions run: clients do not notice, and nothing is lost. Also
tests `oncelog reassign`, which moves them."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result
from final_state import settle_and_check
from foreign_clients import Record
from librdkafka_client import Librdkafka
from recording_clients import PATIENCE_SECONDS, PRODUCERS, RecordingProducer, Writer
from replicated_cluster import Part, ReplicatedCluster
from tests.support.background import Background

from oncelog import TopicPartition
from oncelog.admin import Admin, AlterConfig, AlterOperation, ConfigResource, Reassignment
from oncelog.cli.group import cli
from oncelog.errors import ErrorCode, KafkaError, PartialFailure
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

T = TypeVar("T")
Oncelog = Callable[..., Result]
FOLLOWER_RATE = "follower.replication.throttled.rate"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
RECORDS_PER_TRANSACTION = 5
NOT_YET = {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REPLICA_ASSIGNMENT}
BUSY = ("NOT_CONTROLLER", "REQUEST_TIMED_OUT", "are not alive")
"""Errors that a command may return on a busy machine, because a broker has lost its session."""
SOAK = (pytest.mark.soak, pytest.mark.timeout(1800))
MOVES = [
    ("oncelog", 8),
    pytest.param("oncelog", 100, marks=SOAK),
    pytest.param("librdkafka", 100, marks=SOAK),
]


class Operator:
    """Makes calls of oncelog's admin client, one after another."""

    def __init__(self, cluster: ReplicatedCluster) -> None:
        self._cluster = cluster

    def _do(self, work: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
        async def ask() -> T:
            async with Admin(self._cluster.addresses) as admin:
                return await work(admin)

        return asyncio.run(ask())

    def _until_done(self, work: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
        """Retry the admin calls in `work` if the controller has just changed, or a broker that waited for a processor
        has lost its registration.
        """

        def attempt() -> tuple[T] | None:
            try:
                return (self._do(work),)
            except KafkaError as error:
                errors = error.errors.values() if isinstance(error, PartialFailure) else [error]
                if any(each.code not in NOT_YET for each in errors):
                    raise
                return None

        return self._cluster.until(attempt, "it is done")[0]  # type: ignore[index]

    def move(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        self._until_done(lambda admin: admin.alter_partition_reassignments(targets))

    def call_back(self, partitions: Iterable[TopicPartition]) -> None:
        async def cancel(admin: Admin) -> None:
            """Cancel reassignments; if an earlier attempt has already cancelled some of them, these count as
            cancelled.
            """
            moving = await admin.list_partition_reassignments(partitions)
            await admin.alter_partition_reassignments(dict.fromkeys(moving))

        self._until_done(cancel)

    def moving(self) -> dict[TopicPartition, Reassignment]:
        return self._until_done(lambda admin: admin.list_partition_reassignments())

    def until_moved(self) -> None:
        self._cluster.until(lambda: not self.moving(), "no partition is on its way")

    def configure(self, resource: ConfigResource, key: str, value: str | None) -> None:
        operation = AlterOperation.DELETE if value is None else AlterOperation.SET
        change = AlterConfig(key, value, operation)
        self._until_done(lambda admin: admin.incremental_alter_configs({resource: [change]}))

    def is_configured(self, resource: ConfigResource, key: str, value: str) -> bool:
        described = self._until_done(lambda admin: admin.describe_configs([resource], keys=[key]))
        return described[resource][key].value == value

    @contextmanager
    def throttled(self, topic: str, node_id: int, bytes_per_second: int) -> Iterator[None]:
        """Limit the rate at which this broker catches up with partitions of the topic."""
        self.configure(ConfigResource.topic(topic), FOLLOWER_REPLICAS, "*")
        broker = ConfigResource.broker(node_id)
        self.configure(broker, FOLLOWER_RATE, str(bytes_per_second))
        try:
            self._cluster.until(
                lambda: self.is_configured(broker, FOLLOWER_RATE, str(bytes_per_second)), "the throttle is known"
            )
            yield
        finally:
            self.configure(broker, FOLLOWER_RATE, None)


class TransactionWriter(Background):
    """Commits one transaction after another; each uses some of the partitions, in rotation."""

    def __init__(self, producer: RecordingProducer, places: Iterable[Place]) -> None:
        super().__init__(PATIENCE_SECONDS)
        self._producer = producer
        self._places = itertools.cycle(places)
        self._committed = 0

    def _work(self) -> None:
        while not self.is_over:
            self._producer.begin()
            for _ in range(RECORDS_PER_TRANSACTION):
                self._producer.send(next(self._places))
            self._producer.commit()
            with self._progress:
                self._committed += 1
                self._progress.notify_all()

    def until_more(self, transactions: int) -> None:
        """Wait until `transactions` more transactions are committed."""
        goal = self._committed + transactions
        self.until(lambda: self._committed >= goal, f"{goal} transactions")


@pytest.fixture
def operator(cluster: ReplicatedCluster) -> Operator:
    return Operator(cluster)


@pytest.mark.parametrize(("library", "partitions"), MOVES)
def test_c23_partitions_move_under_transactions_and_the_target_dies(
    cluster: ReplicatedCluster, operator: Operator, history: History, topic: str, library: str, partitions: int
) -> None:
    """Half of the moves are cancelled while the target broker is down; the other moves complete when it returns."""
    before = {index: (1, 2) if index % 2 else (2, 1) for index in range(partitions)}
    cluster.create_topic(topic, *before.values())
    places = [Place(topic, index) for index in before]
    targets = {TopicPartition(topic, index): (3, replicas[0]) for index, replicas in before.items()}
    called_back = {partition for partition in targets if partition.partition % 4 < 2}
    rounds = partitions // RECORDS_PER_TRANSACTION
    with PRODUCERS[library](cluster.addresses, history, "anna", topic) as producer:
        with TransactionWriter(producer, places) as writer:
            writer.until_more(rounds + 1)  # wait until each partition has records
            with operator.throttled(topic, 3, 0):
                operator.move(targets)
                writer.until_more(rounds + 1)
                assert operator.moving().keys() == targets.keys(), "nobody is in sync without a record"
                cluster.kill(3)
                writer.until_more(2)
                operator.call_back(called_back)
                assert operator.moving().keys() == targets.keys() - called_back
                cluster.start(3)
                writer.until_more(2)
            operator.until_moved()
            writer.until_more(rounds + 1)
        assert producer.acknowledged == producer.sent, "an error that a user would see"
    wanted = dict(before) | {p.partition: target for p, target in targets.items() if p not in called_back}
    cluster.until(lambda: replicas(cluster, topic) == wanted, "all are where they are to be")
    settle_and_check(cluster, history, topic)
    logs = {(node_id, f"{topic}-{index}") for index, node_ids in wanted.items() for node_id in node_ids}
    cluster.until(lambda: hosts(cluster, topic) == logs, "whoever holds a partition no more has no log of it")


def hosts(cluster: ReplicatedCluster, topic: str) -> set[tuple[int, str]]:
    """Return which brokers have a log of which partitions."""
    return {
        (node_id, directory.name)
        for node_id, broker in cluster.brokers.items()
        for directory in broker.data.glob(f"{topic}-*")
        if not directory.name.endswith("-delete")
    }


@pytest.mark.parametrize("library", PRODUCERS)
def test_coordinators_move_with_their_partitions(
    cluster: ReplicatedCluster, operator: Operator, history: History, topic: str, library: str
) -> None:
    """Each partition of the transaction log loses the replica that leads it, and later gets that replica back."""
    internal = "__transaction_state"
    cluster.create_topic(topic, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    with PRODUCERS[library](cluster.addresses, history, "anna", topic) as producer:
        with TransactionWriter(producer, [Place(topic, index) for index in range(3)]) as writer:
            writer.until_more(2)
            for _ in range(2):
                parts = cluster.until(lambda: led_by_three(cluster, internal), "its replicas are three again")
                operator.move({TopicPartition(internal, i): others(part) for i, part in parts.items()})
                operator.until_moved()
                writer.until_more(2)
                operator.move({TopicPartition(internal, i): part.replicas for i, part in parts.items()})
                operator.until_moved()
                writer.until_more(2)
        assert producer.acknowledged == producer.sent, "an error that a user would see"
    settle_and_check(cluster, history, topic)


def led_by_three(cluster: ReplicatedCluster, topic: str) -> dict[int, Part] | None:
    """Return the topic's partitions if each has a leader and two other replicas; None otherwise."""
    parts = cluster.parts(topic)
    return parts if all(part.leader >= 0 and len(part.replicas) == 3 for part in parts.values()) else None


def others(part: Part) -> list[int]:
    """Return the partition's replicas without its leader."""
    return [node_id for node_id in part.replicas if node_id != part.leader]


def test_a_returning_broker_deletes_replicas_that_moved_away(
    cluster: ReplicatedCluster, operator: Operator, history: History, topic: str
) -> None:
    """The returning broker has a log of a partition that was moved away while it was down."""
    cluster.create_topic(topic, (1, 2, 3), min_insync_replicas="1")
    with PRODUCERS["oncelog"](cluster.addresses, history, "anna") as producer, Writer(producer, Place(topic)) as writer:
        writer.until_more(10)
        cluster.kill(3)
        operator.move({TopicPartition(topic, 0): (2, 1)})
        operator.until_moved()
        writer.until_more(10)
        assert (cluster.brokers[3].data / f"{topic}-0").is_dir()
        cluster.start(3)
        cluster.until(lambda: hosts(cluster, topic) == {(1, f"{topic}-0"), (2, f"{topic}-0")}, "the stray log goes")
        writer.until_more(10)
    cluster.until(lambda: cluster.part(topic).replicas == (2, 1), "all know who holds it")
    settle_and_check(cluster, history, topic)


def test_a_log_of_another_origin_is_set_aside(cluster: ReplicatedCluster, topic: str, tmp_path: Path) -> None:
    """The log comes from a broker that was never in the cluster, so the controller can neither have assigned it to this
    broker nor removed it.
    """
    cluster.create_topic(topic, (1, 2))
    newcomer = cluster._broker(tmp_path, 4, {})
    copytree(cluster.brokers[1].data / f"{topic}-0", newcomer.data / f"{topic}-0")
    newcomer.start()
    try:
        assert len(list(newcomer.data.glob(f"{topic}-0.*-stray"))) == 1
    finally:
        newcomer.kill()
        del cluster.peer_ports[4]
    cluster.until_registered(*cluster.brokers)


# --- from the command line


@pytest.fixture
def reassign(cluster: ReplicatedCluster) -> Oncelog:
    """Return a function that runs a subcommand of `oncelog reassign` in this process. `code` is the expected
    exit code.
    """

    def run(*arguments: str, stdin: str = "", code: int = 0) -> Result:
        environment = {"ONCELOG_BOOTSTRAP_SERVER": cluster.addresses}

        def attempt() -> Result | None:
            done = CliRunner().invoke(cli, ["reassign", *arguments], input=stdin, env=environment)
            if done.exit_code != code and any(words in done.output for words in BUSY):
                return None
            assert done.exit_code == code, (done.output, done.exception)
            return done

        return cluster.until(attempt, f"the end of {arguments}")  # type: ignore[return-value]

    return run


def replicas(cluster: ReplicatedCluster, topic: str) -> dict[int, tuple[int, ...]]:
    return {index: part.replicas for index, part in cluster.parts(topic).items()}


def test_a_partition_moves_there_and_back(
    cluster: ReplicatedCluster, reassign: Oncelog, topic: str, tmp_path: Path
) -> None:
    before = {0: (1, 2), 1: (2, 1), 2: (1, 2)}
    cluster.create_topic(topic, *before.values())
    way_back, plan = str(tmp_path / "back.json"), str(tmp_path / "plan.json")
    made = reassign("generate", topic, "--to", "2,3", "--current", way_back)
    assert "3 partitions of 3 would change" in made.stderr
    Path(plan).write_text(made.stdout)
    assert all(set(each["replicas"]) == {2, 3} for each in json.loads(made.stdout)["partitions"])

    done = reassign("execute", plan, "--throttle", "10000000")
    assert "3 of 3 partitions arrived" in done.stderr
    assert done.stderr.endswith("done\n")
    cluster.until(lambda: {frozenset(each) for each in replicas(cluster, topic).values()} == {frozenset((2, 3))}, "so")
    lines = reassign("verify", plan).stdout.splitlines()
    assert [line.split("\t")[:3] for line in lines] == [[topic, str(index), "done"] for index in before]

    reassign("execute", "-", stdin=Path(way_back).read_text())
    cluster.until(lambda: replicas(cluster, topic) == before, "all are where they were")
    assert reassign("list").stdout == ""


def test_a_throttle_takes_effect_and_is_removed(cluster: ReplicatedCluster, reassign: Oncelog, topic: str) -> None:
    """The first fetch response is complete and does not contain everything; after it the throttle allows only one byte
    per second, so the move lasts until it is cancelled.
    """
    cluster.create_topic(topic, (1, 2))
    client = Librdkafka(cluster.addresses)
    for _ in range(3):
        client.produce(topic, [Record(bytes(600_000))], partition=0)
    client.close()
    moved = {"topic": topic, "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "any"]}
    plan = json.dumps({"version": 1, "partitions": [moved]})
    reassign("execute", "-", "--no-wait", "--throttle", "1", stdin=plan)
    (line,) = reassign("verify", "-", stdin=plan, code=1).stdout.splitlines()
    assert line.split("\t")[:5] == [topic, "0", "moving", "3,1,2", "3,1"]
    throttle = {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    cluster.until(lambda: settings(cluster, topic) == throttle, "the throttle is known")
    assert reassign("cancel", "--all").stderr == "1 reassignment cancelled\n"
    cluster.until(lambda: settings(cluster, topic) == {}, "the throttle is taken back")
    cluster.until(lambda: replicas(cluster, topic) == {0: (1, 2)}, "it is where it was")


def settings(cluster: ReplicatedCluster, topic: str) -> dict[str, str]:
    """Return the throttle settings of the topic itself."""
    done = CliRunner().invoke(cli, ["topics", "describe", topic, "--output", "json", "-b", cluster.addresses])
    return {key: value for key, value in json.loads(done.stdout)[0]["configs"].items() if "throttled" in key}
