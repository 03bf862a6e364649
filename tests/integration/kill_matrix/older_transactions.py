"""Our client as before a broker that has no transactions V2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

NO_VERSION = 1 << 15


@contextmanager
def before_transactions_v2() -> Iterator[None]:
    """For every producer that starts meanwhile. Raises AttributeError where the client decides it elsewhere: just to
    assign the name would leave V2 on, and nobody would see it."""
    with patch("oncelog.producer.transactions.TRANSACTIONS_V2", NO_VERSION):
        yield
