"""The options of Spark's own connector have the same meanings here; a wrong option is refused with the correct
alternative.
"""

from __future__ import annotations

import pickle
import uuid
from typing import Any

import pytest

from oncelog import Consumer, Producer, TopicPartition
from oncelog_pipeline.options import source_options as source_module
from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.options.sink_options import Delivery, SinkOptions, sink_options
from oncelog_pipeline.options.source_options import Bound, SourceOptions, Subscription, Where, source_options
from oncelog_pipeline.sink.names import unnamed_query

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def stream(**options: str) -> SourceOptions:
    return source_options({**SERVERS, "subscribe": "a", **options}, is_stream=True)


def batch(**options: str) -> SourceOptions:
    return source_options({**SERVERS, "subscribe": "a", **options}, is_stream=False)


def sink(**options: str) -> SinkOptions:
    return sink_options({**SERVERS, **options})


def refusal(make: Any, **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        make(**options)
    return str(caught.value)


def test_omitted_options_have_defaults() -> None:
    made = stream()
    assert made.subscription == Subscription(topics=("a",))
    assert made.starting == Bound(Where.LATEST)
    assert made.settings == {"isolation_level": "read_committed", "max_partition_fetch_bytes": 2 << 20}
    assert (made.fails_on_data_loss, made.includes_headers) == (True, False)
    assert (made.max_offsets_per_trigger, made.min_partitions, made.max_records_per_partition) == (None, None, None)
    assert (made.poll_timeout_ms, made.offset_retries, made.offset_retry_interval_ms) == (120_000, 3, 10)
    assert made.max_trigger_delay_s == 900
    assert (batch().starting, batch().ending) == (Bound(Where.EARLIEST), Bound(Where.LATEST))
    written = sink()
    assert (written.delivery, written.topic, written.write_id) == (Delivery.EXACTLY_ONCE, None, None)
    assert written.task_timeout_ms == 900_000


def test_names_are_known_in_any_case_and_sparks_own_pass() -> None:
    made = source_options(
        {
            "KAFKA.Bootstrap.Servers": "a:1",
            "SUBSCRIBE": "a",
            "maxoffsetspertrigger": "5",
            "checkpointlocation": "/c",
            "PATH": "p",
        },
        is_stream=True,
    )
    assert (made.bootstrap_servers, made.max_offsets_per_trigger) == ("a:1", 5)


@pytest.mark.parametrize("is_stream", [True, False])
def test_options_are_values_that_spark_can_send(is_stream: bool) -> None:
    made = source_options({**SERVERS, "subscribe": "a"}, is_stream=is_stream)
    assert pickle.loads(pickle.dumps(made)) == made
    assert pickle.loads(pickle.dumps(sink())) == sink()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("subscribes", "subscribe"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("startingOffset", "startingOffsets"),
        ("kafka.fetch.max.byte", "kafka.fetch.max.bytes"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafkaConsumer.pollTimeout", "kafkaConsumer.pollTimeoutMs"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: str, near: str) -> None:
    assert f"did you mean {near!r}?" in refusal(stream, **{name: "1"})


def test_an_option_unlike_any_other_is_just_unknown() -> None:
    assert refusal(stream, zzz="1") == "unknown option 'zzz'"
    assert "did you mean 'delivery'" in refusal(sink, deliver="x")


def test_exactly_one_subscription_is_required() -> None:
    assert "but found none of them" in refusal(lambda: source_options(SERVERS, is_stream=True))
    assert "but found subscribe and assign" in refusal(stream, assign='{"b":[0]}')
    assert "is missing" in refusal(lambda: source_options({"subscribe": "a"}, is_stream=True))
    assert "must be names" in refusal(stream, subscribe="a,,b")
    assert stream(subscribe=" a, b ,a").subscription == Subscription(topics=("a", "b"))

    def other(**options: str) -> SourceOptions:
        return source_options(SERVERS | options, is_stream=True)

    assert other(assign='{"a":[1,0]}').subscription == Subscription(partitions=(A0, A1))
    assert other(subscribePattern="a.*").subscription == Subscription(pattern="a.*")
    assert "not a regular expression" in refusal(other, subscribePattern="*a")
    for wrong in ("a", "[]", "{}", '{"a":0}', '{"a":[-1]}', '{"a":[0,0]}', '{"a":["x"]}', '{"a":[true]}'):
        assert refusal(other, assign=wrong).startswith("assign: ")


def test_the_starting_offsets_are_parsed() -> None:
    assert stream(startingOffsets="Earliest").starting == Bound(Where.EARLIEST)
    told = '{"a":{"0":23,"1":-2}}'
    assert batch(startingOffsets=told).starting == Bound(Where.OFFSETS, {A0: 23, A1: -2})
    assert stream(startingOffsets='{"a":{"0":-1}}').starting == Bound(Where.OFFSETS, {A0: -1})
    assert "nothing to read" in refusal(batch, startingOffsets="latest")
    assert "is for streams" in refusal(batch, startingOffsets='{"a":{"0":-1}}')
    for wrong in ("later", '{"a":{"0":-3}}', '{"a":{"0":"1"}}', '{"a":{"0":true}}', '{"a":{"x":1}}', '{"a":[1]}'):
        assert refusal(stream, startingOffsets=wrong).startswith("startingOffsets: ")


def test_the_order_in_which_starts_count_is_sparks() -> None:
    every = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"a":{"0":7}}',
        "startingOffsets": "earliest",
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert stream(**every).starting == Bound(Where.TIMESTAMP, timestamp_ms=5, is_latest_where_none=True)
    del every["startingTimestamp"], every["startingOffsetsByTimestampStrategy"]
    assert stream(**every).starting == Bound(Where.TIMESTAMPS, {A0: 7})
    assert "one of error, latest" in refusal(stream, startingOffsetsByTimestampStrategy="newest")
    assert "whole number" in refusal(stream, startingTimestamp="yesterday")


def test_the_ending_offsets_are_parsed() -> None:
    assert batch(endingOffsets='{"a":{"0":-1,"1":9}}').ending == Bound(Where.OFFSETS, {A0: -1, A1: 9})
    assert batch(endingTimestamp="9").ending == Bound(Where.TIMESTAMP, timestamp_ms=9, is_latest_where_none=True)
    by_time = batch(endingOffsetsByTimestamp='{"a":{"0":9}}').ending
    assert by_time == Bound(Where.TIMESTAMPS, {A0: 9}, is_latest_where_none=True)
    assert "no records lie before it" in refusal(batch, endingOffsets="earliest")
    assert "from -1 on" in refusal(batch, endingOffsets='{"a":{"0":-2}}')
    for name in source_module.FOR_BATCHES:
        assert "a stream has no end" in refusal(stream, **{name: "1"})


def test_limits_are_parsed() -> None:
    made = stream(maxOffsetsPerTrigger="9", minOffsetsPerTrigger="5", maxTriggerDelay="200ms", minPartitions="3")
    assert (made.max_offsets_per_trigger, made.min_offsets_per_trigger, made.min_partitions) == (9, 5, 3)
    assert made.max_trigger_delay_s == 0.2
    for told, seconds in (("15m", 900.0), ("2 h", 7200.0), ("1d", 86400.0), ("1500", 1.5), ("3min", 180.0)):
        assert stream(maxTriggerDelay=told).max_trigger_delay_s == seconds
    assert "must be a time such as" in refusal(stream, maxTriggerDelay="soon")
    assert "is above maxOffsetsPerTrigger" in refusal(stream, maxOffsetsPerTrigger="4", minOffsetsPerTrigger="5")
    assert "whole number from 1 on" in refusal(stream, maxRecordsPerPartition="0")
    assert "one of true, false" in refusal(stream, failOnDataLoss="maybe")


def test_kafkas_settings_are_our_clients() -> None:
    options = {
        "kafka.fetch.max.bytes": "1000",
        "kafka.max.partition.fetch.bytes": "500",
        "kafka.check.crcs": "false",
        "kafka.isolation.level": "read_uncommitted",
    }
    made = stream(**options)
    assert made.settings == {
        "fetch_max_bytes": 1000,
        "max_partition_fetch_bytes": 500,
        "check_crcs": False,
        "isolation_level": "read_uncommitted",
    }
    Consumer(made.bootstrap_servers, **made.settings)
    written = sink(
        **{"kafka.compression.type": "lz4", "kafka.retry.backoff.ms": "7", "kafka.transaction.timeout.ms": "9"}
    )
    assert written.settings == {"retry_backoff_ms": 7}
    assert written.producer_settings == {"compression_type": "lz4", "retry_backoff_ms": 7}
    assert written.task_timeout_ms == 9
    Producer(written.bootstrap_servers, **written.producer_settings)


def test_a_group_is_a_label_only() -> None:
    assert stream(**{"kafka.group.id": "g"}).settings["client_id"] == "g"
    assert stream(groupIdPrefix="p").settings["client_id"] == "p"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("kafka.auto.offset.reset", "latest", "startingOffsets"),
        ("kafka.value.deserializer", "x", "binary"),
        ("kafka.key.serializer", "x", "binary"),
        ("kafka.enable.auto.commit", "true", "checkpoint"),
        ("kafka.interceptor.classes", "x", "Java"),
        ("kafka.fetch.max.bytes", "many", "whole number"),
        ("kafka.fetch.max.wait.ms", "30000", "request_timeout_ms"),
        ("kafka.check.crcs", "perhaps", "true or false"),
        ("kafka.isolation.level", "snapshot", "read_committed"),
    ],
)
def test_an_option_not_for_sources_is_refused_with_the_reason(name: str, value: str, why: str) -> None:
    assert why in refusal(stream, **{name: value})


def test_an_option_not_for_sinks_is_refused_with_the_reason() -> None:
    assert "writeId" in refusal(sink, **{"kafka.transactional.id": "x"})
    assert "needs it" in refusal(sink, **{"kafka.enable.idempotence": "false"})
    assert "one of exactly-once, exactly-once-per-task, at-least-once" in refusal(sink, delivery="exactly")
    assert "letters, digits" in refusal(sink, writeId="a/b")
    own_name = unnamed_query(str(uuid.uuid4())).name
    assert "choose another word before the UUID" in refusal(sink, writeId=own_name)
    assert "topic name" in refusal(sink, topic="")
    assert sink(delivery="At-Least-Once").delivery is Delivery.AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("kafka.acks", "0"),
        ("kafka.acks", "1"),
        ("kafka.retries", "0"),
        ("kafka.max.in.flight.requests.per.connection", "6"),
    ],
)
@pytest.mark.parametrize("delivery", ["exactly-once", "exactly-once-per-task", "at-least-once"])
def test_settings_against_idempotence_are_refused_when_a_query_is_planned(
    option: str, value: str, delivery: str
) -> None:
    with pytest.raises(OptionError, match="idempotence needs it"):
        sink_options({"kafka.bootstrap.servers": "a:1", "topic": "t", "delivery": delivery, option: value})
