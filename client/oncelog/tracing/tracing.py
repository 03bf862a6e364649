"""The trace context that records carry, and spans of their processing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from typing import Final, Protocol, cast

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, TextMapPropagator
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TracerProvider

from oncelog.tracing import attributes
from oncelog.tracing.headers import context_headers
from oncelog_protocol.records.builder import HeaderSequence

MAX_LINKS: Final = 128
"""The default limit of a span's links; OpenTelemetry would drop further links."""

MAX_LOOKED_AT: Final = 1024
"""Maximum number of records searched for links, because a poll may return very many records and the search blocks the
event loop.
"""

Attributes = dict[str, str | int | bool]


class Traced(Protocol):
    """The attributes of ConsumerRecord that spans use."""

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


class _HeaderGetter(Getter[Mapping[str, str]]):
    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        value = carrier.get(key)
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


_GETTER: Final = _HeaderGetter()


class Tracing:
    """The value of the option `tracing`; one Tracing may serve many producers and consumers.

    `tracer_provider` and `propagator` are objects of OpenTelemetry; by default the global objects are used. Without a
    configured tracer, no spans are reported, but a record's context is still passed on to records that are sent during
    its processing.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        self.tracer = trace.get_tracer("oncelog", version("oncelog"), tracer_provider)
        self._propagator = propagator

    @property
    def propagator(self) -> TextMapPropagator:
        """The global propagator is read at each use, because the application may set it after it has created this
        object.
        """
        return propagate.get_global_textmap() if self._propagator is None else self._propagator

    def context_of(self, record: Traced, onto: Context | None = None) -> Context:
        """Return the context of `record`: the span in which it was sent, and baggage. With `onto`, such as the current
        context, the result also has the values of `onto` that the record does not set.
        """
        return self.context_in(record.headers, onto)

    def context_in(self, headers: HeaderSequence, onto: Context | None = None) -> Context:
        """Return the trace context in `headers`: the span in which the record was sent, and baggage."""
        context = Context() if onto is None else onto
        propagator = self.propagator
        carried = context_headers(headers, propagator.fields)
        return propagator.extract(carried, context, _GETTER) if carried else context

    def links_to(self, records: Iterable[Traced]) -> list[Link]:
        """Return links to the spans in which `records` were sent, without duplicates: at most MAX_LINKS links, from the
        first MAX_LOOKED_AT records.
        """
        found: dict[tuple[int, int], Link] = {}
        for record in islice(records, MAX_LOOKED_AT):
            span = span_of(self.context_of(record))
            if span.is_valid:
                found.setdefault((span.trace_id, span.span_id), Link(span))
                if len(found) >= MAX_LINKS:
                    break
        return list(found.values())

    @contextmanager
    def processing(
        self, records: Traced | Sequence[Traced], client_id: str | None = None, group_id: str | None = None
    ) -> Iterator[Span]:
        """Wrap the processing of one or several records; records that are sent in the block continue their trace.

        The span of one record is a child of the span in which the record was sent, with a link to the current span. The
        span of several records is a child of the current span, with links to the spans in which the records were sent.
        An
        exception is recorded, and propagates.
        """
        context = contexts.get_current()
        record, many = _one_or_many(records)
        if record is not None:
            told = operation("process", "process", record.topic, client_id, group_id)
            told |= {attributes.PARTITION: str(record.partition), attributes.OFFSET: record.offset}
            if record.value is None:
                told[attributes.TOMBSTONE] = True
            around = span_of(context)
            context = self.context_of(record, context)
            links = [Link(around)] if around.is_valid and around != span_of(context) else []
        else:
            told = operation("process", "process", topic_of(many), client_id, group_id)
            told[attributes.BATCH_SIZE] = len(many)
            links = self.links_to(many)
        token = contexts.attach(context)  # the new context also has the record's baggage
        try:
            with self.tracer.start_as_current_span(name_of(told), None, SpanKind.CONSUMER, told, links) as span:
                yield span
        finally:
            contexts.detach(token)


def span_of(context: Context) -> SpanContext:
    return trace.get_current_span(context).get_span_context()


def operation(
    name: str, kind: str, topic: str | None, client_id: str | None, group_id: str | None = None
) -> Attributes:
    """Return the common attributes; `kind` is one of OpenTelemetry's operation types."""
    told: Attributes = {
        attributes.SYSTEM: attributes.KAFKA,
        attributes.OPERATION: name,
        attributes.OPERATION_TYPE: kind,
    }
    optional = ((attributes.TOPIC, topic), (attributes.CLIENT_ID, client_id), (attributes.GROUP, group_id))
    return told | {key: value for key, value in optional if value is not None}


def name_of(told: Attributes) -> str:
    """Return the span name of an operation."""
    name = str(told[attributes.OPERATION])
    return f"{name} {told[attributes.TOPIC]}" if attributes.TOPIC in told else name


def topic_of(records: Sequence[Traced]) -> str | None:
    """Return the topic of the records; None if there are several topics or no records."""
    topics = {record.topic for record in records}
    return topics.pop() if len(topics) == 1 else None


def _one_or_many(records: Traced | Sequence[Traced]) -> tuple[Traced | None, Sequence[Traced]]:
    """Distinguish a single record from a sequence of records: a record is a tuple, and therefore a sequence too."""
    if hasattr(records, "headers"):
        return cast(Traced, records), ()
    return None, records
