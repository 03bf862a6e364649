"""The tests of the outbox: `pytest examples/simulated_service`. docs/testing.md explains them."""

from __future__ import annotations

import pytest
from examples.simulated_service.outbox_service import ORDERS, CarelessOutbox, Outbox

from oncelog_simulation.recorded_application import Application, check_application


def application(outbox: CarelessOutbox) -> Application:
    return Application(outbox.run, {ORDERS.topic: 1})


def test_each_row_is_written_once() -> None:
    check_application(lambda: application(Outbox()), seeds=range(1, 6))


def test_a_careless_outbox_is_found_out() -> None:
    with pytest.raises(AssertionError, match="a record is duplicated"):
        check_application(lambda: application(CarelessOutbox()), seeds=range(1, 41))
