"""The instrument that broker and fuzzer are judged by: it sees a broker that stands still, and no other one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from broker_memory import NEEDS_PROC, BrokerMemory
from broker_process import BrokerFactory, BrokerProcess
from honest_prober import HonestProber, percentiles
from honest_prober_process import INTERVAL_SECONDS

STALL_SECONDS = 0.3
MS = 1_000_000
BUSY = "while True: pass"


def test_a_stall_counts_for_all_the_requests_that_it_kept_from_being_sent() -> None:
    """One second in which nobody was served, and 99 seconds of short waits: one in a hundred waited half a second."""
    interval = int(INTERVAL_SECONDS * 1000)
    measured = percentiles([MS] * (99_000 // interval) + [1000 * MS])
    assert measured.p50 == 1
    assert measured.worst == 1000
    assert 1 <= measured.p99 <= 2 * interval
    assert 450 <= percentiles([MS] * (49_000 // interval) + [1000 * MS]).p99 <= 550


def test_a_broker_that_stands_still_is_seen(broker: BrokerProcess) -> None:
    with HonestProber(broker) as prober:
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(STALL_SECONDS)
        os.kill(broker.pid, signal.SIGCONT)
        stopped = prober.now()
        waits = prober.stop()
    assert waits.net.worst >= 0.9 * STALL_SECONDS * 1000
    assert waits.between(0, stopped).worst_sample() == waits.worst_sample()
    assert not waits.failures


@NEEDS_PROC
def test_a_machine_with_other_work_is_not_taken_for_a_slow_broker(broker_of_its_own: BrokerProcess) -> None:
    processors = sorted(os.sched_getaffinity(0))[:1]
    with HonestProber(broker_of_its_own) as prober:
        # The broker shares one processor with three that never sleep.
        os.sched_setaffinity(broker_of_its_own.pid, processors)
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(3)]
        try:
            for process in busy:
                os.sched_setaffinity(process.pid, processors)
            time.sleep(1)
        finally:
            for process in busy:
                process.kill()
                process.wait()
        waits = prober.stop()
    assert waits.wall.p99 > 2 * waits.net.p99


@pytest.fixture
def broker_of_its_own(broker_factory: BrokerFactory) -> BrokerProcess:
    return broker_factory().start()


@NEEDS_PROC
def test_the_peak_is_of_the_time_since_it_was_forgotten() -> None:
    """The kernel counts pages by processor and adds them up now and then: a peak is right to some hundreds of KB."""
    memory = BrokerMemory(os.getpid())
    block = bytearray(64 << 20)
    block[:: 1 << 12] = bytes(len(block) >> 12)
    with_block = memory.now()
    assert with_block >= 64
    del block
    assert memory.peak() >= with_block - 8
    memory.forget_peak()
    assert memory.peak() <= with_block - 32
