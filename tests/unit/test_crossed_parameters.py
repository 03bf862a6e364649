"""Of crossed parameters, `make test` runs each value, and half of the combinations."""

from __future__ import annotations

import pytest


@pytest.mark.crossed("level", "one", "other")
@pytest.mark.parametrize("one", range(2))
@pytest.mark.parametrize("other", range(3))
def test_the_other_half_is_left_to_the_soak(request: pytest.FixtureRequest, level: int, one: int, other: int) -> None:
    is_left = request.node.get_closest_marker("soak") is not None
    assert is_left == bool((level + one + other) % 2)


@pytest.fixture(params=range(2))
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)
