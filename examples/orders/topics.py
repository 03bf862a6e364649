"""Creates the topics of the pipeline that do not exist."""

from __future__ import annotations

from examples.orders.order import DEAD_LETTERS, ORDERS, PARTITIONS, REVENUE

from oncelog import Admin, NewTopic
from oncelog.errors import TopicAlreadyExists


async def create_topics(servers: str) -> None:
    """Create the missing topics. Raises KafkaError if no broker responds."""
    async with Admin(servers) as admin:
        for topic in (ORDERS, REVENUE, DEAD_LETTERS):
            try:
                await admin.create_topics([NewTopic(topic, PARTITIONS)])
            except TopicAlreadyExists:
                pass
