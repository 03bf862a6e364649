"""A transaction that a marker has ended, in one partition."""

from __future__ import annotations

from typing import NamedTuple


class EndedTransaction(NamedTuple):
    """From its first record to its marker; no transaction below `last_stable_offset` was open when it ended (S51)."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's."""
    last_stable_offset: int
