"""A service of a user in the simulated world: the example of docs/testing.md."""

from __future__ import annotations

import pytest
from examples.simulated_service.billing import bill, bill_carelessly, order_of

from oncelog_simulation.application import Service, check_service

SEEDS = range(16, 46)
"""The first one finds it today. A seed plays something else when the broker takes one turn of the loop more or less, so
others follow: about one in fifteen finds it."""


def test_a_service_that_is_right_passes() -> None:
    check_service(Service(bill, "orders", "invoices", order_of, inputs=15), seeds=(1, 2))


def test_a_seed_finds_the_bug_of_a_careless_one() -> None:
    with pytest.raises(AssertionError, match=r"Seed \d+: .* violation"):
        check_service(Service(bill_carelessly, "orders", "invoices", order_of), seeds=SEEDS)
