"""Tests that the alerts of deploy/prometheus fire on the right metrics of a live broker, and on no others."""

from __future__ import annotations

from pathlib import Path

from broker_process import BrokerFactory
from raw_client import RawClient, produce_request
from raw_transactions import RawTransactions
from test_metrics import metrics_of, until
from tests.support.prometheus import OF_THE_MACHINE, firing
from tests.support.storage import make_batch

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch

NAMES = {
    "OncelogTransactionHangs": "kafka_server_replicamanager_partitionswithlatetransactionscount",
    "OncelogPreparedTransactionWaits": "oncelog_transactions_open_without_timeout",
}
"""Maps each alert to the metric that its expression uses."""


def test_alerts_fire_for_a_hanging_and_a_prepared_transaction_and_a_dead_broker(
    broker_factory: BrokerFactory, topic: str, tmp_path: Path
) -> None:
    broker = broker_factory({"http.listener": "0", "transaction.two.phase.commit.enable": "true"}).start()
    scrapes = tmp_path / "scrapes"
    scrapes.mkdir()
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        client.call(produce_request(topic, 0, make_batch()), ApiKey.PRODUCE, 9)
        healthy = metrics_of(broker).text
        assert firing({"a": [healthy]}, [], scrapes, apart_from=OF_THE_MACHINE) == ""

        # The records of raw producers have timestamps from 2023, so this transaction appears to have been open for
        # years.
        producer = RawTransactions(client, f"{topic}-id")
        producer.take_over()
        producer.write(topic)
        waiting = RawTransactions(client, f"{topic}-prepared")
        request = InitProducerIdRequest(
            transactional_id=waiting.transactional_id, transaction_timeout_ms=60_000, enable2_pc=True
        )
        granted = client.call(request, ApiKey.INIT_PRODUCER_ID, 6)
        waiting.producer = ProducerIdAndEpoch(granted.producer_id, granted.producer_epoch)
        waiting.write(topic)
        found = until(broker, lambda told: all(told(name) > 0 for name in NAMES.values()), "both are told")
    assert firing({"a": [found.text]}, NAMES, scrapes, apart_from=OF_THE_MACHINE) == ""
    both = {"a": [found.text], "b": []}
    assert firing(both, [*NAMES, "OncelogBrokerDown"], scrapes, apart_from=OF_THE_MACHINE) == ""
    assert "OncelogTransactionHangs" in firing(both, ["OncelogBrokerDown"], scrapes, apart_from=OF_THE_MACHINE)
