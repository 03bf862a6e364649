"""Counts what happens to the records of all share partitions of this broker, for metrics. Pure."""

from __future__ import annotations

from oncelog_protocol.messages.share_fetch import AcknowledgeType

ACK_TYPES = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)
"""The acknowledgements that are counted: those that an application makes for a record."""


class ShareCounts:
    """Numbers of records since the start of the broker; they never decrease."""

    __slots__ = ("acknowledged", "first_deliveries", "lock_timeouts", "repeated_deliveries", "used_up")

    def __init__(self) -> None:
        self.first_deliveries = 0
        self.repeated_deliveries = 0
        """Deliveries of records that were delivered before."""
        self.acknowledged: dict[int, int] = dict.fromkeys(ACK_TYPES, 0)
        """Acknowledge type -> number of records for which a member sent it and had the lock."""
        self.lock_timeouts = 0
        """Records whose lock has expired."""
        self.used_up = 0
        """Records that were archived because a member released them, or lost its lock, after their last delivery."""

    def delivered(self, records: int, deliveries: int) -> None:
        """Count records that a member has acquired; `deliveries` includes this delivery."""
        if deliveries == 1:
            self.first_deliveries += records
        else:
            self.repeated_deliveries += records

    def said(self, kind: int, records: int) -> None:
        """Count acknowledgements of one type; the type GAP is not counted, because no application has the record."""
        if kind in self.acknowledged:
            self.acknowledged[kind] += records
