"""Tests a trace through a live broker: the trace goes from oncelog's producer in a record's headers to the record's
readers, also in foreign libraries, and to the records that these readers produce in a transaction.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from librdkafka_client import Librdkafka
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from oncelog import Admin, Consumer, NewTopic, Producer
from oncelog.consume_process_produce import consume_process_produce
from oncelog.tracing import Tracing

READ = {"enable_auto_commit": False, "isolation_level": "read_committed", "auto_offset_reset": "earliest"}


def trace_of(headers: Any) -> str:
    """Return the trace id in a record's headers."""
    return bytes(dict(headers)["traceparent"]).decode().split("-")[1]


def in_hex(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


async def test_one_trace_leads_from_a_producer_to_the_derived_record(address: str, topic: str, group: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)
    made = f"{topic}-made"
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(name, 1) for name in (topic, made)])
    async with Producer(address, tracing=tracing) as producer:
        with provider.get_tracer("test").start_as_current_span("order") as order:
            await producer.send_and_wait(topic, b"v")
    expected = f"{order.get_span_context().trace_id:032x}"

    failures = [LookupError("at first it fails")]
    done = asyncio.Event()
    async with (
        Consumer(address, group_id=group, tracing=tracing, **READ) as consumer,
        Producer(address, transactional_id=f"{topic}-1", tracing=tracing) as transactional,
    ):
        consumer.subscribe([topic])

        async def process(records: list[Any]) -> None:
            for record in records:
                with consumer.processing(record):
                    await transactional.send(made, b"made of " + record.value)
            if failures:
                raise failures.pop()
            done.set()

        with pytest.raises(LookupError):
            await consume_process_produce(consumer, transactional, process, stop=done)
        await consume_process_produce(consumer, transactional, process, stop=done)

    spans = exporter.get_finished_spans()
    aborted, committed = [span for span in spans if span.name == "transaction"]
    assert (aborted.status.status_code, aborted.status.description) == (StatusCode.ERROR, "aborted: at first it fails")
    assert committed.status.status_code is StatusCode.UNSET
    assert {in_hex(span) for span in spans if span.name in (f"process {topic}", f"send {made}")} == {expected}

    client = Librdkafka(address)
    (seen,) = await asyncio.to_thread(client.consume, made, 1, isolation="read_committed")
    assert seen.value == b"made of v"
    assert trace_of(seen.headers) == expected
    reader = AIOKafkaConsumer(bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest")
    await reader.start()
    try:
        reader.assign([AiokafkaPartition(topic, 0)])
        assert trace_of((await asyncio.wait_for(reader.getone(), 60)).headers) == expected
    finally:
        await reader.stop()
