"""What a follower's Fetch costs its leader, by the partitions in its session: `bench/fetch_sessions.py [--keep]`.

A leader with 100, 600 and 2,000 partitions, and a follower that fetches all of them in one session, as between two
brokers of a cluster: real logs and request handlers, without sockets. In each round, one record is written to some of
the partitions, and the follower fetches twice: for the records, and to confirm them. The figures are the CPU of one
Fetch, and the longest turn of the event loop. With idle partitions (`kept/session_partition.py`) both depend on the
partitions with news, not on those in the session. `--all` lets no partition become idle, for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parent.parent
for folder in (ROOT, ROOT / "bench"):
    sys.path.insert(0, str(folder))

from kept import keep  # noqa: E402
from table import Table  # noqa: E402
from tests.support.served import EPOCH, FOLLOWER, LEADER, Client, Served  # noqa: E402
from tests.support.storage import make_batch  # noqa: E402

from oncelog_broker.log.config import LogConfig  # noqa: E402
from oncelog_broker.replication.fetch_plan import FetchLimits, FetchPlan  # noqa: E402
from oncelog_broker.replication.follower_progress import FetchPosition  # noqa: E402
from oncelog_protocol.api import ApiKey  # noqa: E402
from oncelog_protocol.records.batch import batches  # noqa: E402

SIZES: Final = (100, 600, 2_000)
WRITTEN: Final = (0, 1, 20)
"""How many partitions get a record in each round."""
ROUNDS: Final = 60
BOTH: Final = (LEADER, FOLLOWER)
LIMITS: Final = FetchLimits(
    partition_bytes=1 << 20, response_bytes=1 << 20, min_bytes=1, max_wait_seconds=0.0, max_rest_seconds=1.0
)


class Follower:
    """Fetches all partitions of a leader in one session."""

    def __init__(self, served: Served, *, rests: bool) -> None:
        self._served = served
        self._rests = rests
        self._client = Client(served)
        self._plan = FetchPlan(LIMITS)
        self._positions = [FetchPosition(0, -1, 0, 0)] * len(served.partitions)
        self.cpu: list[float] = []
        """The CPU seconds of each Fetch at the leader."""
        self.turns: list[float] = []
        """The longest turn of the event loop during each Fetch, in seconds."""
        for partition in served.partitions:
            self._ask_for(partition.index)

    def _ask_for(self, index: int) -> None:
        self._plan.ask_for((bytes(16), index), self._positions[index])

    async def fetch(self) -> None:
        request = self._plan.next_request(FOLLOWER, EPOCH, 0.0)
        assert request is not None
        frame = self._client._frame(replace(request, max_wait_ms=0), ApiKey.FETCH, 17)
        wire = self._client.wire
        wire.bytes = b""
        began, turn, longest = time.process_time(), time.perf_counter(), 0.0
        sent = 0
        while sent < len(frame):
            sent += self._client._receive(frame[sent:])
        while not wire.bytes:
            await asyncio.sleep(0)
            now = time.perf_counter()
            turn, longest = now, max(longest, now - turn)
        self.cpu.append(time.process_time() - began)
        self.turns.append(max(longest, time.perf_counter() - turn))
        ((_, response),) = self._client.answers()
        session = self._served.services.fetch_sessions._of_followers[FOLLOWER]
        if not self._rests:
            session.close()
        for asked in self._plan.on_response(response):
            index = asked.key[1]
            for batch in batches(bytes(asked.answer.records)):
                self._positions[index] = FetchPosition(batch.last_offset + 1, batch.partition_leader_epoch, 0, 0)
                self._ask_for(index)


async def measure(directory: Path, count: int, written: int, *, rests: bool) -> tuple[float, float]:
    """Return the median CPU of a Fetch in us, and the median of the longest turns in ms."""
    served = Served(directory, partitions=count, segment_bytes=LogConfig().segment_bytes)
    for partition in served.partitions:
        partition.lead(0, BOTH, BOTH)
    follower = Follower(served, rests=rests)
    for _ in range(4):
        await follower.fetch()
    follower.cpu.clear()
    follower.turns.clear()
    for number in range(ROUNDS):
        for place in range(written):
            partition = served.partitions[(number * written + place) % count]
            partition.append(memoryview(make_batch()), required_acks=1)
        for _ in range(2):
            await follower.fetch()
    served.leave()
    return median(follower.cpu) * 1e6, median(follower.turns) * 1e3


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keep", action="store_true", help="keep the figures as the part `fetch sessions`")
    options = arguments.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 20_000), most))
    table = Table()
    for count in SIZES:
        for written in WRITTEN:
            for rests in (True, False):
                with tempfile.TemporaryDirectory() as made:
                    cpu, turn = asyncio.run(measure(Path(made), count, written, rests=rests))
                what = f"session of {count:,} partitions, {written} with a new record"
                if not rests:
                    what += ", all visited"
                table.add(f"{what}: CPU of a Fetch", cpu, "us")
                table.add(f"{what}: longest turn of the loop", turn, "ms")
    if options.keep:
        keep({"fetch sessions": table.rows})


if __name__ == "__main__":
    main()
