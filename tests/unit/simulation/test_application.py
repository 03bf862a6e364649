"""A user's service in the simulated world, as in the example of docs/testing.md."""

from __future__ import annotations

import asyncio

import pytest
from examples.simulated_service.billing import INVOICES, ORDERS, bill, bill_carelessly, order_of

from oncelog_simulation.application import Service, check_service

KILLS = ("kill a client",)


def test_a_correct_service_passes() -> None:
    check_service(Service(bill, ORDERS, INVOICES, order_of, inputs=15), seeds=(1, 2), faults=KILLS)


def test_a_seed_finds_the_bug_of_a_careless_one() -> None:
    careless = Service(bill_carelessly, ORDERS, INVOICES, order_of)
    with pytest.raises(AssertionError, match=r"(?s)Seed \d+: .* violation.*TWICE.*invoice for orders"):
        check_service(careless, seeds=range(1, 6), faults=KILLS)


def test_an_action_that_a_service_never_does_is_reported() -> None:
    async def idle(servers: str) -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="service-1 has not ended"):
        check_service(Service(idle, ORDERS, INVOICES, order_of, inputs=3), seeds=(1,), faults=())
