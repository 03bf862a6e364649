"""The text of the metrics has Prometheus' format, is built in small steps, and is shared by simultaneous scrapes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.log.producers.state import ProducerCounters
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metrics import scraping
from oncelog_broker.metrics.families import FAMILIES
from oncelog_broker.metrics.family import NO_LABELS, Families, Family, Sample, Samples
from oncelog_broker.metrics.scraping import LARGEST_SHARE, SAMPLES_PER_STEP, Scraper, text_of
from oncelog_broker.metrics.source import PARTITIONS_PER_STEP, Source
from oncelog_broker.observability.topic_traffic import TopicTraffic
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks

MANY = 10_000


def family(kind: str = "gauge", name: str = "size") -> Family:
    return Family(name, kind, "What it is\nand \\ why.", ("topic",), lambda _: iter(()))


def parsed(text: bytes) -> dict[str, list[Any]]:
    families = text_string_to_metric_families(text.decode())
    return {found.name: found.samples for found in families}


def steps_of(samples: Samples, of: Family) -> tuple[bytes, int]:
    """Return the text, and the number of steps in which it was built."""
    steps, count = text_of(of, samples), 0
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return b"".join(finished.value), count
        count += 1


def test_a_family_of_many_samples_is_written_in_many_steps_and_reads_as_one() -> None:
    text, steps = steps_of((Sample({"topic": f"t{number}"}, number) for number in range(MANY)), family())
    assert steps >= MANY // SAMPLES_PER_STEP
    assert text.count(b"# TYPE") == text.count(b"# HELP") == 1
    assert [sample.value for sample in parsed(text)["size"]] == list(range(MANY))


def test_a_scrape_without_samples_is_done_in_steps_too() -> None:
    def found_nothing() -> Samples:
        for _ in range(10):
            yield None

    text, steps = steps_of(found_nothing(), family())
    assert steps >= 10
    assert parsed(text) == {"size": []}


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "ü"])
def test_any_topic_name_makes_readable_metrics_text(value: str) -> None:
    text, _ = steps_of(iter([Sample({"topic": value}, 1)]), family())
    assert parsed(text)["size"][0].labels == {"topic": value}


def test_counters_and_histograms_have_the_names_that_they_are_declared_with() -> None:
    text, _ = steps_of(iter([Sample(NO_LABELS, 3)]), family("counter", "things_total"))
    assert b"# TYPE things_total counter\nthings_total 3.0\n" in text
    buckets = iter([Sample({"le": "+Inf"}, 1, "_bucket"), Sample(NO_LABELS, 2, "_sum"), Sample(NO_LABELS, 1, "_count")])
    text, _ = steps_of(buckets, family("histogram", "late_seconds"))
    assert b'late_seconds_bucket{le="+Inf"} 1.0\nlate_seconds_sum 2.0\nlate_seconds_count 1.0\n' in text


def test_names_are_unique_and_a_counter_says_so() -> None:
    names = [each.name for each in FAMILIES]
    assert len(set(names)) == len(names)
    assert all(each.name.endswith("_total") == (each.kind == "counter") for each in FAMILIES)
    with pytest.raises(AssertionError):
        Families().counter("things", "")(lambda _: iter(()))


def partition(index: int) -> Any:
    """Return an object that has those attributes of a partition which `Source` reads."""
    counters = ProducerCounters(duplicates=1)
    log = SimpleNamespace(
        producer_state=SimpleNamespace(counters=counters), log_start_offset=1_000_000, log_end_offset=1_000_010
    )
    followers = {2: SimpleNamespace(log_end_offset=1_000_010 - index % 7), 3: SimpleNamespace(log_end_offset=None)}
    return SimpleNamespace(topic="many", index=index, leads=True, log=log, messages_in_epoch=2, followers=followers)


def room_in(directory: str) -> tuple[int, int]:
    if directory == "/gone":
        raise OSError(5, "Input/output error")
    return 100, 0


def test_very_many_partitions_are_looked_at_in_small_steps() -> None:
    replicas = SimpleNamespace(
        partitions=lambda: [partition(index) for index in range(MANY)],
        traffic={"many": TopicTraffic()},
        traffic_of_deleted=TopicTraffic(),
    )
    image = ClusterImage("", controller_id=2)
    logs = SimpleNamespace(data_directories=lambda: ["/full", "/gone"], room_in=room_in)
    services = SimpleNamespace(replicas=replicas, logs=logs, image=image, node_id=1, config=BrokerConfig({}))
    source = Source(SimpleNamespace(services=services, connections=[]))  # type: ignore[arg-type]
    looking, steps = source.look(), 0
    with suppress(StopIteration):
        job = looking.send(None)
        while True:
            steps += 1
            job = looking.send(None if job is None else job())
    assert steps >= MANY // PARTITIONS_PER_STEP
    assert (source.all_topics.messages_in, source.all_topics.duplicates) == (2 * MANY, MANY)
    assert source.rooms == {"/full": (100, 0)}, "a file system that does not answer is left out"
    assert source.lag == {2: 6, 3: 10}, "a follower that is not known yet has no more to fetch than there is"
    assert replicas.traffic["many"].messages_in == 0, "looking changes nothing"


async def scraper_of(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Scraper, ManualClock]:
    """Return a scraper that returns these texts; each scrape takes two steps and one second."""
    clock = ManualClock()

    def scrape(_: Any) -> Any:
        clock.advance_ms(100)
        yield None
        return [texts.pop(0).encode()]

    monkeypatch.setattr(scraping, "scrape", scrape)
    return Scraper(lambda: SimpleNamespace(), Slices(clock, Tasks()), clock), clock  # type: ignore[arg-type, return-value]


async def test_a_scrape_during_or_soon_after_another_shares_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    scraper, clock = await scraper_of(["first", "second"], monkeypatch)
    asked = [asyncio.create_task(scraper.text()) for _ in range(3)]
    assert await asyncio.gather(*asked) == [[b"first"]] * 3
    assert await scraper.text() == [b"first"]
    clock.advance_ms(int(100 / LARGEST_SHARE))
    assert await scraper.text() == [b"second"]


async def test_a_disconnected_scraper_does_not_cancel_the_shared_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    scraper, _ = await scraper_of(["first"], monkeypatch)
    gone, staying = (asyncio.create_task(scraper.text()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert await staying == [b"first"]


async def test_a_starting_broker_has_empty_metrics() -> None:
    clock = ManualClock()
    assert await Scraper(lambda: None, Slices(clock, Tasks()), clock).text() is None
