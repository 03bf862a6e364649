"""One broker's share partitions with real logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.share_world import ShareWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ShareWorld]:
    world = ShareWorld(tmp_path)
    yield world
    await world.close()
