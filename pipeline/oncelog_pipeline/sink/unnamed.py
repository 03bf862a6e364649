"""Commits a batch write without a writeId, and recognises a retry of such a write by its rows.

Each run of such a write has a new name, so a job that is started again cannot find out by name whether the first run
succeeded. A driver that dies between the decision and the last commit leaves its state, which has a digest of its rows.
A later write of the same rows takes over this state, as a later run of a query does. The later write commits the
decided transactions, writes the rows of the transactions that have timed out, and writes no other rows.

Why this is correct:

- *The state is removed last*, and only by the run that owns it. A run whose state was taken over fails (TakenOver),
  even if it has committed its rows. These rows then count as the rows of the write that took over the state. So if
  several writes of the same rows succeed, the rows appear once for each of them: either the write has written them, or
  it has taken over the rows of one write that failed.
- *A running driver is not disturbed*: it removes its state within moments, and the later write waits for that removal.
- *The decided rows still exist*: the topic has the same id, and no record has been deleted from it since the decision.

Three cases are not covered. A driver may die after it has removed the state, but before its job has recorded the
success. A retry may have other rows, or its tasks may divide the rows of a timed-out transaction differently. Rows may
name their topics in the column "topic".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from oncelog_pipeline.sink import exactly_once
from oncelog_pipeline.sink.digest import Digest
from oncelog_pipeline.sink.names import Query, is_unnamed
from oncelog_pipeline.sink.operations import TakenOver
from oncelog_pipeline.sink.orphans import Orphanage
from oncelog_pipeline.sink.state import Batch, State, TaskMessage

LOOKS: Final = 10
LOOK_SECONDS: Final = 1.0
"""The state of an earlier write with the same rows is read LOOKS times, with a pause of LOOK_SECONDS before each read.
If the state does not change, the driver of the earlier write is considered dead.
"""

logger = logging.getLogger(__name__)


async def commit(cluster: Orphanage, batch: Batch, messages: Iterable[TaskMessage], topic: str | None) -> None:
    """Write the decision to commit a write without a writeId, commit the transactions of its tasks, and remove its
    state. `topic` is the topic of all rows; None if the rows name their topics. Also raises TakenOver if a later write
    of the same rows has assumed that this driver is dead, and has taken over its state.
    """
    told = list(messages)
    has_rows = any(message.written is not None for message in told)
    target = await cluster.target(topic) if topic is not None and has_rows else None
    earlier = None if target is None else await _same_write(cluster, batch, told, target)
    if earlier is None:
        if await exactly_once.commit(cluster, batch, told, target, removes_state=True):
            await _forget(cluster, batch)  # an earlier call has decided
        return
    again = Batch(earlier, batch.run, batch.number)
    taken = await exactly_once.take_over(cluster, again)
    if taken.batch != batch.number:
        # Since the last look at the state, its driver or another retry has ended that write and removed its state.
        await cluster.remove_state(earlier, taken)
        await commit(cluster, batch, told, topic)
        return
    lost = taken.lost
    repairs = [replace(each, batch=again, written=each.written if each.partition in lost else None) for each in told]
    await exactly_once.commit(cluster, again, repairs, target)
    await _forget(cluster, again)
    await exactly_once.abort(cluster, batch, [each for each in told if each.partition not in lost])
    logger.warning(
        "%s: repeats the write %s, whose driver died: its rows are written once; partitions written now: %s",
        batch,
        earlier.name,
        sorted(lost),
    )


async def abort(cluster: Orphanage, batch: Batch, messages: Iterable[TaskMessage]) -> None:
    """Abort a write without a writeId if its commit is not decided; commit it if it is decided. If this write has taken
    over another write, the
    transactions that the other write has decided are committed first.
    """
    for name, (state, _) in (await cluster.states_by_name()).items():
        if state.run == batch.run and name != batch.query.name:
            await exactly_once.abort(cluster, Batch(Query(name), batch.run, state.batch), ())
    await exactly_once.abort(cluster, batch, messages)


async def _same_write(cluster: Orphanage, batch: Batch, messages: Sequence[TaskMessage], target: str) -> Query | None:
    """Return an earlier write of the same rows that is decided, whose rows still exist, and whose driver has died; None
    if there is no such write.
    """
    digest = exactly_once.batch_digest(messages)
    if digest is None or not digest.rows:
        return None
    brought = {message.partition: message.digest for message in messages if message.written is not None}
    for name, (state, _) in sorted((await cluster.states_by_name()).items()):
        is_another = is_unnamed(name) and name != batch.query.name and state.batch == batch.number
        is_same = is_another and (state.digest, state.target) == (digest, target) and _can_repair(state, brought)
        if is_same and await _is_left(cluster, Query(name), state):
            return Query(name)
    return None


def _can_repair(state: State, brought: Mapping[int, Digest | None]) -> bool:
    """Return whether this write has the same rows as the earlier write in each partition whose transaction is lost or
    may still time out.
    """
    known = dict(state.lost) | {each.partition: each.digest for each in state.transactions}
    return all(digest is not None and brought.get(partition) == digest for partition, digest in known.items())


async def _is_left(cluster: Orphanage, query: Query, seen: State) -> bool:
    """Read the state LOOKS times with a pause of LOOK_SECONDS seconds, and return whether it remains `seen`, which
    shows that its driver is dead.
    """
    for _ in range(LOOKS):
        await cluster.pause(LOOK_SECONDS)
        if await cluster.read_state(query) != seen:
            return False
    return True


async def _forget(cluster: Orphanage, batch: Batch) -> None:
    """Remove the state of a finished write. Raises TakenOver if another write has taken over the state."""
    state = await cluster.read_state(batch.query)
    is_ours = state is not None and state.run == batch.run
    if state is None or not is_ours or not await cluster.remove_state(batch.query, state):
        raise TakenOver(f"{batch}: a later write of the same rows has taken this one over, as its driver seemed dead")
