"""Partitions that this broker leads, for the handlers of Produce, Fetch and other requests about records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.served import LEADER, Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Two partitions with one replica each, which this broker leads in epoch 0. Some test modules override this fixture
    with another one of the same name.
    """
    made = Served(tmp_path, partitions=2)
    for partition in made.partitions:
        partition.lead(0, (LEADER,))
    yield made
    made.leave()
