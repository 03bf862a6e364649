"""Our client as before a broker that has no transactions V2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

NO_VERSION = 1 << 15


@contextmanager
def before_transactions_v2() -> Iterator[None]:
    """For every producer that starts in this block. Raises AttributeError if the client has moved that decision: just
    assigning the name would leave V2 on, unnoticed."""
    with patch("oncelog.producer.transactions.TRANSACTIONS_V2", NO_VERSION):
        yield
