"""Reads a batch query: the records between two bounds, whose offsets are looked up when the query is planned."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from oncelog_pipeline.options.source_options import SourceOptions
from oncelog_pipeline.source.data_loss import check, losses, readable
from oncelog_pipeline.source.ranges import OffsetRange, cut
from oncelog_pipeline.spark import range_reader
from oncelog_pipeline.spark.connections import connections
from oncelog_pipeline.spark.offset_lookup import OffsetLookup
from oncelog_pipeline.spark.quick_start import QuickStart

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


class BatchReader(QuickStart, DataSourceReader):
    """The reader of `spark.read`.

    The reader accepts no pushed-down filters. If it did, PySpark would refuse every query of this source while
    `spark.sql.python.filterPushdown.enabled` is not set. Bounds are set with startingOffsets and endingOffsets.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the ranges that the tasks read. Raises NoSuchTopic, DataLoss, KafkaError."""
        return [range_reader.RangePartition(each) for each in connections().run(self._ranges())]

    async def _ranges(self) -> list[OffsetRange]:
        options = self._options
        lookup = OffsetLookup(await connections().admin(options), options)
        partitions = await lookup.partitions_at_first()
        start = await lookup.resolve(options.starting, partitions)
        end = await lookup.resolve(options.ending, partitions)
        log = await lookup.log()
        lost = [*losses(start, log.earliest, log.latest), *losses(end, {}.fromkeys(end, 0), log.latest)]
        if options.fails_on_data_loss:
            check(lost)
        for each in lost:
            logger.warning("lost records skipped, as failOnDataLoss=false: %s", each)
        begin = readable(start, log.earliest, log.latest)
        return cut(
            begin,
            {partition: min(end[partition], log.latest[partition]) for partition in begin if partition in end},
            min_partitions=options.min_partitions,
            max_records_per_partition=options.max_records_per_partition,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a range, in a task. Raises DataLoss, NothingRead, KafkaError."""
        return range_reader.read(self._options, partition)
