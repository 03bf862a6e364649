"""Decisions whose driver died before it had ended their transactions.

The decision says that its rows are to be seen, so whoever finds it may commit them: that is right however often it is
done, and by however many at once, the driver among them. It must be done before the transactions time out. A query and
a write with a writeId do it themselves when they start again, and write what has timed out once more. A write without a
writeId has a name of its own that no later run knows: others must do it for such a write, and what has timed out is
lost, and is told.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from oncelog_pipeline.sink.exactly_once import commit_decided
from oncelog_pipeline.sink.names import UNNAMED_PREFIX, Query
from oncelog_pipeline.sink.operations import Cluster
from oncelog_pipeline.sink.state import Batch, State

logger = logging.getLogger(__name__)


class Orphanage(Cluster[Any], Protocol):
    """A cluster that lists and removes states."""

    async def states_by_name(self) -> dict[str, State]:
        """The state of each query, by its name."""

    async def remove_state(self, query: Query, seen: State) -> None:
        """Remove the state of a query that is over, if it still is the one that was `seen`."""


async def finish_open(cluster: Orphanage) -> dict[str, frozenset[int]]:
    """Commit all that is decided and still open, of whatever query. Query -> the partitions that are lost; queries of
    which nothing was open are not in it, but for unnamed writes."""
    finished = {}
    for name, state in (await cluster.states_by_name()).items():
        if not name.startswith(UNNAMED_PREFIX) and await _is_any_open(cluster, state):
            batch = Batch(Query(name), state.run, state.batch)
            finished[name] = await commit_decided(cluster, state.transactions, batch)
    return finished | await finish_orphans(cluster)


async def _is_any_open(cluster: Orphanage, state: State) -> bool:
    for each in state.transactions:
        if await cluster.is_ongoing(each.written.transaction.transactional_id):
            return True
    return False


async def finish_orphans(cluster: Orphanage) -> dict[str, frozenset[int]]:
    """Commit what unnamed writes have decided, and remove their states. Query -> the partitions that are lost."""
    finished = {}
    for name, state in (await cluster.states_by_name()).items():
        if name.startswith(UNNAMED_PREFIX) and state.transactions:
            query = Query(name)
            lost = await commit_decided(cluster, state.transactions, Batch(query, state.run, state.batch))
            await cluster.remove_state(query, state)
            finished[name] = lost
            logger.warning("%s: a write whose driver died was finished; lost partitions: %s", name, sorted(lost))
    return finished
