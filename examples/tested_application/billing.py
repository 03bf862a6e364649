"""The application under test: an invoice for each order, exactly once, with librdkafka.

Its input and output are one transaction; after any error, it starts again from the committed offsets.
"""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

PATIENCE_SECONDS = 60.0


def invoice_for(order: bytes) -> bytes:
    return b"invoice for " + order


def bill(servers: str, orders: str, invoices: str, count: int) -> None:
    """Run until so many orders have been billed by this process."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    # rebootstrap, the default, is for clusters: when the only broker closes a connection, librdkafka 2.16 forgets that
    # broker, and may wait for ever for the answer to its TxnOffsetCommit.
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
    """Whether the transaction is committed; if not, it is aborted. While the outcome is unknown, the question is asked
    again."""
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
