"""A stream from topic to topic of a cluster that lets in nobody without TLS and a login, with Kafka's own options."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from secured_broker import PASSWORD, USER, SecuredBroker
from streams import again_if_late

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition

ROWS = 40
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'


def options(broker: SecuredBroker) -> dict[str, str]:
    """As a user of Spark's connector has them, the option that switches TLS on in their place."""
    return {
        "kafka.bootstrap.servers": broker.address("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(broker.authority_file),
    }


async def fill(broker: SecuredBroker, topic: str, target: str) -> None:
    address = broker.address("PLAINTEXT")
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, 1), NewTopic(target, 1)])
    async with Producer(address) as producer:
        for number in range(ROWS):
            await producer.send(topic, b"%d" % number)


async def written(broker: SecuredBroker, target: str) -> Counter[bytes]:
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with Consumer(broker.address("PLAINTEXT"), **settings) as consumer:
        partition = TopicPartition(target, 0)
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        found: Counter[bytes] = Counter()
        async with asyncio.timeout(60):
            while await consumer.position(partition) < end:
                for records in (await consumer.poll(200)).values():
                    found.update(bytes(record.value or b"") for record in records)
    return found


@pytest.mark.timeout(300)
def test_a_stream_over_sasl_ssl(spark: Any, topic: str, checkpoint: str, tmp_path: Path) -> None:
    target = f"{topic}-out"
    with SecuredBroker(tmp_path) as broker:
        asyncio.run(fill(broker, topic, target))

        def run() -> None:
            reads = options(broker) | {"subscribe": topic, "startingOffsets": "earliest"}
            table = spark.readStream.format("oncelog").options(**reads).load()
            writer = table.select("value").writeStream.format("oncelog").options(**options(broker))
            writer = writer.option("topic", target).option("checkpointLocation", checkpoint).outputMode("append")
            writer.trigger(availableNow=True).start().awaitTermination()

        again_if_late(run)
        assert asyncio.run(written(broker, target)) == Counter(b"%d" % number for number in range(ROWS))
        assert "Traceback" not in broker.logged
