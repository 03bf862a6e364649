"""Traffic counters never decrease, whatever happens to logs and topics; timings cover only the latest requests."""

from __future__ import annotations

from oncelog_broker.log.producers.state import ProducerCounters
from oncelog_broker.observability.loop_watch import LEAST_IDLE_SECONDS, STALL_SECONDS, LoopWatch
from oncelog_broker.observability.request_times import QUANTILES, SAMPLES, ApiTimes, quantiles
from oncelog_broker.observability.topic_traffic import TopicTraffic


def test_refusals_of_a_deleted_log_stay_counted() -> None:
    traffic = TopicTraffic()
    traffic.fold(ProducerCounters(duplicates=1, old_duplicates=2, gaps=3))
    traffic.fold(ProducerCounters(duplicates=10))
    assert (traffic.duplicates, traffic.old_duplicates, traffic.gaps) == (11, 2, 3)


def test_counts_of_a_deleted_topic_are_moved_once() -> None:
    traffic, deleted = TopicTraffic(), TopicTraffic()
    traffic.bytes_in, traffic.isr_shrinks, deleted.bytes_in = 5, 2, 100
    traffic.move_to(deleted)
    traffic.move_to(deleted)
    assert (deleted.bytes_in, deleted.isr_shrinks, traffic.bytes_in) == (105, 2, 0)


def test_times_are_those_of_the_latest_requests() -> None:
    times = ApiTimes()
    for number in range(SAMPLES + 10):
        times.note_waited(0.0, 1.0, 2.0, 3.0 + number)
    assert len(times.samples("total")) == SAMPLES
    assert min(times.samples("total")) == 13.0
    assert set(times.samples("local")) == set(times.samples("remote")) == {1.0}


def test_quantiles_are_values_that_were_seen() -> None:
    assert quantiles([]) == []
    assert quantiles([7.0]) == [7.0] * len(QUANTILES)
    assert quantiles([float(number) for number in range(1000, 0, -1)])[:3] == [501.0, 751.0, 951.0]


def test_only_a_delay_beyond_the_limit_is_a_stall() -> None:
    watch = LoopWatch(lambda: 0.0, lambda: 0.0)
    for late in (-0.001, STALL_SECONDS, 0.02, 0.3, 60.0):
        watch.note(late)
    assert watch.stalls == [1, 0, 0, 0, 1, 0, 0, 1]
    assert watch.longest_seconds == 60.0


def test_idleness_covers_the_time_since_the_last_scrape() -> None:
    now, spent = 0.0, 0.0
    watch = LoopWatch(lambda: now, lambda: spent)
    assert watch.idle_fraction() == 1.0
    now, spent = 10.0, 4.0
    assert watch.idle_fraction() == 0.6
    now, spent = 10.0 + LEAST_IDLE_SECONDS / 2, 4.5
    assert watch.idle_fraction() == 0.6, "too soon to tell"
    now, spent = 12.0, 6.0
    assert watch.idle_fraction() == 0.0
