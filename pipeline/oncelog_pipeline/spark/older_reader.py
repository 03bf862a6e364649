"""Reads as a stream with PySpark 4.0 and 4.1, whose `latestOffset` does not say where the next batch begins.

The reader concludes the beginning from the calls. Spark calls, in this order:

- for a new query: `latestOffset`, then `initialOffset`, then `partitions(initial, end)`;
- for a query with a checkpoint: `partitions(seen, seen)` with the last end of its log, then the calls of its batches;
- for each batch: `latestOffset`, then `partitions(start, end)`.

So a batch begins at the end of the last `partitions`; if there was no such call, the query is new. A Spark that calls
in another order is detected at the first `partitions`, before anything is read.
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
"""Option -> field of SourceOptions. `maxTriggerDelay` means nothing without `minOffsetsPerTrigger`."""


class UnknownPosition(Exception):
    """Spark asked for new offsets of a query before it told the position of the query."""


class OlderStreamReader(StreamReader):
    """Each batch reads everything that there is."""

    def __init__(self, options: SourceOptions) -> None:
        """Raises OptionError for options that limit a batch."""
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
        """Return the end of the next batch, or the end of the last one if there is nothing new.

        The end of the first batch of a query includes its beginning; what a later call of `initialOffset` returns does
        not count.

        Raises DataLoss, NoSuchTopic, OptionError, KafkaError.
        """
        if self._position is None:
            self._position = self.initialOffset()
            self._is_taken_for_new = True
        return super().latestOffset(self._position, ReadAllAvailable())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a batch, as `StreamReader` does. Raises DataLoss, UnknownPosition, KafkaError."""
        if self._is_taken_for_new and INITIAL not in start:
            raise UnknownPosition(
                f"Spark {PYSPARK} asked for new offsets before it said where the query stands, so the end of this batch"
                " may be that of another; nothing was read. Use PySpark 4.2 or newer, which says it with each question"
            )
        self._is_taken_for_new = False
        self._position = end
        return [] if start == end else super().partitions(start, end)
