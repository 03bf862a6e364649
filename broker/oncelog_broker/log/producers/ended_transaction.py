"""The part of a transaction in one partition, after a marker has ended the transaction."""

from __future__ import annotations

from oncelog_protocol.light_classes import NamedTuple


class EndedTransaction(NamedTuple):
    """The offsets of a transaction, from its first record to its marker. No transaction below `last_stable_offset` was
    open when this transaction ended (S51).
    """

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
