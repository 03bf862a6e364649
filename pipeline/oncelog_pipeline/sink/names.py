"""The names that a query goes by in the cluster. Pure.

    query                   oncelog-spark-QUERY                               its own transactional id, its group id
    a task's transaction    oncelog-spark-QUERY/RUN/PARTITION/ATTEMPT/TURN    RUN: eight characters of the run's id
    a partition's           oncelog-spark-QUERY/PARTITION                     where each task writes by itself

All begin with `PREFIX`, so that one rule can give the rights. A query's name has no slash: so what begins with the
name of one and a slash belongs to no other, and sweeping one can never touch another whose name goes on differently.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "oncelog-spark-"
STATE_TOPIC: Final = "oncelog-spark-state"
RUN_LENGTH: Final = 8
UNNAMED_PREFIX: Final = "batch-"
"""Of the query's name of a batch write without a writeId; a unique name follows."""
TURNS: Final = 4
"""So many batches must pass while an attempt that has lost stands still, before it can be in the way of another."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class Query:
    """Who writes: a streaming query by the id of its checkpoint, a batch job by its writeId, a writer inside
    foreachBatch by both with a dot between them."""

    name: str

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r}: the name of a query (writeId) has 1 to 200 letters, digits, dots, hyphens, underscores"
            )

    @property
    def id(self) -> str:
        """The transactional id of the query's own producer, its group id, and its key in the state topic."""
        return PREFIX + self.name

    @property
    def is_unnamed(self) -> bool:
        """Whether this is a batch write without a writeId: each of its runs has another name."""
        return self.name.startswith(UNNAMED_PREFIX)

    def task_id(self, run: str, batch: int, partition: int, attempt: int) -> str:
        """The transactional id of one attempt. Unique in its run but for attempts of one number in several attempts of
        a stage, which Spark does not tell apart. Batches take turns with a few: a coordinator keeps each for days."""
        return f"{self.id}/{short(run)}/{partition}/{attempt}/{batch % TURNS}"

    def partition_id(self, partition: int) -> str:
        """The transactional id, and group id, of a partition where each task writes by itself."""
        return f"{self.id}/{partition}"

    @property
    def tasks_prefix(self) -> str:
        """What all transactional ids of this query's tasks, and no others, begin with."""
        return f"{self.id}/"

    def run_of(self, transactional_id: str) -> str | None:
        """The run, shortened, whose task has this id; None for an id that is no task's of this query."""
        if not transactional_id.startswith(self.tasks_prefix):
            return None
        parts = transactional_id.removeprefix(self.tasks_prefix).split("/")
        return parts[0] if len(parts) >= 3 else None


def short(run: str) -> str:
    """A run as transactional ids name it."""
    return run[:RUN_LENGTH]
