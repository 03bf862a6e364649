"""A job: input topics, a query, and an output topic or Parquet. The classes hold plain values, which `job_file.py` has
checked. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog_pipeline.values.format import AS_IT_IS, ValueFormat

DEFAULT_VIEW: Final = "input"
UPDATE: Final = "update"
UPDATES_WRITE_ID: Final = "update"
"""The writeId of a job in output mode update if the job's options have none."""
WRITE_ID_OPTION: Final = "writeId"


@dataclass(frozen=True, slots=True)
class Input:
    """Topics that are read as one table, named `view` in the query. `options` are the options of format("oncelog")."""

    view: str
    options: Mapping[str, str]
    key: ValueFormat = AS_IT_IS
    value: ValueFormat = AS_IT_IS


@dataclass(frozen=True, slots=True)
class Transform:
    """The transform of a job: either a query of Spark SQL, or the name of a Python function, "module:function"."""

    sql: str | None = None
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a job: a topic, if `parquet` is None, with `options` of format("oncelog"); otherwise a directory of
    Parquet files.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    parquet: str | None = None
    partition_by: tuple[str, ...] = ()
    mode: str = "append"
    value: ValueFormat = AS_IT_IS

    @property
    def write_id(self) -> str | None:
        """The writeId of the writes inside foreachBatch; None if Spark's sink writes the batches.

        A job in output mode update uses foreachBatch, because Spark does not let Python sinks use that mode.
        """
        if self.parquet is not None or self.mode != UPDATE:
            return None
        given = [value for name, value in self.options.items() if name.lower() == WRITE_ID_OPTION.lower()]
        return given[-1] if given else UPDATES_WRITE_ID


@dataclass(frozen=True, slots=True)
class Trigger:
    """When the next batch begins: `interval` after the previous batch began, or immediately if `interval` is None. With
    `is_available_now` the query reads the records that exist now, then ends.
    """

    interval: str | None = None
    is_available_now: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A streaming query from its inputs to its output. `directory` is the directory that contains the job file."""

    name: str
    inputs: tuple[Input, ...]
    transform: Transform
    output: Output
    checkpoint: str
    trigger: Trigger
    spark: Mapping[str, str]
    directory: str
