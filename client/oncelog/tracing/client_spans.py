"""Spans of a producer or consumer, and the trace context in the headers of sent records.

Each `send` has its own span, as OpenTelemetry's conventions require if records are sent one by one: batches are
internal to the producer, and a record needs its own context. `send_columns` sends many records with one span, whose
context is added to each record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from oncelog.tracing import attributes
from oncelog.tracing.headers import checked, column_with_context, with_context
from oncelog.tracing.tracing import Traced, Tracing, name_of, operation, span_of, topic_of
from oncelog.tracing.transaction_span import TransactionSpan
from oncelog_protocol.records.batch import Buffer
from oncelog_protocol.records.builder import HeaderSequence

Send = Callable[..., Awaitable[asyncio.Future[Any]]]
"""The method `Producer.send` or `send_columns`, which is called with the headers that include the trace context."""


class Sent(Protocol):
    """The attributes of RecordMetadata that spans use."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class ClientSpans:
    """The spans of one client; `group_id` is the group of a consumer."""

    def __init__(self, tracing: Tracing, client_id: str, group_id: str | None) -> None:
        self.tracing = tracing
        self.client_id = client_id
        self.group_id = group_id

    async def send(
        self,
        send: Send,
        topic: str,
        value: Any,
        key: Any,
        headers: HeaderSequence,
        **place: int | None,
    ) -> asyncio.Future[Any]:
        """Call `send` for a record within a span, which ends when the record is acknowledged or has failed. If the
        application has set a trace context in the headers, that context is kept, and the new span links to it.
        """
        links: list[Link] = []
        if headers:
            headers = checked(headers)
            own = span_of(self.tracing.context_in(headers))
            links = [Link(own)] if own.is_valid else []
        told = operation("send", "send", topic, self.client_id)
        if value is None:
            told[attributes.TOMBSTONE] = True
        span = self.tracing.tracer.start_span(name_of(told), None, SpanKind.PRODUCER, told, links)
        carried = {} if links else self._carried(span)
        return await _sent(span, send(topic, value, key, headers=with_context(headers, carried), **place))

    async def send_columns(
        self,
        send: Send,
        topic: str,
        partition: int,
        values: Sequence[Buffer | None],
        headers: Sequence[HeaderSequence] | None,
        **columns: Any,
    ) -> asyncio.Future[Any]:
        """Call `send_columns` within one span for all records."""
        told = operation("send", "send", topic, self.client_id)
        told |= {attributes.BATCH_SIZE: len(values), attributes.PARTITION: str(partition)}
        span = self.tracing.tracer.start_span(name_of(told), None, SpanKind.PRODUCER, told)
        try:
            traced = column_with_context(headers, len(values), self._carried(span))
        except TypeError as error:
            _end(span, error)
            raise
        return await _sent(span, send(topic, partition, values, headers=traced, **columns))

    def transaction(self, transactional_id: str, producer_id: int, epoch: int) -> TransactionSpan:
        """Create the span of a transaction that begins."""
        told: dict[str, str | int] = {
            attributes.SYSTEM: attributes.KAFKA,
            attributes.CLIENT_ID: self.client_id,
            attributes.TRANSACTIONAL_ID: transactional_id,
            attributes.PRODUCER_ID: producer_id,
            attributes.PRODUCER_EPOCH: epoch,
        }
        return TransactionSpan(self.tracing.tracer.start_span("transaction", attributes=told))

    def is_about(self, records: Sequence[Traced]) -> None:
        """Link the current span to the spans in which `records` were sent."""
        self._link(trace.get_current_span(), records)

    def polled(self, started_ns: int, records: Sequence[Traced]) -> None:
        """Add a span for a poll that began at `started_ns` (Unix time) and returned `records`, with links to the spans
        in which the records were sent.
        """
        told = operation("poll", "receive", topic_of(records), self.client_id, self.group_id)
        told[attributes.BATCH_SIZE] = len(records)
        span = self.tracing.tracer.start_span(name_of(told), None, SpanKind.CLIENT, told, start_time=started_ns)
        self._link(span, records)
        span.end()

    def _link(self, span: Span, records: Sequence[Traced]) -> None:
        if span.is_recording():  # add links only if the span is recorded
            for link in self.tracing.links_to(records):
                span.add_link(link.context)

    def _carried(self, span: Span) -> dict[str, str]:
        carried: dict[str, str] = {}
        self.tracing.propagator.inject(carried, trace.set_span_in_context(span))
        return carried


async def _sent(span: Span, sending: Awaitable[asyncio.Future[Any]]) -> asyncio.Future[Any]:
    try:
        future = await sending
    except BaseException as error:
        _end(span, error)
        raise
    if span.is_recording():
        future.add_done_callback(lambda done: _acknowledged(span, done))
    return future


def _acknowledged(span: Span, future: asyncio.Future[Sent]) -> None:
    if future.cancelled():
        _end(span, asyncio.CancelledError())
        return
    error = future.exception()
    if error is not None:
        _end(span, error)
        return
    sent = future.result()
    span.set_attribute(attributes.PARTITION, str(sent.partition))
    if sent.offset >= 0:  # the offset is unknown with acks=0
        span.set_attribute(attributes.OFFSET, sent.offset)
    span.end()


def _end(span: Span, error: BaseException) -> None:
    span.set_attribute(attributes.ERROR, attributes.error_type(error))
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()
