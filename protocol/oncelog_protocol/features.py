"""The levels of features that brokers finalise for the entire cluster (KIP-584)."""

from __future__ import annotations

from typing import Final

TRANSACTIONS_V1: Final = 0
TRANSACTIONS_V2: Final = 2
"""Level of `transaction.version` from which every transaction has its own producer epoch (KIP-890)."""

SHARE_GROUPS: Final = 1
"""Level of `share.version` from which share groups exist (KIP-932)."""

STREAMS_GROUPS: Final = 1
"""Level of `streams.version` from which streams groups exist (KIP-1071)."""

CONSUMER_GROUPS: Final = 1
"""Level of `group.version` from which groups may use the consumer protocol (KIP-848)."""
