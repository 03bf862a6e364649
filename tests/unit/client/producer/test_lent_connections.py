"""Producers that use the connections of an admin client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator
from tests.support.loop_turns import settle

from oncelog.admin import Admin
from oncelog.errors import ClientClosed, ConfigError, ConnectionFailed
from oncelog.producer.producer import Producer
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.produce import ProduceRequest


async def test_transactional_producers_make_no_connection(coordinator: FakeCoordinator) -> None:
    broker = coordinator.broker
    async with Admin(broker.address) as admin:
        asked = len(broker.requests_of(MetadataRequest))
        for name in ("first", "second"):
            producer = Producer(broker.address, transactional_id=name, connections=admin.connections)
            async with producer, producer.transaction():
                await producer.send_and_wait("topic", name.encode())
        assert len(broker.requests_of(MetadataRequest)) == asked + 2, "each asks for its topic, and not for the brokers"
        await admin.describe_topics(["topic"])
        assert broker.connections == 1
    assert [each.committed for each in broker.requests_of(EndTxnRequest)] == [True, True]
    assert [record.value for record in broker.records()] == [b"first", b"second"]


async def test_an_open_transaction_is_aborted_at_close_and_others_go_on(coordinator: FakeCoordinator) -> None:
    broker = coordinator.broker
    async with Admin(broker.address) as admin:
        failed, other = (
            Producer(broker.address, transactional_id=name, connections=admin.connections)
            for name in ("failed", "other")
        )
        await failed.start()
        await other.start()
        for producer in (failed, other):
            producer.begin_transaction()
            await producer.send_and_wait("topic", b"v")
        await failed.close()
        await other.commit_transaction()
        await other.close()
        assert broker.connections == 1
    told = {each.transactional_id: each.committed for each in broker.requests_of(EndTxnRequest)}
    assert told == {"failed": False, "other": True}


async def test_a_response_after_close_is_ignored(fake_broker: Any) -> None:
    """The connection stays open, so a response to a producer that is closed may arrive."""
    answers: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def late(request: Any) -> Any:
        await answers
        return fake_broker.on_produce(request)

    async with Admin(fake_broker.address) as admin:
        producer = Producer(fake_broker.address, connections=admin.connections)
        await producer.start()
        fake_broker.handlers[ProduceRequest] = late
        sent = await producer.send("topic", b"v")
        await fake_broker.received(ProduceRequest)
        await producer.close(timeout_s=0)
        with pytest.raises(ClientClosed):
            await sent
        answers.set_result(None)
        await admin.describe_topics(["topic"])
        await settle()
        assert fake_broker.connections == 1
    assert len(fake_broker.records()) == 1


async def test_start_fails_if_no_broker_can_be_reached(fake_broker: Any) -> None:
    async with Admin(fake_broker.address) as admin:
        await fake_broker.stop()
        producer = Producer(fake_broker.address, connections=admin.connections)
        with pytest.raises(ConnectionFailed):
            await producer.start()


async def test_connections_need_an_open_admin_client_and_its_options(fake_broker: Any) -> None:
    admin = Admin(fake_broker.address)
    with pytest.raises(ClientClosed, match="not started"):
        _ = admin.connections
    async with admin:
        with pytest.raises(ConfigError, match="acks=0"):
            Producer(fake_broker.address, acks=0, connections=admin.connections)
        with pytest.raises(ConfigError, match="client_id"):
            Producer(fake_broker.address, client_id="another", connections=admin.connections)
        late = Producer(fake_broker.address, connections=admin.connections)
    with pytest.raises(ClientClosed):
        await late.start()
    await late.close()
