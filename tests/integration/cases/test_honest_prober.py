"""Tests the client with which the fuzzer and other tests measure response times: it detects a blocked broker, and
reports no other delays.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from broker_memory import NEEDS_PROC, BrokerMemory
from broker_process import BrokerFactory, BrokerProcess
from foreign_clients import eventually
from honest_prober import MAX_WORST_MS, HonestProber, percentiles
from honest_prober_process import INTERVAL_SECONDS
from processor_times import ThreadTimes, Times, net_of_other_work, passed
from raw_client import RawClient

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_cluster import DescribeClusterRequest

MS = 1_000_000
BUSY = "while True: pass"
A_THREAD_THAT_COMPUTES = """
import sys, threading
def compute():
    while "serve" in sys.orig_argv: pass
threading.Thread(target=compute, daemon=True).start()
"""
COMPUTES = "while time.thread_time() - began < 0.5: pass"
SLEEPS = "time.sleep(0.5)"
A_LOOP_THAT = """
import os, select, stat, time
from contextlib import suppress
from oncelog_broker.server.cluster import describe_cluster
def sockets():
    for each in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(each).st_mode):
                yield each
def handle(request, context, real=describe_cluster.handle):
    # Until the prober's next request is there, unless it is in the loop's hands already: the machine may be busy.
    select.select(list(sockets()), [], [], 5)
    began = time.thread_time()
    {}
    return real(request, context)
describe_cluster.handle = handle
"""


def test_a_stall_counts_for_all_the_requests_that_it_kept_from_being_sent() -> None:
    """During a stall of one second, the client also counts requests that it would have sent, each with the time that it
    would have waited. With 49 seconds of short waits the stall is 2% of the time, so one request in a hundred waits
    about half a second or longer.
    """
    interval = int(INTERVAL_SECONDS * 1000)
    measured = percentiles([MS] * (99_000 // interval) + [1000 * MS])
    assert measured.p50 == 1
    assert measured.worst == 1000
    assert 1 <= measured.p99 <= 2 * interval
    assert 450 <= percentiles([MS] * (49_000 // interval) + [1000 * MS]).p99 <= 550


@contextmanager
def other_work_beside(broker: BrokerProcess) -> Iterator[None]:
    """Let the broker share one processor with three processes that never sleep."""
    processors = sorted(os.sched_getaffinity(0))[:1]
    for thread in os.listdir(f"/proc/{broker.pid}/task"):
        os.sched_setaffinity(int(thread), processors)
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(3)]
    try:
        for process in busy:
            os.sched_setaffinity(process.pid, processors)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@NEEDS_PROC
@pytest.mark.parametrize("code", ["", A_THREAD_THAT_COMPUTES], ids=["alone", "beside a thread of its own"])
def test_a_machine_with_other_work_is_not_taken_for_a_slow_broker(
    broker_factory: BrokerFactory, sabotage: Callable[[str], None], code: str
) -> None:
    sabotage(code)
    broker = broker_factory().start()
    with HonestProber(broker) as prober:
        with other_work_beside(broker):
            time.sleep(1)
        waits = prober.stop()
    assert waits.wall.p99 > 2 * waits.net.p99


@NEEDS_PROC
@pytest.mark.parametrize("does", [COMPUTES, SLEEPS])
def test_other_work_excuses_no_broker_that_stands_still(
    broker_factory: BrokerFactory, sabotage: Callable[[str], None], does: str
) -> None:
    sabotage(A_LOOP_THAT.format(does))
    broker = broker_factory().start()
    with HonestProber(broker) as prober, other_work_beside(broker):
        with RawClient(broker.port) as raw:
            raw.call(DescribeClusterRequest(include_cluster_authorized_operations=False), ApiKey.DESCRIBE_CLUSTER, 0)
        stalled = prober.now()
        waits = prober.stop()
    assert waits.net.worst >= 2 * MAX_WORST_MS
    assert waits.between(0, stalled).worst_sample() == waits.worst_sample()
    assert not waits.failures


MS_OF_WAITS = [
    # times of the prober and of the broker's loop, each as wall time and (time on a processor, time waiting for a
    # processor), then the same wait of other threads -> net wait; all in ms
    (10, (1, 2), (3, 4), 0, 3),  # the loop ran for 3 ms
    (50, (0, 0), (1, 0), 0, 50),  # the loop slept, for a lock or a disk
    (50, (0, 0), (1, 0), 40, 10),  # the loop waited for a lock whose holder had no processor
    (50, (0, 0), (1, 0), 400, 1),  # several threads waited for a processor
    (50, (0, 0), (45, 5), 400, 45),  # the loop ran the whole time, so the waiting of other threads does not count
    (50, (10, 0), (100, 0), 0, 40),  # the loop had also run before the measurement
    (5, (4, 4), (4, 4), 4, 0),
]


@pytest.mark.parametrize(("wall", "prober", "loop", "others", "net"), MS_OF_WAITS)
def test_the_brokers_share_of_a_wait_is_computed(
    wall: int, prober: tuple[int, int], loop: tuple[int, int], others: int, net: int
) -> None:
    assert net_of_other_work(wall, Times(*prober), Times(*loop), others) == net


@NEEDS_PROC
def test_times_of_short_lived_threads_are_counted() -> None:
    process = ThreadTimes(os.getpid())
    before = process.now()
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    with_thread = passed(before, process.now())
    assert thread.native_id in with_thread
    assert with_thread[os.getpid()].ran > 0
    done.set()
    thread.join()
    eventually(lambda: thread.native_id not in process.now(), "the thread is gone")
    gone = ThreadTimes(2**22 + 1)  # a process id above the kernel's highest, so no process has this id
    assert gone.now() == {}


@NEEDS_PROC
def test_the_peak_is_of_the_time_since_it_was_forgotten() -> None:
    """The kernel counts pages for each processor and sums these counts only occasionally, so a measured peak is exact
    only to some hundreds of KB.
    """
    memory = BrokerMemory(os.getpid())
    block = bytearray(64 << 20)
    block[:: 1 << 12] = bytes(len(block) >> 12)
    with_block = memory.now()
    assert with_block >= 64
    del block
    assert memory.peak() >= with_block - 8
    memory.forget_peak()
    assert memory.peak() <= with_block - 32
