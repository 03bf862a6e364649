"""Producer sequence numbers; only this module handles the wrap at 2^31 (semantics S10, S11).

A sequence number counts records per producer id and partition, from 0 to 2147483647 and then from 0 again. Several
clients handled this boundary wrongly (negative numbers, a skipped maximum), so all arithmetic on sequence numbers uses
this module.
"""

from __future__ import annotations

from typing import Final

MAX_SEQUENCE: Final = 2**31 - 1


def increment_sequence(sequence: int, increment: int) -> int:
    """Return the sequence number `increment` records after `sequence`: MAX_SEQUENCE + 1 is 0."""
    return (sequence + increment) & MAX_SEQUENCE


def decrement_sequence(sequence: int, decrement: int) -> int:
    """Return the sequence number `decrement` records before `sequence`: 0 - 1 is MAX_SEQUENCE."""
    return (sequence - decrement) & MAX_SEQUENCE


def in_sequence(last_sequence: int, next_sequence: int) -> bool:
    """Return whether `next_sequence` is the sequence number directly after `last_sequence` (S9)."""
    return next_sequence == (last_sequence + 1) & MAX_SEQUENCE
