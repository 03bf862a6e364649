"""Runs a consumer group member in a separate process, for tests that kill it: `python group_member.py '{...}'`.

The arguments are JSON: library (kafka-python, aiokafka, confluent), address, topic, group, strategy, session_ms,
instance_id, protocol ("consumer" for KIP-848, for which the broker determines strategy and session timeout). Each line
of the output is an event with the time of the machine's monotonic clock, which all processes share:

- `gained` lists the partitions that the member may read from now on.
- `lost` lists the partitions that the member no longer reads; the event is printed before the member gives them up.
- `read` has a partition and the offsets of records that the member read while it owned the partition; the member
commits these offsets after that.
- `closed` follows an orderly stop, which the line "stop" on the member's input requests.
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
import time
from collections.abc import Iterable
from typing import Any

HEARTBEAT_MS = 200
POLL_SECONDS = 0.1
KAFKA_PYTHON_POLL_SECONDS = 60.0
"""Seconds of one poll, longer than any rebalance. If a poll of kafka-python 3.0.12 times out at the moment at which the
consumer rejoins its group, the response to SyncGroup is lost, and the consumer never reads or sends heartbeats again.
The exception `ToldToStop` ends the poll early.
"""


class ToldToStop(Exception):
    """Raised between two rounds of a poll, to stop the member."""


def tell(event: str, **details: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, "at": time.monotonic(), **details}) + "\n")
    sys.stdout.flush()


def told_to_stop() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable)


def tell_read(records: Iterable[tuple[int, int]]) -> None:
    """Print the (partition, offset) pairs of the records that were read."""
    by_partition: dict[int, list[int]] = {}
    for partition, offset in records:
        by_partition.setdefault(partition, []).append(offset)
    for partition, offsets in by_partition.items():
        tell("read", partition=partition, offsets=offsets)


def run_confluent(wanted: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {
        "bootstrap.servers": wanted["address"],
        "group.id": wanted["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 500,
    }
    if wanted.get("protocol") == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {
            "session.timeout.ms": wanted["session_ms"],
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": wanted["strategy"],
        }
    if wanted.get("instance_id"):
        settings["group.instance.id"] = wanted["instance_id"]
    consumer = Consumer(settings)

    def gained(_: Any, partitions: list[TopicPartition]) -> None:
        tell("gained", partitions=[partition.partition for partition in partitions])

    def lost(_: Any, partitions: list[TopicPartition]) -> None:
        tell("lost", partitions=[partition.partition for partition in partitions])

    consumer.subscribe([wanted["topic"]], on_assign=gained, on_revoke=lost, on_lost=lost)
    while not told_to_stop():
        messages = [message for message in consumer.consume(500, POLL_SECONDS) if message.error() is None]
        tell_read((message.partition(), message.offset()) for message in messages)
        if messages:
            try:
                consumer.commit(asynchronous=False)
                tell("committed")
            except KafkaException as error:
                tell("commit failed", reason=str(error))
    tell("closing")
    consumer.close()


def run_kafka_python(wanted: dict[str, Any]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            tell("lost", partitions=[partition.partition for partition in revoked])

        def on_partitions_assigned(self, assigned: Any) -> None:
            tell("gained", partitions=[partition.partition for partition in assigned])

    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}

    class StoppableConsumer(KafkaConsumer):
        def _poll_once(self, *arguments: Any, **named: Any) -> Any:
            if told_to_stop():
                raise ToldToStop
            return super()._poll_once(*arguments, **named)

    consumer = StoppableConsumer(
        bootstrap_servers=wanted["address"],
        group_id=wanted["group"],
        group_instance_id=wanted.get("instance_id"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=wanted["session_ms"],
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=500,
        partition_assignment_strategy=[assignors[wanted["strategy"]]],
    )
    consumer.subscribe([wanted["topic"]], listener=Listener())
    while True:
        try:
            polled = consumer.poll(timeout_ms=int(KAFKA_PYTHON_POLL_SECONDS * 1000))
        except ToldToStop:
            break
        records = [(record.partition, record.offset) for records in polled.values() for record in records]
        tell_read(records)
        if records:
            try:
                consumer.commit()
                tell("committed")
            except KafkaError as error:
                tell("commit failed", reason=repr(error))
    tell("closing")
    consumer.close()


async def run_aiokafka(wanted: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell("lost", partitions=[partition.partition for partition in revoked])

        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell("gained", partitions=[partition.partition for partition in assigned])

    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=wanted["address"],
        group_id=wanted["group"],
        group_instance_id=wanted.get("instance_id"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=wanted["session_ms"],
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=500,
        partition_assignment_strategy=(assignors[wanted["strategy"]],),
    )
    consumer.subscribe([wanted["topic"]], listener=Listener())
    await consumer.start()
    while not told_to_stop():
        polled = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
        records = [(record.partition, record.offset) for records in polled.values() for record in records]
        tell_read(records)
        if records:
            try:
                await consumer.commit()
                tell("committed")
            except KafkaError as error:
                tell("commit failed", reason=repr(error))
    tell("closing")
    await consumer.stop()


async def run_oncelog(wanted: dict[str, Any]) -> None:
    from oncelog import Consumer, KafkaError, RebalanceListener

    class Listener(RebalanceListener):
        async def on_revoked(self, partitions: Any) -> None:
            tell("lost", partitions=[partition.partition for partition in partitions])

        async def on_lost(self, partitions: Any) -> None:
            tell("lost", partitions=[partition.partition for partition in partitions])

        async def on_assigned(self, partitions: Any) -> None:
            tell("gained", partitions=[partition.partition for partition in partitions])

    async with Consumer(
        wanted["address"],
        group_id=wanted["group"],
        group_instance_id=wanted.get("instance_id"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=wanted["session_ms"],
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=500,
        partition_assignment_strategy=[wanted["strategy"]],
    ) as consumer:
        consumer.subscribe([wanted["topic"]], listener=Listener())
        while not told_to_stop():
            polled = await consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
            records = [(record.partition, record.offset) for records in polled.values() for record in records]
            tell_read(records)
            if records:
                try:
                    await consumer.commit()
                    tell("committed")
                except KafkaError as error:
                    tell("commit failed", reason=repr(error))
        tell("closing")


def main() -> None:
    wanted = json.loads(sys.argv[1])
    library = wanted["library"]
    if library == "confluent":
        run_confluent(wanted)
    elif library == "kafka-python":
        run_kafka_python(wanted)
    elif library == "aiokafka":
        asyncio.run(run_aiokafka(wanted))
    else:
        asyncio.run(run_oncelog(wanted))
    tell("closed")


if __name__ == "__main__":
    main()
