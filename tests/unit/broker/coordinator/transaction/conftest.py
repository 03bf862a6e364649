"""A transaction machine for tests."""

from __future__ import annotations

import pytest
from tests.support.transactions import TransactionDriver


@pytest.fixture
def driver() -> TransactionDriver:
    return TransactionDriver()
