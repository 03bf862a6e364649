"""How many connections there may be: in all, of one address, and beside the files that logs need."""

from __future__ import annotations

import pytest

from oncelog_broker.server.net.limits import COPIED_ANSWER_BYTES, Limits


def limits(*, connections: int = 10, per_ip: int = 10, descriptors: int = 10, response_bytes: int = -1) -> Limits:
    return Limits(connections, per_ip, 1 << 20, 1 << 20, response_bytes, 600.0, connection_descriptors=descriptors)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"connections": 2}, "max.connections=2 reached"),
        ({"per_ip": 2}, "max.connections.per.ip=2 reached for 10.0.0.1"),
        ({"descriptors": 2}, "raise the limit of open files"),
    ],
)
def test_one_too_many_is_told_why(given: dict[str, int], why: str) -> None:
    made = limits(**given)
    assert [made.admit("10.0.0.1") for _ in range(2)] == [None, None]
    assert why in (made.admit("10.0.0.1") or "")
    assert made.connections == 2, "one that is refused does not count"
    made.release("10.0.0.1")
    assert made.admit("10.0.0.1") is None


def test_another_address_has_a_number_of_its_own() -> None:
    made = limits(per_ip=1)
    assert made.admit("10.0.0.1") is None
    assert made.admit("10.0.0.2") is None
    made.release("10.0.0.1")
    assert set(made.per_ip) == {"10.0.0.2"}, "nothing is kept of an address without connections"


def test_copies_of_records_in_an_answer_are_a_quarter_of_what_one_may_hold() -> None:
    assert limits().copied_answer_bytes == COPIED_ANSWER_BYTES
    assert 0 < limits(response_bytes=1 << 20).copied_answer_bytes < (1 << 20) // 4
