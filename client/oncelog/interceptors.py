"""Hooks of an application: called when records are sent, acknowledged and read, and when offsets are committed. Pure.

An exception of a hook is logged and changes nothing else. Hooks run inside the event loop, so they must not block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ProducerInterceptor:
    """The hooks of a producer: override those that you need, and pass objects as `interceptors`."""

    def on_send(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """A record was added to a batch. Key and value are serialized."""

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        """A record was acknowledged (`metadata` is its RecordMetadata), or has failed (`metadata` is None)."""


class ConsumerInterceptor:
    """The hooks of a consumer: override those that you need, and pass objects as `interceptors`."""

    def on_records(self, records: Sequence[Any]) -> None:
        """The consumer is about to return these ConsumerRecords."""

    def on_commit(self, offsets: Mapping[Any, Any]) -> None:
        """These offsets are committed: TopicPartition -> OffsetAndMetadata."""


def call_all(interceptors: Iterable[T], call: Callable[[T], object]) -> None:
    """Call a hook of each interceptor; log what one raises."""
    for each in interceptors:
        try:
            call(each)
        except Exception:
            logger.exception("an interceptor has failed: %s", type(each).__name__)
