"""Commits decided transactions whose driver died before it had committed all of them.

A decision says that the transactions which it names are to be committed, so any process that finds the decision may
commit them. A commit may be repeated any number of times, by several processes simultaneously, also while the driver
runs. The commit must happen before the transactions time out. A streaming query, or a write with a writeId, commits
these transactions when it starts again. For queries that are not started again, and for writes without a writeId,
`finish_open` and `finish_unnamed` commit them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from oncelog_pipeline.sink.exactly_once import commit_decided
from oncelog_pipeline.sink.names import Query, is_unnamed
from oncelog_pipeline.sink.operations import Cluster
from oncelog_pipeline.sink.state import Batch, State

UNNAMED_KEPT_SECONDS: Final = 24 * 3600.0
"""Seconds for which the state of a write without a writeId is kept after its driver died, for a retry of the write
(unnamed.py).
"""

logger = logging.getLogger(__name__)


class Kept(NamedTuple):
    """The state of a query, and the age of its record in seconds."""

    state: State
    age_seconds: float


class Orphanage(Cluster[Any], Protocol):
    """The operations of a cluster, extended by two operations that list and remove states."""

    async def states_by_name(self) -> dict[str, Kept]:
        """Return the state of each query, by the query's name."""

    async def remove_state(self, query: Query, seen: State) -> bool:
        """Remove the state of a query if it is still the state `seen`. Returns whether the state was removed."""


async def finish_open(cluster: Orphanage, prefix: str = "") -> dict[str, frozenset[int]]:
    """Commit all decided transactions that are still open, for all queries whose names begin with `prefix`. Returns for
    each query with open transactions the lost partitions, whose transactions had timed out.
    """
    states = await cluster.states_by_name()
    return await _finish(cluster, {name: kept for name, kept in states.items() if name.startswith(prefix)})


async def _finish(cluster: Orphanage, states: Mapping[str, Kept]) -> dict[str, frozenset[int]]:
    finished = {}
    for name, (state, _) in states.items():
        if await _is_any_open(cluster, state):
            batch = Batch(Query(name), state.run, state.batch)
            finished[name] = await commit_decided(cluster, state.transactions, batch)
            logger.warning(
                "%s: decided transactions that were still open are committed; lost partitions: %s",
                batch,
                sorted(finished[name]),
            )
    return finished


async def finish_unnamed(cluster: Orphanage) -> None:
    """Commit the decided transactions that writes without a writeId have left open; after that remove states that are
    older than UNNAMED_KEPT_SECONDS.
    """
    states = {name: kept for name, kept in (await cluster.states_by_name()).items() if is_unnamed(name)}
    await _finish(cluster, states)
    for name, (state, age_seconds) in states.items():
        if age_seconds > UNNAMED_KEPT_SECONDS:
            await cluster.remove_state(Query(name), state)


async def _is_any_open(cluster: Orphanage, state: State) -> bool:
    for each in state.transactions:
        if await cluster.is_ongoing(each.written.transaction.transactional_id):
            return True
    return False
