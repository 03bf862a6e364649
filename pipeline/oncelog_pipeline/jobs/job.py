"""What a job does: topics in, a query, a topic or Parquet out. Plain values, checked by `job_file.py`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog_pipeline.values.format import AS_IT_IS, ValueFormat

DEFAULT_VIEW: Final = "input"
UPDATE: Final = "update"
UPDATES_WRITE_ID: Final = "update"
"""The writeId of a job in output mode update, where its options have none."""
WRITE_ID_OPTION: Final = "writeId"


@dataclass(frozen=True, slots=True)
class Input:
    """Topics that are read as one table, which the query knows as `view`. `options` are those of format("oncelog")."""

    view: str
    options: Mapping[str, str]
    key: ValueFormat = AS_IT_IS
    value: ValueFormat = AS_IT_IS


@dataclass(frozen=True, slots=True)
class Transform:
    """One of the two: a query of Spark SQL, or the name of a Python function, "module:function"."""

    sql: str | None = None
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """Where rows go: to a topic (`parquet` is None), with `options` of format("oncelog"), or to a directory."""

    options: Mapping[str, str] = field(default_factory=dict)
    parquet: str | None = None
    partition_by: tuple[str, ...] = ()
    mode: str = "append"
    value: ValueFormat = AS_IT_IS

    @property
    def write_id(self) -> str | None:
        """The writeId with which each batch is written inside foreachBatch; None where Spark's sink writes it.

        Spark lets no sink in Python have the output mode update.
        """
        if self.parquet is not None or self.mode != UPDATE:
            return None
        given = [value for name, value in self.options.items() if name.lower() == WRITE_ID_OPTION.lower()]
        return given[-1] if given else UPDATES_WRITE_ID


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a batch begins: `interval` after the one before; at once where there is none. `is_available_now`: read what
    there is, and end."""

    interval: str | None = None
    is_available_now: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A stream from its inputs to its output. `directory` is where the file of the job lies."""

    name: str
    inputs: tuple[Input, ...]
    transform: Transform
    output: Output
    checkpoint: str
    trigger: Trigger
    spark: Mapping[str, str]
    directory: str
