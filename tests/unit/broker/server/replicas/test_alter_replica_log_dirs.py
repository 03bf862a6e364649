"""AlterReplicaLogDirs begins the permitted moves, and returns an error for each other move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.handlers import answered, asked

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.replicas import alter_replica_log_dirs
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest

Directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
TopicOf = Directory.AlterReplicaLogDirTopic


class Moves:
    """Moves only the partitions of `orders`."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, str]] = []

    def move(self, topic: str, index: int, path: str) -> None:
        if topic != "orders":
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.begun.append((topic, index, path))


async def ask(*dirs: tuple[str, str, list[int]], refused: Any = ()) -> tuple[Moves, Any]:
    moves = Moves()
    request = AlterReplicaLogDirsRequest(
        dirs=[Directory(path=path, topics=[TopicOf(name=name, partitions=parts)]) for path, name, parts in dirs]
    )
    context = asked(
        ApiKey.ALTER_REPLICA_LOG_DIRS, 2, refused=refused, directory_moves=moves, replicas=SimpleNamespace()
    )
    answer = await answered(alter_replica_log_dirs.handle, request, context)
    return moves, {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.results
        for each in topic.partitions
    }


async def test_each_partition_has_its_own_result() -> None:
    moves, results = await ask(("/a", "orders", [0, 1]), ("/b", "paid", [0]), ("/b", "orders", [2]))
    assert moves.begun == [("orders", 0, "/a"), ("orders", 1, "/a"), ("orders", 2, "/b")]
    assert results == {
        ("orders", 0): 0,
        ("orders", 1): 0,
        ("orders", 2): 0,
        ("paid", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_of_two_directories_for_one_partition_the_last_counts() -> None:
    moves, results = await ask(("/a", "orders", [0]), ("/b", "orders", [0]))
    assert moves.begun == [("orders", 0, "/b")]
    assert results == {("orders", 0): 0}


async def test_moves_need_the_right_to_alter_the_cluster() -> None:
    moves, results = await ask(("/a", "orders", [0, 1]), refused={rules.ALTER_REPLICA_LOG_DIRS})
    assert moves.begun == []
    assert set(results.values()) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
