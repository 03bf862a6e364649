"""DescribeProducers returns the producers that a log remembers, also on a follower."""

from __future__ import annotations

from errno import EIO
from typing import Any

from tests.support.handlers import answered, asked
from tests.support.served import FOLLOWER, TOPIC, Served
from tests.support.storage import NOW, make_batch

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.records import describe_producers
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest


async def ask(served: Served, *indexes: int, refused: Any = ()) -> dict[int, Any]:
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=list(indexes))]
    )
    context = asked(ApiKey.DESCRIBE_PRODUCERS, 0, refused=refused, replicas=served)
    (topic,) = (await answered(describe_producers.handle, request, context)).topics
    assert [each.partition_index for each in topic.partitions] == list(dict.fromkeys(indexes)), "each once"
    return {each.partition_index: each for each in topic.partitions}


def append(served: Served, producer_id: int, *, transactional: bool = False) -> None:
    batch = make_batch(
        b"1", b"2", producer_id=producer_id, producer_epoch=3, base_sequence=0, transactional=transactional
    )
    served.partitions[0].append(memoryview(batch), required_acks=1)


async def test_producers_are_described_with_their_open_transactions(served: Served) -> None:
    append(served, 7)
    append(served, 8, transactional=True)
    (found,) = (await ask(served, 0, 0)).values()
    producers = {
        each.producer_id: (each.producer_epoch, each.last_sequence, each.last_timestamp, each.current_txn_start_offset)
        for each in found.active_producers
    }
    assert producers == {7: (3, 1, NOW, -1), 8: (3, 1, NOW, 2)}


async def test_a_follower_tells_what_its_own_log_says(served: Served) -> None:
    append(served, 7)
    served.partitions[0].follow(FOLLOWER, 1)
    (found,) = (await ask(served, 0)).values()
    assert [each.producer_id for each in found.active_producers] == [7]


async def test_a_replica_whose_log_has_failed_describes_nothing(served: Served) -> None:
    """The transactions that it knows may have ended at the present leader."""
    append(served, 7, transactional=True)
    served.partitions[0].log.flusher.flush_failed(OSError(EIO, "Input/output error"))
    (failed,) = (await ask(served, 0)).values()
    assert (failed.error_code, failed.active_producers) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


async def test_errors_of_a_partition_are_returned(served: Served) -> None:
    def unknown(topic: str, index: int) -> Any:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no replica of it here")

    denied = (await ask(served, 0, refused={(rules.DESCRIBE_PRODUCERS, TOPIC)}))[0]
    assert (denied.error_code, denied.active_producers) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    served.replica = unknown  # type: ignore[method-assign]
    missing = (await ask(served, 9))[9]
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no replica of it here",
    )
