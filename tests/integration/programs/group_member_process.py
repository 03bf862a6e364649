"""Runs a member of a group in a separate process that tests kill: it prints the records that it reads.

    python group_member_process.py LIBRARY ADDRESS GROUP TOPIC STRATEGY SESSION_MS

The output lines are: "assigned 0 1 2", "revoked 0 1", "read PARTITION OFFSET VALUE". The process ends in an orderly way
when its standard input ends. LIBRARY is oncelog, aiokafka, kafka-python or confluent-kafka; the last two run in
threads.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Iterable
from typing import Any

POLL_SECONDS = 0.05
KAFKA_PYTHON_POLL_SECONDS = 60.0
"""Seconds of one poll, longer than any rebalance. If a poll of kafka-python 3.0.12 times out at the moment at which the
consumer rejoins its group, the consumer loses the response to SyncGroup and hangs. The exception `Over` ends the poll
early.
"""
HEARTBEAT_MS = 100


class Over(Exception):
    """Raised between two rounds of a poll, to stop the member."""


def say(*words: object) -> None:
    print(*words, flush=True)


def is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def numbers(partitions: Iterable[Any]) -> list[int]:
    return sorted(place.partition for place in partitions)


async def run_oncelog(address: str, group: str, topic: str, strategy: str, session_ms: int) -> None:
    from oncelog import Consumer, RebalanceListener

    class Listener(RebalanceListener):
        async def on_assigned(self, partitions: Any) -> None:
            say("assigned", *numbers(partitions))

        async def on_revoked(self, partitions: Any) -> None:
            say("revoked", *numbers(partitions))

    async with Consumer(
        address,
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[strategy],
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_commit_interval_ms=50,
    ) as consumer:
        consumer.subscribe([topic], listener=Listener())
        while not is_over():
            for records in (await consumer.poll(int(POLL_SECONDS * 1000))).values():
                for record in records:
                    say("read", record.partition, record.offset, (record.value or b"").decode())


async def run_aiokafka(address: str, group: str, topic: str, strategy: str, session_ms: int) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
    assignors["sticky"] = StickyPartitionAssignor

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", *numbers(assigned))

        async def on_partitions_revoked(self, revoked: Any) -> None:
            say("revoked", *numbers(revoked))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[assignors[strategy]],
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_commit_interval_ms=50,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    try:
        while not is_over():
            for records in (await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))).values():
                for record in records:
                    say("read", record.partition, record.offset, record.value.decode())
    finally:
        await consumer.stop()


def run_kafka_python(address: str, group: str, topic: str, strategy: str, session_ms: int) -> None:
    from kafka import KafkaConsumer
    from kafka.consumer.subscription_state import ConsumerRebalanceListener
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
    assignors |= {"sticky": StickyPartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", *numbers(assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            say("revoked", *numbers(revoked))

    class StoppableConsumer(KafkaConsumer):
        def _poll_once(self, *arguments: Any, **named: Any) -> Any:
            if is_over():
                raise Over
            return super()._poll_once(*arguments, **named)

    consumer = StoppableConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[assignors[strategy]],
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_commit_interval_ms=50,
    )
    consumer.subscribe([topic], listener=Listener())
    try:
        while True:
            for records in consumer.poll(timeout_ms=int(KAFKA_PYTHON_POLL_SECONDS * 1000)).values():
                for record in records:
                    say("read", record.partition, record.offset, record.value.decode())
    except Over:
        pass
    finally:
        consumer.close()


def run_confluent_kafka(address: str, group: str, topic: str, strategy: str, session_ms: int) -> None:
    from confluent_kafka import Consumer

    is_cooperative = strategy == "cooperative-sticky"

    def assigned(consumer: Any, partitions: Any) -> None:
        say("assigned", *numbers(partitions))
        (consumer.incremental_assign if is_cooperative else consumer.assign)(partitions)

    def revoked(consumer: Any, partitions: Any) -> None:
        say("revoked", *numbers(partitions))
        if is_cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "auto.commit.interval.ms": 50,
        }
    )
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
    try:
        while not is_over():
            record = consumer.poll(POLL_SECONDS)
            if record is not None and record.error() is None:
                say("read", record.partition(), record.offset(), record.value().decode())
    finally:
        consumer.close()


def main() -> None:
    library, address, group, topic, strategy, session_ms = sys.argv[1:]
    where = (address, group, topic, strategy, int(session_ms))
    if library == "oncelog":
        asyncio.run(run_oncelog(*where))
    elif library == "aiokafka":
        asyncio.run(run_aiokafka(*where))
    elif library == "kafka-python":
        run_kafka_python(*where)
    else:
        run_confluent_kafka(*where)


if __name__ == "__main__":
    main()
