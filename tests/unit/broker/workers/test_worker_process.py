"""The conditions under which a worker process is restarted, and the log message that describes its end."""

from __future__ import annotations

from oncelog_broker.workers.worker_process import MAX_DELAY_SECONDS, described_end, restart_delay


def test_a_worker_is_started_again_at_once_and_ever_later_if_it_keeps_dying() -> None:
    delays = [restart_delay(deaths) for deaths in range(1, 100)]
    assert delays[:4] == [0.0, 0.5, 1.0, 2.0]
    assert delays == sorted(delays)
    assert delays[-1] == MAX_DELAY_SECONDS


def test_the_end_of_a_process() -> None:
    assert described_end(1) == "ended with exit code 1"
    assert described_end(-9) == "was killed by SIGKILL"
    assert described_end(-200) == "was killed by signal 200"
