"""The levels of features that brokers finalise for a whole cluster (KIP-584)."""

from __future__ import annotations

from typing import Final

TRANSACTIONS_V1: Final = 0
TRANSACTIONS_V2: Final = 2
"""Levels of `transaction.version`: from V2 on every transaction has an epoch of its own (KIP-890)."""

CONSUMER_GROUPS: Final = 1
"""Level of `group.version`: groups may use the consumer protocol (KIP-848)."""
