"""Uses a compacted topic as the memory of a program: the topic stores the last value of each key.

If a value is written in the same transaction as the data that it describes, the value always agrees with the data that
is visible.
"""

from __future__ import annotations

from typing import Final

from oncelog import Admin, Consumer, NewTopic, TopicPartition
from oncelog.errors import TopicAlreadyExists

POLL_MS: Final = 1_000


async def ensure_state_topic(servers: str, topic: str) -> None:
    """Create the topic if it does not exist: one partition, in which compaction keeps the last value of each key."""
    async with Admin(servers) as admin:
        try:
            await admin.create_topics([NewTopic(topic, 1, configs={"cleanup.policy": "compact"})])
        except TopicAlreadyExists:
            pass


async def last_value(servers: str, topic: str, key: bytes) -> bytes | None:
    """Return the last committed value of the key; None if there is none.

    Call this function after a producer with the writer's transactional id has started. By then every transaction of
    earlier writers has been committed or aborted, and no earlier writer can write any more.
    """
    partition, found = TopicPartition(topic, 0), None
    async with Consumer(servers, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            for record in (await consumer.poll(POLL_MS)).get(partition, []):
                if record.key == key:
                    found = record.value
    return found
