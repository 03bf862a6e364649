"""`format("oncelog")`: topics as a source and a sink of Spark."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from oncelog_pipeline.options.reading import OptionError, Options
from oncelog_pipeline.options.sink_options import SinkOptions, sink_options
from oncelog_pipeline.options.source_options import KNOWN, check_source_options, source_options
from oncelog_pipeline.spark import source_columns
from oncelog_pipeline.spark.batch_reader import BatchReader
from oncelog_pipeline.spark.sink_columns import check_columns
from oncelog_pipeline.spark.stream_reader import StreamReader
from oncelog_pipeline.spark.worker_heap import freeze_modules
from oncelog_pipeline.spark.writers import BatchWriter, StreamWriter, with_larger_batches

NAME = "oncelog"


class OncelogDataSource(DataSource):
    """The options are those of Spark's own Kafka connector; an unknown one is refused."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Of what is read. Raises OptionError for options that are right for neither a stream nor a batch.

        `load()` asks for nothing but this, and does not tell which of the two it will be.
        """
        given = dict(self.options)
        check_source_options(given)
        options = Options(given, KNOWN)
        return source_columns.schema(includes_headers=options.flag("includeHeaders", False))

    def reader(self, schema: StructType) -> BatchReader:
        """Raises OptionError."""
        return BatchReader(source_options(dict(self.options), is_stream=False))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Raises OptionError."""
        return StreamReader(source_options(dict(self.options), is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Raises OptionError."""
        if overwrite:
            raise OptionError(
                'mode("overwrite") cannot be: records of a topic are not replaced; mode("append") adds to them'
            )
        return BatchWriter(self._sink_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """All output modes append, as with Spark's own sink. Raises OptionError."""
        return StreamWriter(self._sink_options(schema))

    def _sink_options(self, schema: StructType) -> SinkOptions:
        options = sink_options(dict(self.options))
        check_columns(schema, options.topic)
        freeze_modules()
        return with_larger_batches(options)
