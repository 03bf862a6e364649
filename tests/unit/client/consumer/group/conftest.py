"""The fake broker as coordinator of a consumer group of one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fake_group import Coordinator


@pytest.fixture
def coordinator(fake_broker: Any) -> Coordinator:
    return Coordinator(fake_broker)
