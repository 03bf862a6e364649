"""AddOffsetsToTxn adds the partition of a group's offsets to a transaction, and creates that partition's topic if it
does not exist.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.handlers import answered, asked, image_with

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.transactions import add_offsets_to_txn
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch

THERE = image_with(CONSUMER_OFFSETS)


class Cluster:
    """The coordinators of transactions and groups. The image that later requests see has each created topic."""

    def __init__(self, partition: int | None = 5, code: ErrorCode = ErrorCode.NONE) -> None:
        self.partition, self.code = partition, code
        self.added: list[Any] = []
        self.created: list[str] = []
        self.refusal: KafkaError | None = None

    def add_partitions(self, transactional_id: str, asking: Any, partitions: Any, version: int) -> ErrorCode:
        self.added.append((transactional_id, asking, list(partitions), version))
        return self.code

    async def create_topic(self, name: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.created.append(name)

    async def add(
        self, *, version: int = 4, image: ClusterImage = THERE, transactional_id: str = "t", refused: Any = ()
    ) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=7, producer_epoch=0, group_id="g"
        )
        groups = SimpleNamespace(runtime=SimpleNamespace(partition_of=lambda group: self.partition))
        context = asked(
            ApiKey.ADD_OFFSETS_TO_TXN,
            version,
            refused=refused,
            image=image,
            groups=groups,
            transactions=self,
            create_topic=self.create_topic,
        )
        answer = await answered(add_offsets_to_txn.handle, request, context)
        await context.services.tasks.close()
        return answer.error_code


async def test_the_partition_that_keeps_the_group_is_added() -> None:
    cluster = Cluster()
    assert await cluster.add() == ErrorCode.NONE
    assert cluster.added == [("t", ProducerIdAndEpoch(7, 0), [TopicPartition(CONSUMER_OFFSETS, 5)], TRANSACTIONS_V1)]
    assert cluster.created == []


async def test_adding_offsets_for_an_unknown_group_creates_the_internal_topic() -> None:
    cluster = Cluster()
    assert await cluster.add(image=ClusterImage("cluster")) == ErrorCode.NONE
    assert cluster.created == [CONSUMER_OFFSETS]
    assert len(cluster.added) == 1


async def test_a_missing_internal_topic_is_a_retriable_error() -> None:
    cluster = Cluster()
    cluster.refusal = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    assert await cluster.add(image=ClusterImage("cluster")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await Cluster(partition=None).add() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.added == []


async def test_adding_offsets_needs_both_rights_and_a_transactional_id() -> None:
    cluster = Cluster()
    assert await cluster.add(transactional_id="") == ErrorCode.INVALID_REQUEST
    refused = await cluster.add(refused={rules.ADD_OFFSETS})
    assert refused == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await cluster.add(refused={rules.ADD_OFFSETS_GROUP}) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert cluster.added == []


async def test_errors_have_codes_known_to_the_version() -> None:
    fenced = Cluster(code=ErrorCode.PRODUCER_FENCED)
    assert await fenced.add(version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await fenced.add(version=2) == ErrorCode.PRODUCER_FENCED
