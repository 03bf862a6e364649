"""A sink with two phases, as stream processors require it (S65): each writer writes a checkpoint in one transaction.

In the first phase all writers `prepare`: all replicas acknowledge their records, which no read_committed consumer sees
yet. When all writers are prepared, all of them `commit`. The number of a writer's last committed checkpoint is stored
in `sink-checkpoints`, in the same transaction as its records, so that it is known after any crash. After a crash
between two commits, the job repeats the checkpoint, and writers that have already committed it skip it.

    python -m examples.two_phase_sink --servers 127.0.0.1:9092 --checkpoints 10

Such a repetition requires a source that can read the records of a checkpoint again. Here the records are numbers that
are computed again; Spark reads the same ranges of offsets again. A prepared transaction does not outlive its process:
the next producer with that transactional id aborts it. If the broker has two-phase commit, the prepared transaction can
be kept instead: see `two_phase_database`. (Flink can end a prepared transaction on any Kafka cluster, because it stores
the producer's id and epoch.)
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable
from typing import Final

from examples.state_topic import ensure_state_topic, last_value

from oncelog import Producer

CHECKPOINTS: Final = "sink-checkpoints"
PER_CHECKPOINT: Final = 10
WRITERS: Final = 2


class TwoPhaseWriter:
    """One of the writers of a sink: call `start`, then for each checkpoint `begin`, `write`, `prepare`, `commit`."""

    def __init__(self, servers: str, name: str) -> None:
        self._servers = servers
        self._key = name.encode()
        self._producer = Producer(servers, transactional_id=name)
        self._prepared: int | None = None
        self.committed = 0
        """The last checkpoint whose records are permanently in the log; 0 before the first."""

    async def start(self) -> None:
        """Start the producer, which aborts prepared and uncommitted transactions and fences the previous process of
        this writer.
        """
        await self._producer.start()
        found = await last_value(self._servers, CHECKPOINTS, self._key)
        self.committed = 0 if found is None else int(found)

    def begin(self) -> None:
        self._producer.begin_transaction()

    async def write(self, topic: str, values: Iterable[bytes]) -> None:
        for value in values:
            await self._producer.send(topic, value)

    async def prepare(self, checkpoint: int) -> None:
        """Prepare the checkpoint, so that only `commit` is missing. Raises KafkaError if the checkpoint has failed."""
        await self._producer.send(CHECKPOINTS, str(checkpoint).encode(), self._key, partition=0)
        await self._producer.flush()
        self._prepared = checkpoint

    async def commit(self) -> None:
        """Execute the second phase, which commits the checkpoint. Raises KafkaError, after which the job must start
        again.
        """
        assert self._prepared is not None, "nothing is prepared"
        await self._producer.commit_transaction()
        self.committed, self._prepared = self._prepared, None

    async def close(self) -> None:
        await self._producer.close()


def share(checkpoint: int, writer: int) -> list[bytes]:
    """Return the part of a checkpoint that belongs to a writer, which is the same at each call."""
    numbers = range((checkpoint - 1) * PER_CHECKPOINT, checkpoint * PER_CHECKPOINT)
    return [b"%d" % number for number in numbers if number % WRITERS == writer]


async def run(servers: str, topic: str, checkpoints: int) -> None:
    await ensure_state_topic(servers, CHECKPOINTS)
    writers = [TwoPhaseWriter(servers, f"{topic}-writer-{number}") for number in range(WRITERS)]
    try:
        for writer in writers:
            await writer.start()
        first = min(writer.committed for writer in writers) + 1
        for checkpoint in range(first, checkpoints + 1):
            behind = [(number, writer) for number, writer in enumerate(writers) if writer.committed < checkpoint]
            for number, writer in behind:
                writer.begin()
                await writer.write(topic, share(checkpoint, number))
                await writer.prepare(checkpoint)
            for _, writer in behind:
                await writer.commit()
            print(f"checkpoint {checkpoint}", flush=True)
    finally:
        for writer in writers:
            await writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="sunk")
    parser.add_argument("--checkpoints", type=int, default=10)
    options = parser.parse_args()
    asyncio.run(run(options.servers, options.topic, options.checkpoints))


if __name__ == "__main__":
    main()
