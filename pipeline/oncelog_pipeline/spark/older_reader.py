"""Reads a stream with PySpark 4.0 and 4.1, which call `latestOffset` without passing the beginning of the next batch.

The reader derives the beginning of a batch from the order of Spark's calls. Spark calls, in this order:

- for a new query: `latestOffset`, then `initialOffset`, then `partitions(initial, end)`;
- for a query with a checkpoint: `partitions(seen, seen)`, where `seen` is the last end in the checkpoint's log, then
the calls for its batches;
- for each batch: `latestOffset`, then `partitions(start, end)`.

So a batch begins at the end of the previous `partitions` call; if there was no such call, the query is new. If a
version of Spark uses another order, the reader detects the difference at the first `partitions` call, before any record
is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.options.source_options import SourceOptions
from oncelog_pipeline.source.offsets import INITIAL
from oncelog_pipeline.spark.pyspark_api import PYSPARK, ReadAllAvailable
from oncelog_pipeline.spark.stream_reader import StreamReader

LIMITS: Final[Mapping[str, str]] = {
    "maxOffsetsPerTrigger": "max_offsets_per_trigger",
    "minOffsetsPerTrigger": "min_offsets_per_trigger",
    "maxBytesPerTrigger": "max_bytes_per_trigger",
}
"""Maps each option that limits a batch to its field of SourceOptions. `maxTriggerDelay` has no effect without
`minOffsetsPerTrigger`.
"""


class UnknownPosition(Exception):
    """Spark requested the next end of a query before it had told the reader where the query's last batch ended."""


class OlderStreamReader(StreamReader):
    """The stream reader for PySpark 4.0 and 4.1. It has no limits: each batch reads all available records."""

    def __init__(self, options: SourceOptions) -> None:
        """Raise OptionError for options that limit a batch."""
        super().__init__(options)
        for name, field in LIMITS.items():
            if getattr(options, field) is not None:
                raise OptionError(
                    f"{name} needs PySpark 4.2 or newer; this is {PYSPARK}, whose Spark lets a Python source limit no"
                    " batch: leave the option out, and each batch reads everything that there is"
                )
        self._position: dict[str, Any] | None = None
        self._is_taken_for_new = False

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return the end of the next batch, or the end of the previous batch if there are no new records.

        The end of a query's first batch includes the batch's beginning, so a later `initialOffset` call, which may
        return a newer offset, has no effect on the batch.

        Raises DataLoss, NoSuchTopic, OptionError, KafkaError.
        """
        if self._position is None:
            self._position = self.initialOffset()
            self._is_taken_for_new = True
        return super().latestOffset(self._position, ReadAllAvailable())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of offsets that the tasks of a batch read. Raises DataLoss, UnknownPosition, KafkaError."""
        if self._is_taken_for_new and INITIAL not in start:
            raise UnknownPosition(
                f"Spark {PYSPARK} asked for new offsets before it said where the query stands, so the end of this batch"
                " may be that of another; nothing was read. Use PySpark 4.2 or newer, which says it with each question"
            )
        self._is_taken_for_new = False
        self._position = end
        return [] if start == end else super().partitions(start, end)
