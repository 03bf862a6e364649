"""Spans of records that are sent, polled and processed, and what their headers carry of them.

A span for each `send`, as OpenTelemetry's conventions for messaging want it where records are handed over one by one:
how they travel in batches is the producer's business, and a record's context must be its own. `send_columns` hands over
many at once, and has one span for all of them, whose context is in each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final, Protocol, cast

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, TextMapPropagator
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider

from oncelog.tracing import attributes
from oncelog.tracing.headers import check_headers, column_with_context, context_headers, with_context
from oncelog.tracing.transaction_span import TransactionSpan
from oncelog_protocol.records.batch import Buffer
from oncelog_protocol.records.builder import HeaderSequence

MAX_LINKS: Final = 128
"""As many links as a span has by default: more would be looked for in vain."""

Attributes = dict[str, str | int | bool]


class Traced(Protocol):
    """What we need of a ConsumerRecord."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> HeaderSequence: ...


class Sent(Protocol):
    """What we need of a RecordMetadata."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class _HeaderGetter(Getter[Mapping[str, str]]):
    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        value = carrier.get(key)
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


_GETTER: Final = _HeaderGetter()


class Tracing:
    """What a producer and a consumer tell of records. One may serve many of both.

        tracing = Tracing()
        async with Producer(address, tracing=tracing) as producer:
            ...

    `tracer_provider` and `propagator` are OpenTelemetry's; without them those that were set globally. Where nobody has
    set up a tracer no span is told of, and what a record carries goes on to those that are sent while it is processed.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        self._tracer = trace.get_tracer("oncelog", version("oncelog"), tracer_provider)
        self._propagator = propagator

    # what records carry

    @property
    def propagator(self) -> TextMapPropagator:
        """The global one is asked for each time: it may be set later than this is made."""
        return propagate.get_global_textmap() if self._propagator is None else self._propagator

    def context_of(self, record: Traced, onto: Context | None = None) -> Context:
        """What `record` carries: a span that others can have as parent or link, baggage. Nothing of what is current,
        unless `onto` is that: then what the record says takes its place."""
        return self._context_of(record.headers, Context() if onto is None else onto)

    def links_to(self, records: Iterable[Traced]) -> list[Link]:
        """To the spans in which `records` were sent, each once; to MAX_LINKS of them at most."""
        found: dict[tuple[int, int], Link] = {}
        for record in records:
            span = _span_of(self.context_of(record))
            if span.is_valid:
                found.setdefault((span.trace_id, span.span_id), Link(span))
                if len(found) >= MAX_LINKS:
                    break
        return list(found.values())

    def _context_of(self, headers: HeaderSequence, onto: Context) -> Context:
        propagator = self.propagator
        carried = context_headers(headers, propagator.fields)
        return propagator.extract(carried, onto, _GETTER) if carried else onto

    def _injected(self, span: Span) -> dict[str, str]:
        carried: dict[str, str] = {}
        self.propagator.inject(carried, trace.set_span_in_context(span))
        return carried

    # sending

    async def send(
        self,
        send: Callable[..., Awaitable[asyncio.Future[Any]]],
        client_id: str,
        topic: str,
        value: Buffer | None,
        key: Buffer | None,
        headers: HeaderSequence,
        **place: int | None,
    ) -> asyncio.Future[Any]:
        """`send` the record within a span that ends when the record is acknowledged, or has failed."""
        links: list[Link] = []
        context = contexts.get_current()
        if headers:
            check_headers(headers)
            own = _span_of(self._context_of(headers, Context()))
            links = [Link(own)] if own.is_valid else []
        told = _of("send", "send", topic, client_id)
        if value is None:
            told[attributes.TOMBSTONE] = True
        span = self._tracer.start_span(f"send {topic}", context, SpanKind.PRODUCER, told, links)
        carried = {} if links else self._injected(span)  # a context that the application has set stays, all of it
        return await _sent(span, send(topic, value, key, headers=with_context(headers, carried), **place))

    async def send_columns(
        self,
        send: Callable[..., Awaitable[asyncio.Future[Any]]],
        client_id: str,
        topic: str,
        partition: int,
        values: Sequence[Buffer | None],
        headers: Sequence[HeaderSequence] | None,
        **columns: Any,
    ) -> asyncio.Future[Any]:
        """As `send`, for all of them in one span."""
        told = _of("send", "send", topic, client_id)
        told |= {attributes.BATCH_SIZE: len(values), attributes.PARTITION: str(partition)}
        span = self._tracer.start_span(f"send {topic}", None, SpanKind.PRODUCER, told)
        try:
            traced = column_with_context(headers, len(values), self._injected(span))
        except TypeError as error:
            _end(span, error)
            raise
        return await _sent(span, send(topic, partition, values, headers=traced, **columns))

    def transaction(self, client_id: str, transactional_id: str, producer_id: int, epoch: int) -> TransactionSpan:
        """A transaction begins."""
        told: Attributes = {
            attributes.SYSTEM: attributes.KAFKA,
            attributes.CLIENT_ID: client_id,
            attributes.TRANSACTIONAL_ID: transactional_id,
            attributes.PRODUCER_ID: producer_id,
            attributes.PRODUCER_EPOCH: epoch,
        }
        return TransactionSpan(self._tracer.start_span("transaction", attributes=told))

    # reading

    def polled(self, started_ns: int, records: Sequence[Traced], client_id: str, group_id: str | None) -> None:
        """A poll that began at `started_ns` (Unix time) has brought `records`: a span with links to theirs."""
        told = _of("poll", "receive", _topic_of(records), client_id, group_id)
        told[attributes.BATCH_SIZE] = len(records)
        name = _named("poll", told)
        links = self.links_to(records)
        self._tracer.start_span(name, None, SpanKind.CLIENT, told, links, start_time=started_ns).end()

    @contextmanager
    def processing(
        self, records: Traced | Sequence[Traced], client_id: str | None = None, group_id: str | None = None
    ) -> Iterator[Span]:
        """Around the work on a record, or on several at once: what is sent meanwhile carries on their trace.

        The span of one record is a child of that in which it was sent, and has a link to what was current. That of
        several is a child of what is current, with links to those in which they were sent. An exception is noted, and
        goes on to the caller.
        """
        context = contexts.get_current()
        record, many = _one_or_many(records)
        if record is not None:
            told = _of("process", "process", record.topic, client_id, group_id)
            told |= {attributes.PARTITION: str(record.partition), attributes.OFFSET: record.offset}
            if record.value is None:
                told[attributes.TOMBSTONE] = True
            around = _span_of(context)
            context = self.context_of(record, context)
            links = [Link(around)] if around.is_valid and around != _span_of(context) else []
        else:
            told = _of("process", "process", _topic_of(many), client_id, group_id)
            told[attributes.BATCH_SIZE] = len(many)
            links = self.links_to(many)
        token = contexts.attach(context)  # with what else the record carries: its baggage
        try:
            with self._tracer.start_as_current_span(
                _named("process", told), None, SpanKind.CONSUMER, told, links
            ) as span:
                yield span
        finally:
            contexts.detach(token)

    def link_current(self, records: Sequence[Traced]) -> None:
        """What is current is about `records`."""
        span = trace.get_current_span()
        if span.is_recording():
            for link in self.links_to(records):
                span.add_link(link.context)


def _one_or_many(records: Traced | Sequence[Traced]) -> tuple[Traced | None, Sequence[Traced]]:
    """A record is a tuple, too: what it has tells them apart."""
    if hasattr(records, "headers"):
        return cast(Traced, records), ()
    return None, records


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
    if sent.offset >= 0:  # it is not known with acks=0
        span.set_attribute(attributes.OFFSET, sent.offset)
    span.end()


def _end(span: Span, error: BaseException) -> None:
    span.set_attribute(attributes.ERROR, attributes.error_type(error))
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()


def _span_of(context: Context) -> SpanContext:
    return trace.get_current_span(context).get_span_context()


def _of(operation: str, kind: str, topic: str | None, client_id: str | None, group_id: str | None = None) -> Attributes:
    told: Attributes = {
        attributes.SYSTEM: attributes.KAFKA,
        attributes.OPERATION: operation,
        attributes.OPERATION_TYPE: kind,
    }
    optional = ((attributes.TOPIC, topic), (attributes.CLIENT_ID, client_id), (attributes.GROUP, group_id))
    return told | {name: value for name, value in optional if value is not None}


def _topic_of(records: Sequence[Traced]) -> str | None:
    """None where there is more than one, or none."""
    topics = {record.topic for record in records}
    return topics.pop() if len(topics) == 1 else None


def _named(operation: str, told: Attributes) -> str:
    return f"{operation} {told[attributes.TOPIC]}" if attributes.TOPIC in told else operation
