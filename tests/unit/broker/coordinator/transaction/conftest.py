"""A transaction machine that a test can drive."""

from __future__ import annotations

import pytest
from tests.support.transactions import TransactionDriver


@pytest.fixture
def driver() -> TransactionDriver:
    return TransactionDriver()
