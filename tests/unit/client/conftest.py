"""A fake broker inside each test's own event loop, for asyncio's loop and for uvloop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.support.fake_broker import FakeBroker
from tests.support.fake_transactions import FakeCoordinator, HangUp
from tests.support.virtual_time import VirtualTimeLoop

from oncelog_broker.local_cluster.ports import own_ports

LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
ON_BOTH_LOOPS = Path(__file__).parent / "connection"
"""The tests of the only modules that use transports, in which the two kinds of loop differ most."""


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the loop that ONCELOG_TEST_LOOP names: `make test-pythons` runs all of them on each kind of loop. By
    default they run on asyncio's loop, and those of connections on both.

    A test whose success depends on a timeout has the mark `virtual_time`, because no real timeout is long enough on a
    busy machine.
    """
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    if asked := os.environ.get("ONCELOG_TEST_LOOP"):
        return {asked: LOOPS[asked]}
    return LOOPS if ON_BOTH_LOOPS in item.path.parents else {"asyncio": LOOPS["asyncio"]}


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
