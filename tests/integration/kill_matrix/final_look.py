"""The check at the end of a run of `worker`: what two libraries read, what the logs contain, and where the group is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from foreign_clients import eventually
from raw_transactions import committed_offset, is_stable

from kill_matrix.readers import END, READERS, all_written, outputs, write_values
from kill_matrix.streams_worker import Journal, claim_problems
from kill_matrix.verdict import attempts, problems_of
from kill_matrix.worker import Job, Output

WithClient = Callable[[Callable[[Any], object]], Awaitable[None]]
"""Calls a function with a client that sends raw requests, in a thread."""


async def final_look(
    job: Job, offsets_partitions: Sequence[int], with_client: WithClient, wait_seconds: float = 30.0
) -> tuple[list[str], set[str], set[str]]:
    """Return the problems, the committed transactions, and the aborted transactions. Raises AssertionError if a log is
    not stable within `wait_seconds`, or the group is not at the end of its source.
    """
    written: list[Output] = []
    at_end = (0, job.inputs // job.source_partitions)

    def look(client: Any) -> None:
        for partition in range(job.partitions):
            write_values(client, job.target, partition, END)
        for partition in range(job.partitions):
            written.extend(all_written(client, job.target, partition))
        logs = [(job.target, partition) for partition in range(job.partitions)]
        logs += [("__consumer_offsets", partition) for partition in offsets_partitions]
        for log in logs:
            eventually(lambda: is_stable(client, *log), f"the last stable offset of {log} is at its end", wait_seconds)  # noqa: B023
        for index in range(job.source_partitions):
            eventually(
                lambda: committed_offset(client, job.group, job.source, stable=True, partition=index) == at_end,  # noqa: B023
                f"the group is at the end of partition {index}",
                wait_seconds,
            )

    await with_client(look)
    problems = claim_problems(Journal(job.transactional_id).claims())
    seen: list[Output] = []
    for name, read in READERS.items():
        seen = outputs(await read(job.address, job.target, job.partitions))
        problems += [f"{problem}, sees {name}" for problem in problems_of(seen, written, job.inputs)]
    return problems, attempts(seen), attempts(written) - attempts(seen)
