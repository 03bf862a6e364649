"""Hooks of an application: called when records are sent, acknowledged and read, and when offsets are committed. Pure.

If a hook raises an exception, the exception is logged and has no other effect. Hooks run inside the event loop, so they
must not block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ProducerInterceptor:
    """The hooks of a producer; override the hooks that you need, and pass objects as `interceptors`."""

    def on_send(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Called when a record was added to a batch. Key and value are the serialized bytes."""

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        """Called when a record was acknowledged (`metadata` is its RecordMetadata) or has failed (`metadata` is
        None)."""


class ConsumerInterceptor:
    """The hooks of a consumer; override the hooks that you need, and pass objects as `interceptors`."""

    def on_records(self, records: Sequence[Any]) -> None:
        """Called before the consumer returns these ConsumerRecords."""

    def on_commit(self, offsets: Mapping[Any, Any]) -> None:
        """Called when these offsets are committed: TopicPartition -> OffsetAndMetadata."""


def call_all(interceptors: Iterable[T], call: Callable[[T], object]) -> None:
    """Call a hook of each interceptor; log the exceptions that hooks raise."""
    for each in interceptors:
        try:
            call(each)
        except Exception:
            logger.exception("an interceptor has failed: %s", type(each).__name__)
