"""Options of a source: its topics, where reading begins and ends, and the size of a batch. Pure.

Names, defaults and rules are those of Spark's own Kafka source, with three exceptions: `kafka.isolation.level` defaults
to read_committed, `kafka.max.partition.fetch.bytes` to 2 MiB, and `subscribePattern` is a Python regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from oncelog import TopicPartition
from oncelog_pipeline.options import client_settings
from oncelog_pipeline.options.reading import OptionError, Options, number
from oncelog_pipeline.options.sink_options import STATE_OPTION
from oncelog_pipeline.sink.names import STATE_TOPIC
from oncelog_pipeline.source.offsets import EARLIEST, LATEST, Offsets, offsets_from_json, partitions_from_json

KNOWN: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    STATE_OPTION,
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
FOR_BATCHES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
DEFAULT_TRIGGER_DELAY_S: Final = 15 * 60.0
DEFAULT_POLL_TIMEOUT_MS: Final = 120_000
PARTITION_FETCH_BYTES: Final = 2 << 20
"""The source's default of max.partition.fetch.bytes, twice that of a consumer. A task reads a range of one partition,
so the latency of a response does not matter, and each fetch response becomes one Arrow batch. Larger responses are
fewer, but with rows of 1 KB a batch read takes a tenth more CPU with responses of 4 MiB: they are larger than the cache
of a core, and each byte of a response is read or written several times.
"""


class Where(Enum):
    """The form in which a user has given a bound of a source: offsets, timestamps, or the beginning or end of the
    partitions.
    """

    EARLIEST = auto()
    LATEST = auto()
    OFFSETS = auto()
    TIMESTAMP = auto()
    TIMESTAMPS = auto()


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound at which reading begins or ends.

    `offsets` maps partitions to offsets (a number, LATEST or EARLIEST) or to timestamps in milliseconds, depending on
    `where`; `timestamp_ms` applies to all partitions. With `is_latest_where_none` a timestamp after the last record
    means the end of the partition; otherwise such a timestamp is an error.
    """

    where: Where
    offsets: Offsets = field(default_factory=dict)
    timestamp_ms: int = 0
    is_latest_where_none: bool = False


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which topics or partitions a source reads; exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All settings of a source. The fields are plain values, so that Spark can pickle the options."""

    bootstrap_servers: str
    subscription: Subscription
    starting: Bound
    ending: Bound
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    """The maximum size of a batch in bytes, as records are stored in the brokers' logs; the source estimates it from
    the mean record size of each partition.
    """
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = DEFAULT_TRIGGER_DELAY_S
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fails_on_data_loss: bool = True
    includes_headers: bool = False
    poll_timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS
    offset_retries: int = 3
    offset_retry_interval_ms: int = 10
    state_topic: str = STATE_TOPIC
    """The topic in which sinks keep their state, if it is not the default topic. A topic pattern never matches this
    topic.
    """
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `oncelog.Consumer`."""


def source_options(given: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Convert the user's options of a source, for a stream or a batch query. Raises OptionError."""
    options = Options(given, KNOWN)
    if is_stream:
        for name in FOR_BATCHES:
            if name in options:
                raise OptionError(f"{name} is for batch queries: a stream has no end")
    defaults = {"isolation_level": "read_committed", "max_partition_fetch_bytes": PARTITION_FETCH_BYTES}
    settings = defaults | client_settings.settings(options, client_settings.CONSUMER)
    if "groupIdPrefix" in options:
        settings.setdefault("client_id", options.text("groupIdPrefix", ""))
    made = SourceOptions(
        bootstrap_servers=client_settings.bootstrap_servers(options),
        subscription=_subscription(options),
        starting=_starting(options, is_stream=is_stream),
        ending=_ending(options),
        max_offsets_per_trigger=options.number("maxOffsetsPerTrigger", None),
        max_bytes_per_trigger=options.size("maxBytesPerTrigger", None),
        min_offsets_per_trigger=options.number("minOffsetsPerTrigger", None),
        max_trigger_delay_s=options.seconds("maxTriggerDelay", DEFAULT_TRIGGER_DELAY_S),
        min_partitions=options.number("minPartitions", None),
        max_records_per_partition=options.number("maxRecordsPerPartition", None),
        fails_on_data_loss=options.flag("failOnDataLoss", True),
        includes_headers=options.flag("includeHeaders", False),
        poll_timeout_ms=options.number("kafkaConsumer.pollTimeoutMs", DEFAULT_POLL_TIMEOUT_MS),
        offset_retries=options.number("fetchOffset.numRetries", 3, least=0),
        offset_retry_interval_ms=options.number("fetchOffset.retryIntervalMs", 10, least=0),
        state_topic=options.text(STATE_OPTION, STATE_TOPIC),
        settings=settings,
    )
    if (made.min_offsets_per_trigger or 0) > (made.max_offsets_per_trigger or float("inf")):
        raise OptionError(
            f"minOffsetsPerTrigger={made.min_offsets_per_trigger} is above"
            f" maxOffsetsPerTrigger={made.max_offsets_per_trigger}"
        )
    return made


def check_source_options(given: Mapping[str, str]) -> None:
    """Raise OptionError for options that are invalid for both a stream and a batch query."""
    try:
        source_options(given, is_stream=True)
    except OptionError as of_stream:
        try:
            source_options(given, is_stream=False)
        except OptionError as of_batch:
            names = {name.lower() for name in given}
            is_batch = any(name.lower() in names for name in FOR_BATCHES)
            raise (of_batch if is_batch else of_stream) from None


def _subscription(options: Options) -> Subscription:
    given = [name for name in SUBSCRIPTIONS if name in options]
    if len(given) != 1:
        told = " and ".join(given) if given else "none of them"
        raise OptionError(f"exactly one of {', '.join(SUBSCRIPTIONS)} is needed, but found {told}")
    if given[0] == "assign":
        return Subscription(partitions=tuple(options.parsed("assign", partitions_from_json)))
    if given[0] == "subscribePattern":
        return Subscription(pattern=options.parsed("subscribePattern", _pattern))
    topics = [topic.strip() for topic in options.text("subscribe", "").split(",")]
    if not all(topics):
        raise OptionError(f"subscribe={options.text('subscribe', '')!r}: must be names with commas between them")
    return Subscription(topics=tuple(dict.fromkeys(topics)))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression of Python's: {error}") from error
    return text


def _starting(options: Options, *, is_stream: bool) -> Bound:
    """Return the bound of the first of these options that is set: startingTimestamp, startingOffsetsByTimestamp,
    startingOffsets.
    """
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    is_latest = strategy == "latest"
    if "startingTimestamp" in options:
        return Bound(
            Where.TIMESTAMP, timestamp_ms=_timestamp(options, "startingTimestamp"), is_latest_where_none=is_latest
        )
    if "startingOffsetsByTimestamp" in options:
        times = options.parsed("startingOffsetsByTimestamp", offsets_from_json)
        return Bound(Where.TIMESTAMPS, times, is_latest_where_none=is_latest)
    told = options.text("startingOffsets", "latest" if is_stream else "earliest")
    if told.lower() == "earliest":
        return Bound(Where.EARLIEST)
    if told.lower() == "latest":
        if not is_stream:
            raise OptionError("startingOffsets=latest: a batch query that begins at the end has nothing to read")
        return Bound(Where.LATEST)
    offsets = options.parsed("startingOffsets", lambda text: offsets_from_json(text, least=EARLIEST))
    if not is_stream and LATEST in offsets.values():
        raise OptionError(f"startingOffsets={told!r}: -1 (latest) is for streams: a batch query would read nothing")
    return Bound(Where.OFFSETS, offsets)


def _ending(options: Options) -> Bound:
    """Return the bound of the first ending option that is set; a timestamp after the last record means the end of the
    partition.
    """
    if "endingTimestamp" in options:
        timestamp_ms = _timestamp(options, "endingTimestamp")
        return Bound(Where.TIMESTAMP, timestamp_ms=timestamp_ms, is_latest_where_none=True)
    if "endingOffsetsByTimestamp" in options:
        times = options.parsed("endingOffsetsByTimestamp", offsets_from_json)
        return Bound(Where.TIMESTAMPS, times, is_latest_where_none=True)
    told = options.text("endingOffsets", "latest")
    if told.lower() == "latest":
        return Bound(Where.LATEST)
    if told.lower() == "earliest":
        raise OptionError("endingOffsets=earliest: no records lie before it")
    return Bound(Where.OFFSETS, options.parsed("endingOffsets", lambda text: offsets_from_json(text, least=LATEST)))


def _timestamp(options: Options, name: str) -> int:
    return number(name, options.text(name, ""), 0)
