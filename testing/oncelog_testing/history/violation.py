"""The kinds of violations of a history."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__tracebackhide__ = True  # where a test fails, pytest shows the lines of the test and not ours


class Kind(Enum):
    LOST = "an acknowledged record is not there"
    TWICE = "a record is there twice"
    MOVED = "a record is not at the offset that was acknowledged, or read"
    INVENTED = "a record is there that nobody sent, or whose producer was told that it failed"
    ABORTED = "of an aborted transaction something is to be seen"
    TORN = "of a transaction a part is there and a part is not"
    DISORDER = "the records of a producer are not in the order in which it sent them"
    SKIPPED = "a consumer was given what follows a record, and not the record"
    READ_BACK = "a consumer was given an offset that it had passed"
    PROCESSED_TWICE = "of one input there are two outputs"
    NOT_PROCESSED = "of an input that a group has passed there is no output"
    OFFSET_BACK = "a committed offset went back"
    OFFSET_INVENTED = "a committed offset that nobody committed"
    REPLICAS_DIFFER = "replicas differ below the high watermark"
    TWO_LEADERS = "two brokers led in one epoch"


class Violation(NamedTuple):
    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.name} ({self.kind.value}): {self.what}"
