"""Which partitions may become part of a transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oncelog_broker.metadata.image import ClusterImage, PartitionState, Topic
from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.handlers import add_partitions_to_txn
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic


async def codes(image: ClusterImage, *indexes: int) -> list[int]:
    """As a client of transactions V1 is answered, whose coordinator agrees to everything."""
    services: Any = SimpleNamespace(
        authorizer=None,
        image=image,
        slices=Slices(ManualClock(), Tasks()),
        transactions=SimpleNamespace(add_partitions=lambda *_: ErrorCode.NONE),
    )
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=list(indexes))],
    )
    context = RequestContext(services, None, ApiKey.ADD_PARTITIONS_TO_TXN, 3, 0, "test")  # type: ignore[arg-type]
    answer = await settled(add_partitions_to_txn.handle(request, context))
    (topic,) = answer.results_by_topic_v3_and_below  # type: ignore[union-attr]
    return [each.partition_error_code for each in topic.results_by_partition]


async def test_a_partition_without_a_leader_may() -> None:
    """Its leader has died: there will be another one, and the transaction goes on."""
    dead, none = PartitionState((2, 1), (2, 1), leader=2), PartitionState((2, 1), (2,), leader=-1)
    image = ClusterImage("cluster", topics={"orders": Topic("orders", bytes(16), {0: dead, 1: none})})
    assert await codes(image, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]


async def test_one_that_does_not_exist_may_not() -> None:
    image = ClusterImage("cluster", topics={"orders": Topic("orders", bytes(16), {0: PartitionState((1,))})})
    assert await codes(image, 0, 1) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
