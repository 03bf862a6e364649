"""AddPartitionsToTxn: which partitions may join a transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.transactions import add_partitions_to_txn
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic


async def codes(image: ClusterImage, *indexes: int) -> list[int]:
    """Send AddPartitionsToTxn as a client with transactions V1, to a coordinator that accepts everything; return the
    error codes.
    """
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


async def test_a_partition_without_a_leader_may_be_added() -> None:
    """The partition's leader has died. Another leader will be elected, and the transaction continues."""
    dead, none = PartitionState((2, 1), (2, 1), leader=2), PartitionState((2, 1), (2,), leader=-1)
    image = ClusterImage("cluster", topics={"orders": Topic("orders", bytes(16), {0: dead, 1: none})})
    assert await codes(image, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]


async def test_a_missing_partition_may_not_be_added() -> None:
    image = ClusterImage("cluster", topics={"orders": Topic("orders", bytes(16), {0: PartitionState((1,))})})
    assert await codes(image, 0, 1) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


SEPARATE = {
    "listeners": "BROKERS://127.0.0.1:1,CLIENTS://127.0.0.1:2",
    "listener.security.protocol.map": "BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


class Authorizer:
    """The authorizer for a user who has exactly the rights in `rights`."""

    def __init__(self, *rights: tuple[Rule, str]) -> None:
        self.epoch = object()
        self._rights = {(rule.kind, name) for rule, name in rights}

    def rights_of(self, *_: object) -> Any:
        return SimpleNamespace(epoch=self.epoch, allowed=self._rights)

    def may(self, *_: object) -> bool:
        return False


async def batched(version: int, listener: str, *topics: str, authorizer: Authorizer | None = None) -> list[int]:
    """Return the error code of each topic for a batched request with many transactions."""
    image = ClusterImage(
        "cluster",
        topics={name: Topic(name, bytes(16), {0: PartitionState((1,))}) for name in ("orders", "__consumer_offsets")},
    )
    services: Any = SimpleNamespace(
        authorizer=authorizer,
        config=BrokerConfig.of(SEPARATE),
        image=image,
        slices=Slices(ManualClock(), Tasks()),
        transactions=SimpleNamespace(add_partitions=lambda *_: ErrorCode.NONE),
    )
    connection: Any = SimpleNamespace(listener=listener, rights=None, principal=None, client_host="127.0.0.1")
    asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id="mine",
        producer_id=7,
        producer_epoch=0,
        verify_only=False,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in topics],
    )
    context = RequestContext(services, connection, ApiKey.ADD_PARTITIONS_TO_TXN, version, 0, "test")
    answer = await settled(add_partitions_to_txn.handle(AddPartitionsToTxnRequest(transactions=[asked]), context))
    assert answer is not None
    assert answer.error_code == ErrorCode.NONE
    (result,) = answer.results_by_transaction
    return [each.results_by_partition[0].partition_error_code for each in result.topic_results]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("listener", ["BROKERS", "CLIENTS"])
async def test_s97_a_client_adds_to_its_own_transaction_in_every_version(version: int, listener: str) -> None:
    """A client may add partitions to its own transaction even if brokers have a separate listener, which the client
    does not use.
    """
    assert await batched(version, listener, "orders") == [ErrorCode.NONE]


async def test_s97_a_client_of_these_versions_adds_no_internal_topic() -> None:
    refused = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert await batched(5, "CLIENTS", "orders", "__consumer_offsets") == refused
    assert await batched(5, "BROKERS", "orders", "__consumer_offsets") == [ErrorCode.NONE, ErrorCode.NONE]


async def test_s97_the_rights_on_transactional_id_and_topic_decide() -> None:
    id_alone = Authorizer((rules.ADD_PARTITIONS, "mine"))
    both = Authorizer((rules.ADD_PARTITIONS, "mine"), (rules.ADD_PARTITIONS_TOPIC, "orders"))
    of_another = Authorizer((rules.ADD_PARTITIONS, "yours"), (rules.ADD_PARTITIONS_TOPIC, "orders"))
    assert await batched(5, "CLIENTS", "orders", authorizer=both) == [ErrorCode.NONE]
    assert await batched(5, "BROKERS", "orders", authorizer=both) == [ErrorCode.NONE]
    assert await batched(5, "CLIENTS", "orders", authorizer=id_alone) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    refused = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert await batched(5, "CLIENTS", "orders", authorizer=of_another) == refused
