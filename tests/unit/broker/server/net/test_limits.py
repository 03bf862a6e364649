"""The limits on the number of connections: in total, per address, and from the descriptors that logs leave over."""

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
def test_a_connection_beyond_the_limit_is_refused_with_the_reason(given: dict[str, int], why: str) -> None:
    made = limits(**given)
    assert [made.admit("10.0.0.1") for _ in range(2)] == [None, None]
    assert why in (made.admit("10.0.0.1") or "")
    assert made.connections == 2, "one that is refused does not count"
    made.release("10.0.0.1")
    assert made.admit("10.0.0.1") is None


def test_each_address_has_its_own_limit() -> None:
    made = limits(per_ip=1)
    assert made.admit("10.0.0.1") is None
    assert made.admit("10.0.0.2") is None
    made.release("10.0.0.1")
    assert set(made.per_ip) == {"10.0.0.2"}, "nothing is kept of an address without connections"


def test_record_copies_in_an_answer_are_limited_to_a_quarter_of_a_share() -> None:
    assert limits().copied_answer_bytes == COPIED_ANSWER_BYTES
    assert 0 < limits(response_bytes=1 << 20).copied_answer_bytes < (1 << 20) // 4
