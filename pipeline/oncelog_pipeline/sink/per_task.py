"""Each task writes its rows once, by itself: for batches that take longer than a transaction may.

One transactional id for each partition of a query, whatever the run and the attempt. Its rows and a marker, the number
of the batch as a committed offset of a group of that name, are one transaction. Who opens the producer has fenced every
other attempt, and ended what that had open; so the marker that it reads then is the last word.

Not atomic over the tasks of a batch: where one has failed, the others are seen before the replay. Exact where the
replay of a partition brings the same rows. The markers are kept for as long as the group's offsets are
(`offsets.retention.minutes`, seven days without a batch).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog_pipeline.sink.operations import Cluster, TaskProducer
from oncelog_pipeline.sink.state import Batch, TaskMessage

P = TypeVar("P", bound=TaskProducer)


async def write_task(
    cluster: Cluster[P], batch: Batch, partition: int, write: Callable[[P], Awaitable[None]]
) -> TaskMessage:
    """One attempt of a task: `write` sends its rows, unless they are written. There is nothing for the driver to do.

    Raises what `write` and the cluster raise; fenced by another attempt among it.
    """
    transactional_id = batch.query.partition_id(partition)
    producer = await cluster.open_task(transactional_id)
    try:
        if await cluster.marker(transactional_id) < batch.number:
            await write(producer)
            await producer.commit_with_marker(batch.number)
    finally:
        await producer.close()
    return TaskMessage(batch, partition, None)
