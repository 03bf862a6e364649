"""The fixture `coordinator` is a group coordinator here, and not the transaction coordinator as elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fake_group import Coordinator


@pytest.fixture
def coordinator(fake_broker: Any) -> Coordinator:
    return Coordinator(fake_broker)
