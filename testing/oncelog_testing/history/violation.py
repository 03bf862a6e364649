"""The kinds of violations of a history."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__tracebackhide__ = True  # hides this module in the traceback of a failed test


class Kind(Enum):
    LOST = "an acknowledged record is missing"
    TWICE = "a record is duplicated"
    MOVED = "a record is not at the offset that was acknowledged, or read"
    INVENTED = "a record exists that no producer sent, or whose producer got an error"
    ABORTED = "of an aborted transaction something is to be seen"
    TORN = "a transaction is visible only in part"
    DISORDER = "the records of a producer are not in the order in which it sent them"
    SKIPPED = "a consumer got a later record, but not this one"
    READ_BACK = "a consumer got an offset that it had passed"
    PROCESSED_TWICE = "one input has two outputs"
    NOT_PROCESSED = "an input that a group has passed has no output"
    OFFSET_BACK = "a committed offset went back"
    OFFSET_INVENTED = "a committed offset that no client committed"
    REPLICAS_DIFFER = "replicas differ below the high watermark"
    TWO_LEADERS = "two brokers led in one epoch"


class Violation(NamedTuple):
    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.name} ({self.kind.value}): {self.what}"
