"""Inter-broker requests are refused on listeners for clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Deadlines, Tasks
from oncelog_broker.server.replicas import controlled_shutdown
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.transactions import add_partitions_to_txn, write_txn_markers
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest

LISTENERS = {
    "listeners": "BROKERS://127.0.0.1:1,CLIENTS://127.0.0.1:2",
    "listener.security.protocol.map": "BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT",
}
NAMED = LISTENERS | {"inter.broker.listener.name": "BROKERS"}


def context(listener: str, settings: dict[str, str] = NAMED, api: ApiKey = ApiKey.WRITE_TXN_MARKERS) -> RequestContext:
    services: Any = SimpleNamespace(
        authorizer=None, config=BrokerConfig.of(settings), slices=Slices(ManualClock(), Tasks()), deadlines=Deadlines()
    )
    connection: Any = SimpleNamespace(listener=listener)
    return RequestContext(services, connection, api, 5, 0, "test")


@pytest.mark.parametrize(
    ("listener", "settings", "allowed"),
    [
        ("BROKERS", NAMED, True),
        ("CLIENTS", NAMED, False),
        ("CLIENTS", LISTENERS, True),
        ("PLAINTEXT", {}, True),
        ("PLAINTEXT", {"inter.broker.listener.name": "PLAINTEXT"}, True),
    ],
)
def test_clients_are_told_from_brokers_by_the_inter_broker_listener(
    listener: str, settings: dict[str, str], allowed: bool
) -> None:
    assert context(listener, settings).is_for_brokers is allowed


def test_s6_clients_cannot_write_transaction_markers() -> None:
    asked = WriteTxnMarkersRequest.WritableTxnMarker
    marker = asked(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        topics=[asked.WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 3])],
        coordinator_epoch=0,
    )
    answer = write_txn_markers.handle(WriteTxnMarkersRequest(markers=[marker]), context("CLIENTS"))
    assert not hasattr(answer, "add_done_callback")
    (topic,) = answer.markers[0].topics  # type: ignore[union-attr]
    codes = {partition.partition_index: partition.error_code for partition in topic.partitions}
    assert codes == dict.fromkeys([0, 3], ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, -1), (-7, 0), (5, -1)])
def test_a_marker_of_no_producer_is_not_written(producer_id: int, producer_epoch: int) -> None:
    asked = WriteTxnMarkersRequest.WritableTxnMarker
    marker = asked(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=True,
        topics=[asked.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])],
        coordinator_epoch=0,
    )
    asking = context("BROKERS")
    asking.services.markers = SimpleNamespace(append=lambda *_: pytest.fail("written"))  # type: ignore[assignment]
    answer = write_txn_markers.handle(WriteTxnMarkersRequest(markers=[marker]), asking)
    (topic,) = answer.markers[0].topics  # type: ignore[union-attr]
    assert topic.partitions[0].error_code == ErrorCode.INVALID_REQUEST


def test_s6_clients_cannot_verify_transactions_of_other_producers() -> None:
    question = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id="of another", producer_id=7, producer_epoch=0, verify_only=True, topics=[]
    )
    refused = add_partitions_to_txn.handle(
        AddPartitionsToTxnRequest(transactions=[question]), context("CLIENTS", api=ApiKey.ADD_PARTITIONS_TO_TXN)
    )
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # type: ignore[union-attr]


def test_clients_cannot_request_a_controlled_shutdown() -> None:
    asked = context("CLIENTS", api=ApiKey.CONTROLLED_SHUTDOWN)
    refused = controlled_shutdown.handle(ControlledShutdownRequest(broker_id=1, broker_epoch=2), asked)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # type: ignore[union-attr]
