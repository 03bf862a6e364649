"""tests/unit/test_zookeeper_marks.py runs this file without ZooKeeper: one test declares that it needs ZooKeeper, the
other does not declare it.
"""

from __future__ import annotations

import pytest


def test_that_says_so(zookeeper: str) -> None:
    raise AssertionError("this run is without ZooKeeper")


def test_that_does_not(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("zookeeper")
