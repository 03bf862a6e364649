"""The tests of the service: `pytest examples/simulated_service`. docs/testing.md explains them."""

from __future__ import annotations

import pytest
from examples.simulated_service.billing import INVOICES, ORDERS, bill, bill_carelessly, order_of

from oncelog_simulation.application import Service, check_service


def test_each_order_is_billed_once() -> None:
    check_service(Service(bill, ORDERS, INVOICES, order_of), seeds=range(1, 6))


def test_a_careless_service_is_found_out() -> None:
    careless = Service(bill_carelessly, ORDERS, INVOICES, order_of)
    with pytest.raises(AssertionError, match="a record is duplicated"):
        check_service(careless, seeds=range(1, 21))
