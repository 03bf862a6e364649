"""The tests of the service: `pytest examples/simulated_service`. docs/testing.md explains what is used here."""

from __future__ import annotations

import pytest
from examples.simulated_service.billing import bill, bill_carelessly, order_of

from oncelog_simulation.application import Service, check_service


def test_each_order_is_billed_once() -> None:
    check_service(Service(bill, "orders", "invoices", order_of), seeds=range(1, 4))


def test_a_careless_service_is_found_out() -> None:
    careless = Service(bill_carelessly, "orders", "invoices", order_of)
    with pytest.raises(AssertionError, match="TWICE"):
        check_service(careless, seeds=range(1, 31))
