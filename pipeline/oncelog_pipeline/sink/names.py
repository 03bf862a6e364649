"""The names of a query in the cluster: transactional ids, groups, topic. Pure.

- A query has the transactional id and group id `oncelog-spark-QUERY`.
- A task's transaction has the id `oncelog-spark-QUERY/RUN/PARTITION/ATTEMPT/TURN`, in which RUN is eight characters of
  the run's id.
- With per-task delivery, a partition has the id `oncelog-spark-QUERY/PARTITION`.

All these names begin with `PREFIX`, so that a single ACL can grant the rights. A query's name contains no slash.
Therefore an id that begins with a query's name and a slash belongs to that query, and a sweep never aborts transactions
of another query whose name begins with the same letters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "oncelog-spark-"
STATE_TOPIC: Final = "oncelog-spark-state"
RUN_LENGTH: Final = 8
UNNAMED_PREFIX: Final = "batch-"
"""Prefix of the query name for a batch write without a writeId; the full id of the run follows the prefix."""
TURNS: Final = 4
"""The number of batches after which a transactional id is used again. It is not used again immediately, because a
superseded attempt may be paused with that id.
"""
_UNNAMED: Final = re.compile(UNNAMED_PREFIX + r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class Query:
    """The name of a writer: for a streaming query the checkpoint's id, for a batch job the writeId, and inside
    foreachBatch both, joined by a dot.
    """

    name: str

    def __post_init__(self) -> None:
        """Raise ValueError for a name that cannot be part of a transactional id."""
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
        """Return whether this is a batch write without a writeId, whose name differs in each run."""
        return is_unnamed(self.name)

    def task_id(self, run: str, batch: int, partition: int, attempt: int) -> str:
        """Return the transactional id of one attempt.

        The id is unique in its run, with one exception: attempts with the same number in several attempts of a stage,
        which Spark does not distinguish, have the same id. Successive batches reuse a few ids cyclically, because a
        coordinator keeps each id for days.
        """
        return f"{self.id}/{short(run)}/{partition}/{attempt}/{batch % TURNS}"

    def partition_id(self, partition: int) -> str:
        """Return the transactional id, which is also the group id, of a partition with per-task delivery."""
        return f"{self.id}/{partition}"

    @property
    def tasks_prefix(self) -> str:
        """The prefix of the transactional ids of this query's tasks; no other transactional id begins
        with this prefix.
        """
        return f"{self.id}/"

    def run_of(self, transactional_id: str) -> str | None:
        """Return the (shortened) run whose task has this id; None if the id belongs to no task of this query."""
        if not transactional_id.startswith(self.tasks_prefix):
            return None
        parts = transactional_id.removeprefix(self.tasks_prefix).split("/")
        return parts[0] if len(parts) >= 3 else None


def is_unnamed(name: str) -> bool:
    """Return whether this is the name of a batch write without a writeId: the prefix and a full UUID, because a writeId
    may begin with the prefix, too (`batch-2026-11-27`).
    """
    return _UNNAMED.fullmatch(name) is not None


def write_id(text: str) -> Query:
    """Return the query of a writeId. Raises ValueError for an invalid name, and for the name of a write without one."""
    query = Query(text)
    if query.is_unnamed:
        raise ValueError(
            f"{text!r}: {UNNAMED_PREFIX!r} and a UUID is the name of a write without a writeId, whose state is removed:"
            " choose another word before the UUID, for example load-"
        )
    return query


def unnamed_query(run: str) -> Query:
    """Return the own name of a batch write without a writeId, whose run has this (full) id."""
    return Query(UNNAMED_PREFIX + run)


def short(run: str) -> str:
    """Return the shortened id of a run, which is part of transactional ids."""
    return run[:RUN_LENGTH]
