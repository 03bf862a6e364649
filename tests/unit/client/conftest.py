"""A fake broker inside each test's own event loop, for asyncio's loop and for uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop
from tests.support.fake_broker import FakeBroker
from tests.support.fake_transactions import FakeCoordinator, HangUp
from tests.support.virtual_time import VirtualTimeLoop

from oncelog_broker.local_cluster.ports import own_ports


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """Every test with an event loop runs on both kinds of loop, because they differ in timers and transports.

    A test whose success depends on a timeout has the mark `virtual_time`, because no real timeout is long enough on a
    busy machine.
    """
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def fake_broker() -> AsyncIterator[FakeBroker]:
    """A broker with the topic "topic", which has one partition. The fixture fails if the loop logged an error during
    the test.

    The broker's port stays reserved for it, even while the broker is stopped.
    """
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    broker = FakeBroker()
    (own_port,) = own_ports(1)
    broker.port = own_port.number
    await broker.start()
    yield broker
    await broker.stop()
    assert not complaints


@pytest.fixture(params=["V1", "V2"])
def coordinator(fake_broker: FakeBroker, request: pytest.FixtureRequest) -> FakeCoordinator:
    """The fake broker as transaction coordinator, once with transactions V1 and once with V2 (KIP-890)."""
    return FakeCoordinator(fake_broker, is_v2=request.param == "V2")


@pytest.fixture
def coordinator_v1(fake_broker: FakeBroker) -> FakeCoordinator:
    return FakeCoordinator(fake_broker, is_v2=False)


@pytest.fixture
def coordinator_v2(fake_broker: FakeBroker) -> FakeCoordinator:
    return FakeCoordinator(fake_broker, is_v2=True)


@pytest.fixture
def hang_up() -> type[Exception]:
    return HangUp


@pytest.fixture
def fast() -> dict[str, int]:
    """Client options with which retries take milliseconds."""
    return {
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 5,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
    }
