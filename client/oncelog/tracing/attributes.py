"""Attribute names of OpenTelemetry's conventions for messaging and Kafka, and oncelog's own names for other attributes.

Record keys are not added to spans, because they are bytes and may contain personal data.
"""

from __future__ import annotations

from typing import Final

SYSTEM: Final = "messaging.system"
KAFKA: Final = "kafka"
CLIENT_ID: Final = "messaging.client.id"
GROUP: Final = "messaging.consumer.group.name"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
TOPIC: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
"""The attribute's value is a string."""
OFFSET: Final = "messaging.kafka.offset"
TOMBSTONE: Final = "messaging.kafka.message.tombstone"
BATCH_SIZE: Final = "messaging.batch.message_count"
ERROR: Final = "error.type"

TRANSACTIONAL_ID: Final = "oncelog.transactional_id"
PRODUCER_ID: Final = "oncelog.producer_id"
PRODUCER_EPOCH: Final = "oncelog.producer_epoch"
RESULT: Final = "oncelog.transaction.result"
"""The attribute's value is commit, abort, prepared (another process ends the transaction), or unknown."""


def error_type(error: BaseException) -> str:
    """Return the name of the error's class, so that monitoring can count errors by class."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
