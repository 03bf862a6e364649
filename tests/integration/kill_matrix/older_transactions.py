"""Makes oncelog's client behave as with a broker that has no transactions V2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

NO_VERSION = 1 << 15


@contextmanager
def before_transactions_v2() -> Iterator[None]:
    """Disable transactions V2 for every producer that starts in this block. Raises AttributeError if the client has
    moved the patched name; otherwise an assignment to the old name would leave V2 enabled unnoticed.
    """
    with patch("oncelog.producer.transactions.TRANSACTIONS_V2", NO_VERSION):
        yield
