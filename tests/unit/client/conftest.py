"""A fake broker inside each test's own event loop, on both kinds of loop."""

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
    """Every test with a loop runs on both kinds: they differ in timers and transports.

    A test in which something must succeed within a timeout has `virtual_time`: on a busy machine no timeout is long
    enough.
    """
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def fake_broker() -> AsyncIterator[FakeBroker]:
    """A broker with the topic "topic" of one partition. The loop must not have complained when the test is over.

    Its port is its own also while it is stopped.
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
    """The fake broker as coordinator of transactions, without and with transactions V2 (KIP-890)."""
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
    """Client options by which retries take milliseconds."""
    return {
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 5,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
    }
