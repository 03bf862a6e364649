"""Spans of producer and consumer, and the trace context in records (OpenTelemetry, W3C Trace Context)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as conventions
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from tests.support.fake_transactions import FakeCoordinator
from tests.support.self_encoding_rows import Rows
from tests.support.transactional_producers import GROUP, started

from oncelog import Consumer, Producer, TopicPartition
from oncelog.config import ConsumerConfig, load
from oncelog.consume_process_produce import consume_process_produce
from oncelog.consumer.records import ConsumerRecord
from oncelog.errors import AbortableError, ConfigError, ErrorCode, FatalError, KafkaError
from oncelog.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.tracing import Tracing, attributes
from oncelog.tracing.headers import MAX_CONTEXT_BYTES, context_headers
from oncelog.tracing.tracing import MAX_LINKS, MAX_LOOKED_AT
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.produce import ProduceRequest

TRACE, SPAN = 0xA0000000000000000000000000000001, 0xB000000000000001
TRACEPARENT = f"00-{TRACE:032x}-{SPAN:016x}-01"
PROPAGATOR = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


class Traces:
    """Provides a tracer that stores its spans, and the client's Tracing object with this tracer."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(self.provider, PROPAGATOR)
        self.tracer = self.provider.get_tracer("test")

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == name]


@pytest.fixture
def traces() -> Traces:
    return Traces()


def record(headers: Any = (), offset: int = 0, value: bytes | None = b"v") -> ConsumerRecord:
    return ConsumerRecord("in", 3, offset, 0, 0, None, value, headers, 0)


def carried_by(record: Any) -> dict[str, str]:
    return {name: bytes(value).decode() for name, value in record.headers}


def context_of(span: ReadableSpan) -> Any:
    assert span.context is not None
    return span.context


def parent_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


def refuse_all(broker: Any) -> None:
    """Let the broker refuse every record."""
    refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.handlers[ProduceRequest] = lambda request: broker.produced(request, lambda name, data: (refusal, -1))


def told_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# --- the reported spans


def test_names_are_those_of_the_conventions() -> None:
    ours = {name: value for name, value in vars(attributes).items() if name.isupper()}
    own = {name for name, value in ours.items() if value.startswith("oncelog.")}
    theirs = {
        "SYSTEM": conventions.MESSAGING_SYSTEM,
        "KAFKA": conventions.MessagingSystemValues.KAFKA.value,
        "CLIENT_ID": conventions.MESSAGING_CLIENT_ID,
        "GROUP": conventions.MESSAGING_CONSUMER_GROUP_NAME,
        "OPERATION": conventions.MESSAGING_OPERATION_NAME,
        "OPERATION_TYPE": conventions.MESSAGING_OPERATION_TYPE,
        "TOPIC": conventions.MESSAGING_DESTINATION_NAME,
        "PARTITION": conventions.MESSAGING_DESTINATION_PARTITION_ID,
        "OFFSET": conventions.MESSAGING_KAFKA_OFFSET,
        "TOMBSTONE": conventions.MESSAGING_KAFKA_MESSAGE_TOMBSTONE,
        "BATCH_SIZE": conventions.MESSAGING_BATCH_MESSAGE_COUNT,
        "ERROR": error_attributes.ERROR_TYPE,
    }
    assert {name: ours[name] for name in ours.keys() - own} == theirs
    assert own == {"TRANSACTIONAL_ID", "PRODUCER_ID", "PRODUCER_EPOCH", "RESULT"}


async def test_each_send_has_a_span_whose_context_its_record_carries(fake_broker: Any, traces: Traces) -> None:
    async with Producer(fake_broker.address, tracing=traces.tracing, client_id="shop") as producer:
        with traces.tracer.start_as_current_span("order") as order:
            futures = [await producer.send("topic", value, headers=[("h", b"x")]) for value in (b"a", None)]
            await asyncio.gather(*futures)
    first, second = traces.named("send topic")
    for span, written in zip((first, second), fake_broker.records(), strict=True):
        assert span.kind is SpanKind.PRODUCER
        assert parent_of(span) == (order.get_span_context().trace_id, order.get_span_context().span_id)
        own = context_of(span)
        traceparent = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
        assert carried_by(written) == {"h": "x", "traceparent": traceparent}
        assert span.status.status_code is StatusCode.UNSET
    told = {
        "messaging.system": "kafka",
        "messaging.client.id": "shop",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "topic",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    assert told_of(first) == told
    assert told_of(second) == {**told, "messaging.kafka.offset": 1, "messaging.kafka.message.tombstone": True}


async def test_baggage_and_state_go_with_a_record(fake_broker: Any, traces: Traces) -> None:
    incoming = traces.tracing.context_of(
        record([("traceparent", TRACEPARENT.encode()), ("tracestate", b"vendor=1"), ("baggage", b"tenant=blue")])
    )
    async with Producer(fake_broker.address, tracing=traces.tracing) as producer:
        token = trace.context_api.attach(incoming)
        try:
            await producer.send_and_wait("topic", b"v")
        finally:
            trace.context_api.detach(token)
    carried = carried_by(fake_broker.records()[0])
    assert carried["baggage"] == "tenant=blue"
    assert carried["tracestate"] == "vendor=1"
    assert f"{TRACE:032x}" in carried["traceparent"]


async def test_a_context_that_the_application_has_set_stays(fake_broker: Any, traces: Traces) -> None:
    own = [("traceparent", TRACEPARENT.encode())]
    async with Producer(fake_broker.address, tracing=traces.tracing) as producer:
        with traces.tracer.start_as_current_span("order"):
            token = trace.context_api.attach(baggage.set_baggage("tenant", "blue"))
            try:
                await producer.send_and_wait("topic", b"v", headers=own)
            finally:
                trace.context_api.detach(token)
            await producer.send_and_wait("topic", b"v", headers=[("traceparent", b"no context")])
    first, second = fake_broker.records()
    assert [(name, bytes(value)) for name, value in first.headers] == own, "also what of it is not there"
    assert [(name, bytes(value)) for name, value in second.headers] == [("traceparent", b"no context")]
    spans = traces.named("send topic")
    assert [[(link.context.trace_id, link.context.span_id) for link in span.links] for span in spans] == [
        [(TRACE, SPAN)],
        [],
    ]


async def test_columns_have_one_span_and_its_context_in_each_record(fake_broker: Any, traces: Traces) -> None:
    async with Producer(fake_broker.address, tracing=traces.tracing) as producer:
        await (await producer.send_columns("topic", 0, [b"v"] * 3))
        rows: list[Any] = [(), [("traceparent", TRACEPARENT.encode())]]
        await (await producer.send_columns("topic", 0, [b"v"] * 2, headers=rows))
        with pytest.raises(ValueError, match="headers: 2 for 1 values"):
            await producer.send_columns("topic", 0, [b"v"], headers=rows)
    plain, own, refused = traces.named("send topic")
    written = [carried_by(each)["traceparent"] for each in fake_broker.records()]
    assert written[0].split("-")[1] == f"{context_of(plain).trace_id:032x}"
    assert written[:3] == [written[0]] * 3
    assert written[3].split("-")[1] == f"{context_of(own).trace_id:032x}"
    assert written[4] == TRACEPARENT
    assert told_of(plain)["messaging.batch.message_count"] == 3
    assert told_of(plain)["messaging.kafka.offset"] == 0
    assert told_of(refused)["error.type"] == "ValueError"


async def test_records_that_encode_themselves_have_one_span_too(fake_broker: Any, traces: Traces) -> None:
    async with Producer(fake_broker.address, tracing=traces.tracing) as producer:
        await (await producer.send_packed("topic", 0, Rows([b"a", b"b", b"c"])))
    (span,) = traces.named("send topic")
    written = fake_broker.records()
    assert [bytes(each.value) for each in written] == [b"a", b"b", b"c"]
    assert {carried_by(each)["traceparent"].split("-")[2] for each in written} == {f"{context_of(span).span_id:016x}"}
    assert told_of(span)["messaging.batch.message_count"] == 3


async def test_a_failed_send_ends_its_span_with_the_error(fake_broker: Any, traces: Traces) -> None:
    refuse_all(fake_broker)
    async with Producer(fake_broker.address, tracing=traces.tracing) as producer:
        refused = await producer.send("topic", b"v")
        with pytest.raises(KafkaError):
            await refused
        bad: Any = "text"
        with pytest.raises(TypeError, match="must be bytes"):
            await producer.send("topic", bad)
        for headers in (5, [b"name"], [(b"name", b"value")]):
            with pytest.raises(TypeError, match="headers"):
                await producer.send("topic", b"v", headers=headers)  # type: ignore[arg-type]
    spans = traces.named("send topic")
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR] * 2
    assert {told_of(span)["error.type"] for span in spans} == {"TypeError", "oncelog.errors.AuthorizationFailed"}


async def test_one_shot_iterables_of_headers_are_written(fake_broker: Any, traces: Traces) -> None:
    headers: Any = (pair for pair in [("a", b"1"), ("b", b"2")])
    async with Producer(fake_broker.address, tracing=traces.tracing) as producer:
        await producer.send_and_wait("topic", b"v", headers=headers)
    assert list(carried_by(fake_broker.records()[0])) == ["a", "b", "traceparent"]


# transactions


async def test_a_transaction_that_is_replaced_in_its_block_leaves_no_span_behind(
    coordinator: FakeCoordinator, traces: Traces
) -> None:
    async with started(coordinator, tracing=traces.tracing) as producer:
        async with producer.transaction():
            await producer.abort_transaction()
            producer.begin_transaction()
        assert not trace.get_current_span().get_span_context().is_valid
    results = [told_of(span)["oncelog.transaction.result"] for span in traces.named("transaction")]
    assert results == ["abort", "commit"]


async def test_a_transaction_is_a_span_around_what_it_sends(coordinator: FakeCoordinator, traces: Traces) -> None:
    async with started(coordinator, tracing=traces.tracing) as producer:
        async with producer.transaction():
            await producer.send("topic", b"v")
        assert not trace.get_current_span().get_span_context().is_valid
        (transaction,) = traces.named("transaction")
        identity = coordinator.transactions["t"]
    (sent,) = traces.named("send topic")
    assert parent_of(sent) == (context_of(transaction).trace_id, context_of(transaction).span_id)
    assert transaction.status.status_code is StatusCode.UNSET
    told = told_of(transaction)
    assert told.pop("oncelog.producer_epoch") == 0
    assert told == {
        "messaging.system": "kafka",
        "messaging.client.id": "oncelog",
        "oncelog.transactional_id": "t",
        "oncelog.producer_id": identity.producer_id,
        "oncelog.transaction.result": "commit",
    }


async def test_an_aborted_transaction_is_an_error_that_says_why(coordinator: FakeCoordinator, traces: Traces) -> None:
    async with started(coordinator, tracing=traces.tracing) as producer:
        with pytest.raises(LookupError):
            async with producer.transaction():
                await producer.send("topic", b"v")
                raise LookupError("no such customer")
        producer.begin_transaction()
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.send("topic", b"v")
    by_error, by_wish, left_open = traces.named("transaction")
    assert by_error.status.status_code is StatusCode.ERROR
    assert by_error.status.description == "aborted: no such customer"
    assert told_of(by_error)["error.type"] == "LookupError"
    assert told_of(by_error)["oncelog.transaction.result"] == "abort"
    assert (by_wish.status.description, told_of(by_wish)["error.type"]) == ("aborted", "abort")
    assert told_of(left_open)["oncelog.transaction.result"] == "abort"  # by close


async def test_a_commit_that_fails_is_over_with_its_abort(coordinator: FakeCoordinator, traces: Traces) -> None:
    refuse_all(coordinator.broker)
    async with started(coordinator, tracing=traces.tracing) as producer:
        with pytest.raises(AbortableError):
            async with producer.transaction():
                await producer.send("topic", b"v")
    (transaction,) = traces.named("transaction")
    assert told_of(transaction)["oncelog.transaction.result"] == "abort"
    assert told_of(transaction)["error.type"] == "oncelog.errors.AbortableError"


async def test_a_fenced_producer_does_not_record_the_end(coordinator: FakeCoordinator, traces: Traces) -> None:
    async with started(coordinator, tracing=traces.tracing) as producer:
        coordinator.script[EndTxnRequest] = [ErrorCode.PRODUCER_FENCED]
        with pytest.raises(FatalError):
            async with producer.transaction():
                await producer.send("topic", b"v")
        (transaction,) = traces.named("transaction")
    assert told_of(transaction)["oncelog.transaction.result"] == "unknown"
    assert transaction.status.status_code is StatusCode.ERROR
    assert traces.named("transaction") == [transaction]  # the transaction's span has ended exactly once


async def test_a_prepared_transaction_is_for_somebody_else_to_end(
    coordinator_v2: FakeCoordinator, traces: Traces
) -> None:
    async with started(coordinator_v2, tracing=traces.tracing) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"v")
        assert await producer.prepare_transaction() is not None
        (transaction,) = traces.named("transaction")
    assert told_of(transaction)["oncelog.transaction.result"] == "prepared"


async def test_consume_process_produce_links_its_transaction_to_what_it_has_read(
    coordinator: FakeCoordinator, traces: Traces
) -> None:
    polled = [record([("traceparent", TRACEPARENT.encode())]), record(offset=1)]
    stop = asyncio.Event()

    class OnePoll:
        config = load(
            ConsumerConfig,
            "h:1",
            {"group_id": "g", "enable_auto_commit": False, "isolation_level": "read_committed"},
        )

        async def poll(self, *_: Any) -> Any:
            stop.set()
            return {TopicPartition("in", 3): polled}

        def consumed(self) -> Any:
            return {TopicPartition("in", 3): OffsetAndMetadata(1)}

        def group_metadata(self) -> ConsumerGroupMetadata:
            return GROUP

    async with started(coordinator, tracing=traces.tracing) as producer:

        async def process(records: list[ConsumerRecord]) -> None:
            for each in records:
                with traces.tracing.processing(each):
                    await producer.send("topic", each.value)

        consumer: Any = OnePoll()
        await consume_process_produce(consumer, producer, process, stop=stop)
    (transaction,) = traces.named("transaction")
    assert [(link.context.trace_id, link.context.span_id) for link in transaction.links] == [(TRACE, SPAN)]
    first, second = coordinator.broker.records()
    assert carried_by(first)["traceparent"].split("-")[1] == f"{TRACE:032x}"
    assert carried_by(second)["traceparent"].split("-")[1] == f"{context_of(transaction).trace_id:032x}"


# reading


def test_processing_continues_with_the_trace_of_its_record(traces: Traces) -> None:
    carried = record([("traceparent", TRACEPARENT.encode()), ("baggage", b"tenant=blue")], offset=7, value=None)
    with traces.tracer.start_as_current_span("loop") as loop:
        with traces.tracing.processing(carried, "reader", "g"):
            assert baggage.get_baggage("tenant") == "blue"
        with traces.tracing.processing(record()):
            assert baggage.get_baggage("tenant") is None
    span, without = traces.named("process in")
    assert span.kind is SpanKind.CONSUMER
    assert parent_of(span) == (TRACE, SPAN)
    assert [link.context for link in span.links] == [loop.get_span_context()]
    assert told_of(span) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "in",
        "messaging.client.id": "reader",
        "messaging.consumer.group.name": "g",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 7,
        "messaging.kafka.message.tombstone": True,
    }
    assert parent_of(without)[1] == loop.get_span_context().span_id
    assert not without.links


def test_an_exception_of_the_processing_is_recorded_and_raised(traces: Traces) -> None:
    with pytest.raises(LookupError), traces.tracing.processing(record()):
        raise LookupError("no such customer")
    (span,) = traces.named("process in")
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


def test_each_of_several_records_is_linked_once(traces: Traces) -> None:
    def from_span(number: int) -> ConsumerRecord:
        return record([("traceparent", f"00-{TRACE:032x}-{number + 1:016x}-01".encode())])

    with traces.tracing.processing([from_span(0), from_span(1), from_span(0), record()]):
        pass
    (span,) = traces.named("process in")
    assert span.parent is None
    assert [link.context.span_id for link in span.links] == [1, 2]
    assert told_of(span)["messaging.batch.message_count"] == 4
    assert len(traces.tracing.links_to(map(from_span, range(MAX_LINKS + 10)))) == MAX_LINKS
    plain = [record()] * MAX_LOOKED_AT
    assert traces.tracing.links_to([*plain[1:], from_span(0)]) != []
    assert traces.tracing.links_to([*plain, from_span(0)]) == []


@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", None)],
        [("traceparent", b"\xff\xfe")],
        [("traceparent", b"00-zz-1-01")],
        [("traceparent", TRACEPARENT.encode() + b"0" * MAX_CONTEXT_BYTES)],
        [("Traceparent", TRACEPARENT.encode())],
        [("baggage", b"=" * MAX_CONTEXT_BYTES)],
    ],
)
def test_a_malformed_trace_context_is_ignored(traces: Traces, headers: Any) -> None:
    context = traces.tracing.context_of(record(headers))
    assert not trace.get_current_span(context).get_span_context().is_valid


def test_the_last_of_two_trace_headers_counts() -> None:
    assert context_headers([("a", b"1"), ("b", b"2"), ("a", b"3")], {"a"}) == {"a": "3"}


async def test_a_poll_that_brings_records_is_a_span(fake_broker: Any, traces: Traces) -> None:
    async with Producer(fake_broker.address, tracing=traces.tracing) as producer:
        await producer.send_and_wait("topic", b"v")
    async with Consumer(fake_broker.address, tracing=traces.tracing, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("topic", 0)])
        async with asyncio.timeout(10):
            while not (polled := await consumer.poll(1000)):
                pass
        (got,) = polled["topic", 0]
        with consumer.processing(got):
            pass
    (sent,) = traces.named("send topic")
    (poll,) = traces.named("poll topic")
    (processed,) = traces.named("process topic")
    assert poll.kind is SpanKind.CLIENT
    assert [link.context.span_id for link in poll.links] == [context_of(sent).span_id]
    assert told_of(poll)["messaging.batch.message_count"] == 1
    assert parent_of(processed) == (context_of(sent).trace_id, context_of(sent).span_id)


# --- without a tracer, without the option, or without the package


async def test_the_context_of_a_record_is_passed_on_without_a_tracer(fake_broker: Any) -> None:
    tracing = Tracing(NoOpTracerProvider(), PROPAGATOR)
    carried = record([("traceparent", TRACEPARENT.encode()), ("tracestate", b"a=1"), ("baggage", b"tenant=blue")])
    async with Producer(fake_broker.address, tracing=tracing) as producer:
        with tracing.processing(carried):
            await producer.send_and_wait("topic", b"v")
        await producer.send_and_wait("topic", b"v")
    inside, outside = fake_broker.records()
    assert carried_by(inside) == {"traceparent": TRACEPARENT, "tracestate": "a=1", "baggage": "tenant=blue"}
    assert carried_by(outside) == {}


async def test_no_header_is_added_without_the_option(fake_broker: Any, traces: Traces) -> None:
    async with Producer(fake_broker.address) as producer, Consumer(fake_broker.address) as consumer:
        with traces.tracer.start_as_current_span("order"), consumer.processing(record()):
            await producer.send_and_wait("topic", b"v")
    assert carried_by(fake_broker.records()[0]) == {}
    assert [span.name for span in traces.ended] == ["order"]


@pytest.mark.parametrize("option", [1, "yes", Context()])
def test_the_option_is_checked(option: Any) -> None:
    with pytest.raises(ConfigError, match="tracing="):
        Producer("h:1", tracing=option)


def test_the_tracing_package_is_loaded_only_on_request() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from oncelog import Producer, Consumer\n"
        "from oncelog.errors import ConfigError\n"
        "Producer('h:1'); Consumer('h:1', tracing=False)\n"
        "try:\n    Producer('h:1', tracing=True)\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "pip install 'oncelog[otel]'" in shown.stdout
