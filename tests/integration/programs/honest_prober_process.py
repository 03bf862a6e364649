"""The process of an honest client, which sends one request at a time, every few milliseconds, over plain blocking
sockets.

    python honest_prober_process.py

The process reads "PORT BROKER_PID", prints "ready" after a response to every kind of request, continues until it reads
another line, and then prints its measurements as one line of JSON. The process repeats this cycle for one broker after
another until its standard input ends, because starting a process takes longer than many measurements. The client runs
in a separate process, so that the test's own work cannot look like a slow broker.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "clients"))  # a script finds only modules in its own directory

from processor_times import ThreadTimes, Times, net_of_other_work, passed, stolen_ns
from raw_client import PRODUCE_VERSION, RawClient, produce_request

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record, read_records

STDIN = 0
COMMAND_BYTES = 100
"""The maximum size in bytes of a command, larger than any real command. The test sends a command only after the
previous one was answered.
"""
INTERVAL_SECONDS = 0.005
PATIENCE_SECONDS = 60.0
"""Seconds after which a request has failed; a request whose connection ends has failed, too. A busy machine may need
half of this time.
"""
RARELY = 24
"""Once in this number of ticks (one request each) the client opens a new connection, and once it sends a large frame.
"""
TOPIC = "honest-prober"
LARGE_BYTES = 32_000
"""The size in bytes of a large request, more than a broker accepts without counting it in its memory budget."""


class Prober:
    """The connections, and the requests by kind."""

    def __init__(self, port: int, broker_pid: int) -> None:
        self.port = port
        self.clients: dict[str, RawClient] = {}
        self.broker_pid = broker_pid
        self.broker, self.own = ThreadTimes(broker_pid), ThreadTimes(os.getpid())
        self.samples: list[tuple[str, int, int, int]] = []
        self.failures: list[tuple[str, int, str]] = []
        self.produced = (0, b"")
        self.large = os.urandom(LARGE_BYTES)
        self.kinds: dict[str, Callable[[], None]] = {
            "api versions": self._api_versions,
            "produce": self._produce,
            "fetch": self._fetch,
            "connect": self._connect,
            "produce 32 KB": self._produce_large,
        }

    def probe(self, kind: str) -> None:
        """Send one request of this kind, and measure it. Samples are (kind, started, wall time, the part caused by the
        broker), in ns.
        """
        broker, own, stolen = self.broker.now(), self.own.now(), stolen_ns()
        started = time.monotonic_ns()
        try:
            self.kinds[kind]()
        except (OSError, AssertionError) as error:
            self.failures.append((kind, started, repr(error)))
            client = self.clients.pop(kind, None)
            if client is not None:
                client.socket.close()
        wall = time.monotonic_ns() - started
        prober = passed(own, self.own.now()).get(os.getpid(), Times())
        threads = passed(broker, self.broker.now())
        loop = threads.pop(self.broker_pid, Times())
        others = sum(times.queued for times in threads.values()) + stolen_ns() - stolen
        self.samples.append((kind, started, wall, net_of_other_work(wall, prober, loop, others)))

    def close(self) -> None:
        for client in self.clients.values():
            client.socket.close()
        self.broker.close()
        self.own.close()

    def _client(self, name: str) -> RawClient:
        if name not in self.clients:
            self.clients[name] = RawClient(self.port, timeout=PATIENCE_SECONDS)
        return self.clients[name]

    def _api_versions(self) -> None:
        self._client("api versions").call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)

    def _produce(self) -> None:
        value = b"%d" % time.monotonic_ns()
        self.produced = self._placed(self._client("produce"), 0, value), value

    def _fetch(self) -> None:
        offset, value = self.produced
        batches = self._client("fetch").fetch(TOPIC, 0, offset)
        # There may be more batches than expected if the response to a later Produce was lost.
        assert [record.value for batch in batches[:1] for record in read_records(batch)] == [value]

    def _connect(self) -> None:
        with RawClient(self.port, timeout=PATIENCE_SECONDS) as client:
            client.call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)

    def _produce_large(self) -> None:
        self._placed(self._client("produce 32 KB"), 1, self.large)

    def _placed(self, client: RawClient, partition: int, value: bytes) -> int:
        batch = build_batch([Record(0, 1_700_000_000_000, None, value, [])])
        answer = client.call(produce_request(TOPIC, partition, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
        (placed,) = answer.responses[0].partition_responses
        assert placed.error_code == 0, placed
        offset: int = placed.base_offset
        return offset


def kind_of(tick: int) -> str:
    if tick % RARELY == 0:
        return "connect"
    if tick % RARELY == RARELY // 2:
        return "produce 32 KB"
    return ("api versions", "produce", "fetch")[tick % 3]


def measure(prober: Prober) -> None:
    for kind in prober.kinds:
        prober.probe(kind)
    assert not prober.failures, prober.failures
    prober.samples.clear()
    print("ready", flush=True)
    tick, due = 0, time.monotonic()
    while not select.select([STDIN], [], [], max(0.0, due - time.monotonic()))[0]:
        prober.probe(kind_of(tick))
        tick += 1
        # Missed ticks are not made up for by a burst of requests, because `honest_prober` adds them to its
        # measurements.
        due = max(due + INTERVAL_SECONDS, time.monotonic())


def main() -> None:
    gc.disable()
    while told := os.read(STDIN, COMMAND_BYTES):
        port, broker_pid = map(int, told.split())
        with closing(Prober(port, broker_pid)) as prober:
            measure(prober)
            os.read(STDIN, COMMAND_BYTES)
            print(json.dumps({"samples": prober.samples, "failures": prober.failures}), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
