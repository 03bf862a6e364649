"""A sink with two phases, as stream processors want it (S65): a checkpoint is a transaction of each writer.

All writers `prepare`: their records are acknowledged by all replicas and visible to nobody. When all of them are, all
`commit`. Which checkpoint a writer has committed stands in `sink-checkpoints`, in the same transaction as its records,
so that it is known after any crash, also one between two commits: then the job does the checkpoint again, and writers
that have it already pass it over.

    python -m examples.two_phase_sink --servers 127.0.0.1:9092 --checkpoints 10

That takes a source that gives the same records for a checkpoint again: here numbers, in Spark what its log of offsets
says. A prepared transaction does not outlive its process: the next producer with that transactional id aborts it.
Where the broker has two-phase commit it can be kept instead: see `two_phase_database`. (Flink resumes it by the
producer's id and epoch, on any Kafka.)
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
    """One of the writers of a sink: `start`, then for each checkpoint `begin`, `write`, `prepare`, `commit`."""

    def __init__(self, servers: str, name: str) -> None:
        self._servers = servers
        self._key = name.encode()
        self._producer = Producer(servers, transactional_id=name)
        self._prepared: int | None = None
        self.committed = 0
        """The last checkpoint whose records are in the log for good; 0 before the first."""

    async def start(self) -> None:
        """Whatever was prepared and not committed is gone, and whoever was this writer before is fenced."""
        await self._producer.start()
        found = await last_value(self._servers, CHECKPOINTS, self._key)
        self.committed = 0 if found is None else int(found)

    def begin(self) -> None:
        self._producer.begin_transaction()

    async def write(self, topic: str, values: Iterable[bytes]) -> None:
        for value in values:
            await self._producer.send(topic, value)

    async def prepare(self, checkpoint: int) -> None:
        """When this returns, nothing but `commit` is missing. Raises KafkaError: the checkpoint has failed."""
        await self._producer.send(CHECKPOINTS, str(checkpoint).encode(), self._key, partition=0)
        await self._producer.flush()
        self._prepared = checkpoint

    async def commit(self) -> None:
        """The second phase. Raises KafkaError, then start again."""
        assert self._prepared is not None, "nothing is prepared"
        await self._producer.commit_transaction()
        self.committed, self._prepared = self._prepared, None

    async def close(self) -> None:
        await self._producer.close()


def share(checkpoint: int, writer: int) -> list[bytes]:
    """What of a checkpoint falls to a writer: the same whenever it is asked."""
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
