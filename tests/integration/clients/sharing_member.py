"""A member of a share group (KIP-932) that has acquired records, for tests that look at a broker meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Message, ShareConsumer
from foreign_clients import eventually

from oncelog import Admin
from oncelog.admin import AlterConfig, ConfigResource

POLL_SECONDS = 0.2


class SharingMember:
    """A member of librdkafka. `records` are the records that it got, which it has not acknowledged itself."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self.consumer = consumer
        self.records: list[Message] = []

    def until_it_got(self, count: int) -> None:
        """Poll until the member has got that many records."""

        def has_them() -> bool:
            for message in self.consumer.poll(POLL_SECONDS):
                assert message.error() is None, message.error()
                self.records.append(message)
            return len(self.records) >= count

        eventually(has_them, f"the member has got {count} records")


@contextmanager
def sharing(address: str, topic: str, group: str, count: int, **configs: str) -> Iterator[SharingMember]:
    """Yield a member of a new share group that has acquired the first `count` records of the topic. `configs` are
    settings of the group, with underscores in place of dots.
    """
    asyncio.run(_configure(address, group, {"share_auto_offset_reset": "earliest", **configs}))
    consumer = ShareConsumer(
        {"bootstrap.servers": address, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    try:
        consumer.subscribe([topic])
        member = SharingMember(consumer)
        member.until_it_got(count)
        yield member
    finally:
        consumer.close()


async def _configure(address: str, group: str, configs: dict[str, str]) -> None:
    changes = [AlterConfig(key.replace("_", "."), value) for key, value in configs.items()]
    async with Admin(address) as admin:
        await admin.incremental_alter_configs({ConfigResource.group(group): changes})
