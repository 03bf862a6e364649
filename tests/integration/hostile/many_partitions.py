"""Uses thousands of partitions: either all in one transaction, or created one by one until the descriptors are used
up.
"""

from __future__ import annotations

import os
from pathlib import Path

from foreign_clients import eventually
from raw_client import produce_request
from raw_transactions import V2_END, V2_PRODUCE, RawTransactions

from hostile.client import HostileClient
from hostile.scene import TIMESTAMP, Scene
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

PARTITIONS_PER_TOPIC = 100


def _wide_topics(scene: Scene, partitions: int) -> RawTransactions:
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        scene.make_topic(f"wide-{number}", PARTITIONS_PER_TOPIC)
    transactions = RawTransactions(scene.client(), "tx", is_v2=True)
    transactions.take_over()
    return transactions


def _one_transaction_over_all(scene: Scene, transactions: RawTransactions, partitions: int) -> str:
    """Write to thousands of partitions in one transaction, and commit; the first write to each partition adds it to the
    transaction.
    """
    client, producer = transactions.client, transactions.producer
    stamp = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": 0}
    batch = build_batch([Record(0, TIMESTAMP, None, b"x", [])], transactional=True, **stamp)
    for number in range(partitions):
        topic, partition = divmod(number, PARTITIONS_PER_TOPIC)
        request = produce_request(f"wide-{topic}", partition, batch)
        request.transactional_id = "tx"
        answer = client.call(request, ApiKey.PRODUCE, V2_PRODUCE)
        assert answer.responses[0].partition_responses[0].error_code == 0, (number, answer)
    end = EndTxnRequest(
        transactional_id="tx", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
    )
    assert client.call(end, ApiKey.END_TXN, V2_END).error_code == 0
    eventually(lambda: transactions.init(version=5) == 0, "the markers are written", 60)
    return f"{partitions} partitions in one transaction, committed"


def _make_topics(scene: Scene, _: None, partitions: int) -> str:
    """At the end the broker must still accept a new connection, although each log keeps its file open if possible."""
    client = scene.client()
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        client.create_topic(f"made-{number}", PARTITIONS_PER_TOPIC)
    with_new = scene.client(5.0)
    with_new.call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
    descriptors = len(os.listdir(Path("/proc") / str(scene.broker.pid) / "fd"))
    return f"{partitions} partitions made, {descriptors} descriptors open, a new connection is served"


CLIENTS = (
    HostileClient(
        "a transaction over many partitions", _one_transaction_over_all, size=2000, small=300, prepare=_wide_topics
    ),
    HostileClient("many partitions made at run time", _make_topics, size=3000, small=1000, open_files=2000),
)
