"""Per-task delivery: each task commits its own rows, for batches that take longer than a transaction may last.

Each partition of a query has one transactional id, which all runs and attempts use. The rows of a partition and a
marker (the batch number, as a committed offset of a group with the transactional id's name) are written in one
transaction. Opening the producer fences every other attempt and ends its transaction, so a marker that is read after
that is final.

This delivery is not atomic over the tasks of a batch: if one task has failed, the rows of the other tasks are visible
before the replay. A replay of a partition must have the rows that were written: the marker has their digest, and other
rows are refused. Markers are kept as long as the group's offsets (`offsets.retention.minutes`, seven days without a
batch).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog_pipeline.sink.digest import Digest
from oncelog_pipeline.sink.operations import NEW_CHECKPOINT, BatchDiffers, Cluster, SetBack, StateLost, TaskProducer
from oncelog_pipeline.sink.state import Batch, TaskMessage

P = TypeVar("P", bound=TaskProducer)


async def write_task(
    cluster: Cluster[P], batch: Batch, partition: int, write: Callable[[P], Awaitable[None]]
) -> TaskMessage:
    """Run one attempt of a task: `write` sends the task's rows, unless they have been written before. The driver need
    not commit anything.

    Raises BatchDiffers, SetBack, StateLost, and the errors of `write` and the cluster, for example if another attempt
    fences this one.
    """
    transactional_id = batch.query.partition_id(partition)
    await _check_not_lost(cluster, batch, partition)
    producer = await cluster.open_task(transactional_id)
    try:
        marker = await cluster.marker(transactional_id)
        if marker is not None and marker.batch > batch.number:
            raise SetBack(
                f"{batch}, partition {partition}: batch {marker.batch} is written, so the checkpoint was set back, or "
                f"another query uses it; nothing was written. Begin a new checkpoint {NEW_CHECKPOINT}"
            )
        if marker is None:
            await _check_other_delivery(cluster, batch)
        if marker is None or marker.batch < batch.number:
            await write(producer)
            await producer.commit_with_marker(batch.number)
        elif marker.digest is not None:
            await _check_same(cluster, batch, partition, marker.digest, write)
    finally:
        await producer.close()
    return TaskMessage(batch, partition, None)


async def _check_not_lost(cluster: Cluster[P], batch: Batch, partition: int) -> None:
    """Raise StateLost if the partition has no marker although it has written before. Call this function before the
    producer is opened, because opening it makes the coordinator forget the previous transaction of the id.
    """
    transactional_id = batch.query.partition_id(partition)
    if await cluster.marker(transactional_id) is not None or not await cluster.has_committed(transactional_id):
        return
    # After an operator's reset the query has a state again. Read the marker once more, because an attempt that was
    # running just before the reset has written its marker by now.
    if await cluster.read_state(batch.query) is None and await cluster.marker(transactional_id) is None:
        raise StateLost(
            f"{batch}, partition {partition}: has written before, but the batch is no longer known: was the state"
            " topic deleted? To have this batch written, for the second time perhaps: oncelog pipeline state reset"
            f" {batch.query.name} --batch {batch.number - 1}"
        )


async def _check_other_delivery(cluster: Cluster[P], batch: Batch) -> None:
    """Raise StateLost if the batch was decided with the delivery exactly-once."""
    state = await cluster.read_state(batch.query)
    if state is not None and state.batch >= batch.number:
        raise StateLost(
            f"{batch}: batch {state.batch} was decided with delivery=exactly-once, which is unknown here. Continue"
            " with that delivery until the batch is done, then change it"
        )


async def _check_same(
    cluster: Cluster[P], batch: Batch, partition: int, written: Digest, write: Callable[[P], Awaitable[None]]
) -> None:
    """Raise BatchDiffers if the replay has other rows than were written."""
    counter = cluster.counting()
    await write(counter)
    if counter.digest != written:
        raise BatchDiffers(
            f"{batch}, partition {partition}: is written with {written.rows} rows, and its replay brings "
            f"{counter.digest.rows} rows that differ from them; nothing of the replay was written. The checkpoint lost "
            f"its last entry, or the query gives other rows each time. Begin a new checkpoint {NEW_CHECKPOINT}"
        )
