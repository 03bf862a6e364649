"""A service of a user in the simulated world: the example of docs/testing.md."""

from __future__ import annotations

import pytest
from examples.simulated_service.billing import bill, bill_carelessly, order_of

from oncelog_simulation.application import Service, check_service

FOUND_BY = 12


def test_a_service_that_is_right_passes() -> None:
    check_service(Service(bill, "orders", "invoices", order_of, inputs=15), seeds=(1, 2))


def test_a_seed_finds_the_bug_of_a_careless_one() -> None:
    with pytest.raises(AssertionError, match=f"Seed {FOUND_BY}: .* violation"):
        check_service(Service(bill_carelessly, "orders", "invoices", order_of), seeds=(FOUND_BY,))
