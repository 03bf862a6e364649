"""DescribeLogDirs returns the replicas in each data directory, and the directory's free space."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.handlers import answered, asked

from oncelog_broker.replication.directory_moves import FutureReplica
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.replicas import describe_log_dirs
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_log_dirs import DescribeLogDirsRequest

PLACES = {("orders", 0): "/a", ("orders", 1): "/b", ("returns", 0): "/a"}


class Logs:
    """Two data directories; the free space of `failing` cannot be read."""

    def __init__(self, *, failing: str = "") -> None:
        self.failing = failing

    def data_directories(self) -> list[str]:
        return ["/a", "/b"]

    def places(self) -> Any:
        return PLACES.items()

    def room_in(self, directory: str) -> tuple[int, int]:
        if directory == self.failing:
            raise OSError("a fault of the test")
        return 1000, 400


def hosted(topic: str, index: int) -> Any:
    """Logs of 50 bytes each; returns-0 is offline, and orders-1 lacks three records below its high watermark."""
    log = SimpleNamespace(size_bytes=50, log_end_offset=7, is_offline=topic == "returns")
    return SimpleNamespace(log=log, high_watermark=10 if index == 1 else 5)


class Moves:
    """One future log in /b, of orders-0."""

    def futures(self) -> Any:
        return [FutureReplica(("orders", 0), "/b", 20, 4)]


class NoMoves:
    def futures(self) -> Any:
        return []


async def ask(*topics: tuple[str, list[int]], logs: Logs | None = None, refused: Any = (), moves: Any = None) -> Any:
    named = [DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics]
    context = asked(
        ApiKey.DESCRIBE_LOG_DIRS,
        4,
        refused=refused,
        logs=logs or Logs(),
        replicas=SimpleNamespace(hosted=hosted),
        directory_moves=moves or NoMoves(),
    )
    return await answered(describe_log_dirs.handle, DescribeLogDirsRequest(topics=named or None), context)


def found(answer: Any) -> dict[str, list[tuple[str, int, int, int]]]:
    """Return directory -> (topic, partition, size, lag) of each replica."""
    return {
        result.log_dir: [
            (topic.name, each.partition_index, each.partition_size, each.offset_lag)
            for topic in result.topics
            for each in topic.partitions
        ]
        for result in answer.results
    }


async def test_log_directories_are_described_without_offline_logs() -> None:
    answer = await ask()
    assert found(answer) == {"/a": [("orders", 0, 50, 0)], "/b": [("orders", 1, 50, 3)]}
    assert {(result.total_bytes, result.usable_bytes) for result in answer.results} == {(1000, 400)}


async def test_only_named_partitions_are_described() -> None:
    assert found(await ask(("orders", [1, 1, 9]), ("unknown", [0]))) == {"/a": [], "/b": [("orders", 1, 50, 3)]}


async def test_a_directory_that_cannot_be_measured_says_so() -> None:
    answer = await ask(logs=Logs(failing="/b"))
    codes = {result.log_dir: (result.error_code, result.total_bytes) for result in answer.results}
    assert codes == {"/a": (ErrorCode.NONE, 1000), "/b": (ErrorCode.KAFKA_STORAGE_ERROR, -1)}
    assert found(answer)["/b"] == [("orders", 1, 50, 3)]


async def test_describing_log_directories_needs_the_right() -> None:
    answer = await ask(refused={rules.DESCRIBE_LOG_DIRS})
    assert (answer.error_code, answer.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


async def test_a_future_log_is_described_beside_the_log_that_it_will_replace() -> None:
    answer = await ask(moves=Moves())
    lines = {
        (result.log_dir, topic.name, each.partition_index): (each.partition_size, each.offset_lag, each.is_future_key)
        for result in answer.results
        for topic in result.topics
        for each in topic.partitions
    }
    assert lines["/b", "orders", 0] == (20, 4, True)
    assert lines["/a", "orders", 0] == (50, 0, False)
    assert lines["/b", "orders", 1] == (50, 3, False)
    assert ("/b", "orders", 0) not in found_keys(await ask(("orders", [1]), moves=Moves()))


def found_keys(answer: Any) -> set[tuple[str, str, int]]:
    return {
        (result.log_dir, topic.name, each.partition_index)
        for result in answer.results
        for topic in result.topics
        for each in topic.partitions
    }
