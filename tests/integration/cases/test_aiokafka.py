"""Runs the client contract with aiokafka against a live broker. aiokafka has no setting for protocol versions, because
it negotiates them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import TopicPartition
from aiokafka_client import Aiokafka
from client_contract import ClientContract
from foreign_clients import Refused

from oncelog_protocol.errors import ErrorCode


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Aiokafka]:
    client = Aiokafka(address)
    yield client
    client.close()


class TestAiokafka(ClientContract):
    pass


@pytest.mark.parametrize("partitions", [0, -2])
def test_a_topic_without_partitions_is_refused(client: Aiokafka, topic: str, partitions: int) -> None:
    with pytest.raises(Refused) as refusal:
        client.create_topic(topic, partitions)
    assert refusal.value.code == ErrorCode.INVALID_PARTITIONS


def test_a_waiting_consumer_gets_later_records(client: Aiokafka, topic: str) -> None:
    client.create_topic(topic)
    source = TopicPartition(topic, 0)

    async def wait_and_produce() -> bytes:
        async with client.consumer() as consumer:
            consumer.assign([source])
            consumer.seek(source, 0)
            waiting = asyncio.ensure_future(consumer.getone())
            # The consumer knows the high watermark after its first fetch, even if the response contains no record.
            while consumer.highwater(source) is None:  # noqa: ASYNC110 - the consumer has no event for it
                await asyncio.sleep(0.01)
            assert not waiting.done()
            async with client.producer() as producer:
                await producer.send_and_wait(topic, b"later", partition=0)
            return (await waiting).value

    assert client.run(wait_and_produce()) == b"later"
