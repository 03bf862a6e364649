"""Each task writes its rows once, by itself: for batches that take longer than a transaction may.

One transactional id for each partition of a query, whatever the run and the attempt. Its rows and a marker, the number
of the batch as a committed offset of a group of that name, are one transaction. Who opens the producer has fenced every
other attempt, and ended what that had open; so the marker that it reads then is the last word.

Not atomic over the tasks of a batch: where one has failed, the others are seen before the replay. A replay of a
partition must bring the rows that were written: the marker has their digest, and other rows are refused. The markers
are kept for as long as the group's offsets are (`offsets.retention.minutes`, seven days without a batch).
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
    """One attempt of a task: `write` sends its rows, unless they are written. There is nothing for the driver to do.

    Raises BatchDiffers, SetBack, StateLost, and what `write` and the cluster raise; fenced by another attempt among it.
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
    """Raises StateLost where the partition has no marker, though it has written before.

    Before a producer is opened, since that has the coordinator forget it.
    """
    transactional_id = batch.query.partition_id(partition)
    if await cluster.marker(transactional_id) is not None or not await cluster.has_committed(transactional_id):
        return
    # An operator's reset says what counts; an attempt that was open a moment ago has a marker by now.
    if await cluster.read_state(batch.query) is None and await cluster.marker(transactional_id) is None:
        raise StateLost(
            f"{batch}, partition {partition}: has written before, but which batch is not known any more: was the state"
            " topic deleted? To have this batch written, for the second time perhaps: oncelog pipeline state reset"
            f" {batch.query.name} --batch {batch.number - 1}"
        )


async def _check_other_delivery(cluster: Cluster[P], batch: Batch) -> None:
    """Raises StateLost where the batch was decided with the other delivery."""
    state = await cluster.read_state(batch.query)
    if state is not None and state.batch >= batch.number:
        raise StateLost(
            f"{batch}: batch {state.batch} was decided with delivery=exactly-once, of which nothing is known here. Go"
            " on with that delivery until the batch is done, then change it"
        )


async def _check_same(
    cluster: Cluster[P], batch: Batch, partition: int, written: Digest, write: Callable[[P], Awaitable[None]]
) -> None:
    """Raises BatchDiffers where the replay does not bring the rows that were written."""
    counter = cluster.counting()
    await write(counter)
    if counter.digest != written:
        raise BatchDiffers(
            f"{batch}, partition {partition}: is written with {written.rows} rows, and its replay brings "
            f"{counter.digest.rows} rows that differ from them; nothing of the replay was written. The checkpoint lost "
            f"its last entry, or the query gives other rows each time. Begin a new checkpoint {NEW_CHECKPOINT}"
        )
