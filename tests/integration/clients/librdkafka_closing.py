"""Closes consumers of librdkafka, whose `close` occasionally never returns."""

from __future__ import annotations

import threading

import confluent_kafka

CLOSE_SECONDS = 20.0
LEFT_BEHIND: list[object] = []
"""Clients of librdkafka that do not end; they are kept here, because freeing one would block until it ends."""


def close_or_leave(consumer: confluent_kafka.Consumer) -> None:
    """librdkafka 2.10 and later waits for ever for a known broker that was missing from the metadata for a moment; a
    consumer that does so is abandoned after this many seconds.
    """
    closing = threading.Thread(target=consumer.close, daemon=True, name="closing of a consumer")
    closing.start()
    closing.join(CLOSE_SECONDS)
    if closing.is_alive():
        LEFT_BEHIND.append(consumer)
