"""Implements `format("oncelog")`: topics as a source and a sink of Spark."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from oncelog_pipeline.options.reading import OptionError, Options
from oncelog_pipeline.options.sink_options import SinkOptions, sink_options
from oncelog_pipeline.options.source_options import KNOWN, check_source_options, source_options
from oncelog_pipeline.spark import source_columns
from oncelog_pipeline.spark.batch_reader import BatchReader
from oncelog_pipeline.spark.garbage import freeze_modules
from oncelog_pipeline.spark.older_reader import OlderStreamReader
from oncelog_pipeline.spark.pyspark_api import HAS_READ_LIMITS
from oncelog_pipeline.spark.sink_columns import check_columns
from oncelog_pipeline.spark.stream_reader import StreamReader
from oncelog_pipeline.spark.writers import BatchWriter, StreamWriter, with_larger_batches

NAME = "oncelog"


class OncelogDataSource(DataSource):
    """The data source `oncelog`. The data source has the options of Spark's own Kafka connector, and refuses unknown
    options.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Return the columns that the source reads, as DDL.

        Spark's `load()` calls only this method, and does not tell whether the query is a stream or a batch. This method
        therefore raises OptionError only for options that are invalid both for a stream and for a batch query.
        """
        freeze_modules()
        given = dict(self.options)
        check_source_options(given)
        options = Options(given, KNOWN)
        return source_columns.schema(includes_headers=options.flag("includeHeaders", False))

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch query. Raises OptionError."""
        freeze_modules()
        return BatchReader(source_options(dict(self.options), is_stream=False))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Return the reader of a stream. Raises OptionError."""
        options = source_options(dict(self.options), is_stream=True)
        return StreamReader(options) if HAS_READ_LIMITS else OlderStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch; Spark calls this method once for each write, before the tasks of the write.
        Raises OptionError, KafkaError.
        """
        freeze_modules()
        if overwrite:
            raise OptionError(
                'mode("overwrite") is not supported: records of a topic are not replaced; mode("append") adds to them'
            )
        writer = BatchWriter(self._sink_options(schema))
        writer.plan()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return the writer of a stream; all output modes append, as with Spark's own sink. Raises OptionError."""
        freeze_modules()
        return StreamWriter(self._sink_options(schema))

    def _sink_options(self, schema: StructType) -> SinkOptions:
        options = sink_options(dict(self.options))
        check_columns(schema, options.topic)
        return with_larger_batches(options)
