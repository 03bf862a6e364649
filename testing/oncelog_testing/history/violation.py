"""Defines a violation in a history, and the kinds of violations."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__tracebackhide__ = True  # hides this module in the traceback of a failed test


class Kind(Enum):
    LOST = "an acknowledged record is missing"
    TWICE = "a record is duplicated"
    MOVED = "a record is not at its acknowledged offset, or at the offset at which it was read"
    INVENTED = "a record exists that no producer sent, or whose producer got an error"
    ABORTED = "a record or offset of an aborted transaction is visible"
    TORN = "a transaction is visible only in part"
    DISORDER = "the records of a producer are not in the order in which it sent them"
    SKIPPED = "a consumer got a later record, but not this record"
    READ_BACK = "a consumer got a record again whose offset it had already passed"
    PROCESSED_TWICE = "one input has two outputs"
    NOT_PROCESSED = "an input below a group's committed offset has no output"
    OFFSET_BACK = "the committed offset of a group went back"
    OFFSET_INVENTED = "a group has a committed offset that no client committed"
    DELIVERED_AGAIN = "a share group got a record again after the acceptance of the record was confirmed"
    DELIVERED_TOO_OFTEN = "a share group got a record more often than its limit of deliveries allows"
    PASSED_OVER = "a share group has finished a record that no member has accepted"
    REPLICAS_DIFFER = "replicas differ below the high watermark"
    TWO_LEADERS = "two brokers led in one epoch"


class Violation(NamedTuple):
    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.name} ({self.kind.value}): {self.what}"
