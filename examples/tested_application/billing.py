"""The application under test: it writes an invoice for each order, exactly once, with librdkafka.

The application reads its input and writes its output in one transaction; after any error, it restarts from the
committed offsets.
"""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

PATIENCE_SECONDS = 60.0


def invoice_for(order: bytes) -> bytes:
    return b"invoice for " + order


def bill(servers: str, orders: str, invoices: str, count: int) -> None:
    """Run until this process has billed `count` orders."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    # rebootstrap, the default, is meant for clusters: when the only broker closes a connection, librdkafka 2.16 forgets
    # that broker, and may wait for ever for the response to its TxnOffsetCommit.
    settings = {"bootstrap.servers": servers, "transactional.id": "billing", "metadata.recovery.strategy": "none"}
    producer = Producer(settings)
    producer.init_transactions(PATIENCE_SECONDS)
    consumer.subscribe([orders])
    billed = 0
    while billed < count:
        record = consumer.poll(PATIENCE_SECONDS)
        if record is None or record.error():
            continue
        producer.begin_transaction()
        producer.produce(invoices, invoice_for(record.value() or b""))
        after = TopicPartition(orders, record.partition() or 0, (record.offset() or 0) + 1)
        producer.send_offsets_to_transaction([after], consumer.consumer_group_metadata(), PATIENCE_SECONDS)
        if commit(producer):
            billed += 1
        else:
            consumer.seek(TopicPartition(orders, record.partition() or 0, record.offset() or 0))
    consumer.close()


def commit(producer: Producer) -> bool:
    """Commit the transaction, and return whether it is committed; if not, abort it. While the outcome is unknown, the
    commit is repeated.
    """
    while True:
        try:
            producer.commit_transaction(PATIENCE_SECONDS)
            return True
        except KafkaException as failure:
            error = failure.args[0]
            if error.txn_requires_abort():
                producer.abort_transaction(PATIENCE_SECONDS)
                return False
            if not error.retriable():
                raise
