"""Reads a stream: on the driver it tells Spark where each batch ends and which ranges its tasks read; in the tasks it
reads the ranges.

One reader, in a Python process of its own, plans the batches and lives as long as its query. Each task has a copy of
the reader, which reads the records. Spark's checkpoint contains the progress of the query, and the reader joins no
consumer group. The plan of each batch is also committed to the cluster (plans.py), in case the checkpoint loses its
last entries.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from oncelog import Admin, TopicPartition
from oncelog_pipeline.options.source_options import SourceOptions
from oncelog_pipeline.source.data_loss import check, made_anew
from oncelog_pipeline.source.ends import Ends
from oncelog_pipeline.source.offsets import (
    INITIAL,
    STREAM,
    Offsets,
    batch_start,
    end_with_start,
    ids_from,
    offsets_from,
    offsets_to,
    stream_from,
    with_ids,
)
from oncelog_pipeline.source.progress import NO_PLANS, Limits, Log, next_batch
from oncelog_pipeline.source.ranges import cut
from oncelog_pipeline.source.watch import EndWatch
from oncelog_pipeline.spark import range_reader
from oncelog_pipeline.spark.connections import connections
from oncelog_pipeline.spark.offset_lookup import OffsetLookup, isolation_level_of
from oncelog_pipeline.spark.plan_group import PlanGroup
from oncelog_pipeline.spark.pyspark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from oncelog_pipeline.spark.quick_start import QuickStart

if TYPE_CHECKING:
    import pyarrow as pa

MEANS_SECONDS: Final = 30.0
"""How many seconds the mean sizes of records are cached, for maxBytesPerTrigger."""

WAIT_SECONDS: Final = 0.1
"""How many seconds `latestOffset` waits for records before it returns none. Spark calls `latestOffset` again 10 ms
later. During this time, the other sources of the query, and the end of the query, must wait.
"""
LONG_WAIT_SECONDS: Final = 0.25
"""How many seconds `latestOffset` waits for records in queries with many partitions, where encoding the offsets of a
response also costs much CPU.
"""

logger = logging.getLogger(__name__)


class StreamReader(QuickStart, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of `spark.readStream.format("oncelog")`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._ends = Ends(
            lambda: connections().run(self._look()),
            lambda partitions: connections().run(self._look_at_ends(partitions)),
            time.monotonic,
            time.process_time,
            lambda: self._watch.is_on,
        )
        self._watch = EndWatch(self._admin_of_watch, isolation_level_of(options))
        self._idle: tuple[Log, dict[str, Any]] | None = None
        """The arguments of the last look-up that has found nothing to read: the log, and the start offsets beyond which
        this log had no records. None if there is no such result.
        """
        self._mean_bytes: dict[TopicPartition, float] = {}
        self._means_from = float("-inf")
        self._last_batch = time.monotonic()
        self._target: Offsets | None = None
        self._plan_group: PlanGroup | None = None
        self._stream = uuid.uuid4().hex
        """The id of a new stream, whose offsets contain no id yet."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that the copy in a task needs, which is only the options."""
        return {"_options": self._options}

    # Called on the driver: where batches begin and end.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins. Raises NoSuchTopic, OptionError, KafkaError."""
        return {**connections().run(self._initial()), INITIAL: True, STREAM: self._stream}

    async def _initial(self) -> dict[str, Any]:
        lookup = await self._lookup()
        offsets = await lookup.resolve(self._options.starting, await lookup.partitions_at_first())
        return with_ids(offsets_to(offsets), await lookup.ids())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most, most_bytes = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if most_bytes is None else ReadMaxBytes(most_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the batch that begins at `start`; `start` itself if there is no batch yet.

        If the batch does not begin at `start`, the returned end includes the beginning. The end includes the beginning
        in two cases: for the first batch of a query, because its replay would otherwise begin at a newer "latest"; and
        after partitions were added or records deleted. If there is nothing to read, the method first waits for records,
        up to WAIT_SECONDS or LONG_WAIT_SECONDS.

        Raises DataLoss, KafkaError.
        """
        log = self._ends.log()
        if not self._is_idle(log, start):
            end = self._next_end(start, limit, log)
            if not self._is_idle(log, start):
                return end
        return self._next_end(start, limit, self._ends.log()) if self._is_woken(log) else start

    def _is_idle(self, log: Log, start: dict[str, Any]) -> bool:
        """Return whether `_next_end` has found that this log has nothing to read beyond `start`."""
        return self._idle is not None and self._idle[0] is log and self._idle[1] == start

    def _next_end(self, start: dict[str, Any], limit: ReadLimit, log: Log) -> dict[str, Any]:
        """Return the end of the next batch if the partitions have the beginnings and ends in `log`; the start itself if
        there is no batch yet. Raises DataLoss, KafkaError.
        """
        begin = offsets_from(start)
        limits = Limits(
            limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes_per_trigger,
            self._options.min_offsets_per_trigger,
            self._options.max_trigger_delay_s,
            self._options.fails_on_data_loss,
        )
        waited = time.monotonic() - self._last_batch
        if limits.most_bytes is not None and log.latest != begin:
            log = self._with_means(log)
        stream = stream_from(start) or self._stream
        plans = self._plans(stream).plans if log.latest != begin else NO_PLANS
        batch = next_batch(begin, log, limits, waited_s=waited, target=self._target, ids=ids_from(start), plans=plans)
        for each in batch.warnings:
            logger.warning("lost records skipped, as failOnDataLoss=false: %s", each)
        if batch.end != batch.start:
            self._last_batch = time.monotonic()
        if INITIAL in start or batch.start != begin:
            return {**with_ids(end_with_start(batch.end, batch.start), log.ids), STREAM: stream}
        if batch.end != begin:
            return {**with_ids(offsets_to(batch.end), log.ids), STREAM: stream}
        if log.latest == begin:
            self._idle = (log, start)
        return start

    def _is_woken(self, log: Log) -> bool:
        """Wait a limited time for records beyond the ends of the log. Returns whether such records may exist."""
        if self._target is not None:
            return False
        seconds = LONG_WAIT_SECONDS if self._ends.are_dear else WAIT_SECONDS
        is_woken = connections().run(self._watch.wait(log.latest, seconds))
        if is_woken:
            self._ends.hurry()
        return is_woken

    async def _admin_of_watch(self) -> Admin:
        """Return the client of the watch, which has its own connections. Raises KafkaError."""
        return await connections().separate_admin(self._options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the present ends of the partitions. Raises KafkaError."""
        self._ends.forget()
        self._target = self._ends.log().latest

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the latest known ends of the partitions, for the query's progress; None before the first lookup."""
        log = self._ends.last
        return None if log is None else dict(offsets_to(log.latest))

    def _plans(self, stream: str) -> PlanGroup:
        """Return the plans of this stream, which are read from the cluster once and then cached. Raises KafkaError."""
        if self._plan_group is None or self._plan_group.stream != stream:
            self._plan_group = connections().run(PlanGroup.read(self._options, stream))
        return self._plan_group

    def _with_means(self, log: Log) -> Log:
        """Return the log with the mean record size of each partition. Raises KafkaError."""
        now = time.monotonic()
        if now - self._means_from > MEANS_SECONDS:
            self._mean_bytes, self._means_from = connections().run(self._means(log)), now
        return replace(log, mean_bytes=self._mean_bytes)

    async def _means(self, log: Log) -> dict[TopicPartition, float]:
        return await (await self._lookup()).mean_bytes(log)

    async def _look_at_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        return await (await self._lookup()).latest(partitions)

    async def _look(self) -> Log:
        return await (await self._lookup()).log()

    async def _ids(self) -> dict[str, str]:
        return await (await self._lookup()).ids()

    async def _lookup(self) -> OffsetLookup:
        return OffsetLookup(await connections().admin(self._options), self._options)

    # Called on the driver (`partitions`) and in tasks (`read`): what the tasks read.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges that the tasks of a batch read. The ranges depend only on the arguments and the options, so
        a replay reads the same ranges or fails. The plan of the batch is committed before any task runs.

        Raises KafkaError, and DataLoss if a topic was deleted and created again since the batch was planned.
        """
        known = ids_from(end)
        wanted = offsets_from(end)
        anew = made_anew(wanted, known, connections().run(self._ids())) if known else {}
        lost = [told for of_topic in anew.values() for told in of_topic]
        if self._options.fails_on_data_loss:
            check(lost)
        for each in lost:
            logger.warning("lost records skipped, as failOnDataLoss=false: %s", each)
        begin = batch_start(start, end)
        if stream := stream_from(end):
            connections().run(self._plans(stream).record(begin, wanted))
        ranges = cut(
            begin,
            {partition: offset for partition, offset in wanted.items() if partition.topic not in anew},
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        return [range_reader.RangePartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a range, in a task. Raises DataLoss, NothingRead, KafkaError."""
        return range_reader.read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing, because Spark's checkpoint contains the progress."""

    def stop(self) -> None:
        """Do nothing, because the connections end with the process."""
