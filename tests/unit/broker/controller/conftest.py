"""A cluster with one registered broker, which is the controller."""

from typing import Any

import pytest

from oncelog_broker.controller.leadership import Controllership, claim_controllership
from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.metadata.membership.registration import register_broker
from oncelog_broker.metadata.model.payloads import BrokerRegistration, Endpoint


@pytest.fixture
async def store(unreliable_store: Any) -> Any:
    await register_broker(unreliable_store, 1, BrokerRegistration((Endpoint("PLAINTEXT", "h", 1),)))
    return unreliable_store


@pytest.fixture
async def controller(store: Any) -> Controllership:
    controllership = await claim_controllership(store, 1, now_ms=1)
    assert controllership is not None
    return controllership


@pytest.fixture
async def term(store: Any, controller: Controllership) -> PartitionController:
    """Create the controller object for this term and read the entire tree into its view."""
    term = PartitionController(store, controller)
    await term.read_all()
    return term
