"""The metrics of share groups that a live broker exports: lag, records in flight, deliveries, acknowledgements, expired
locks, and records that have used up their deliveries.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from confluent_kafka import AcknowledgeType, Producer
from foreign_clients import eventually
from sharing_member import sharing

sys.path.append(str(Path(__file__).parents[3] / "deploy"))

from grafana_panels import Labels, told

Metrics = dict[str, list[Labels]]
ACKED = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
LAG, ACQUIRED = "oncelog_share_partition_lag_records", "oncelog_share_partition_acquired_records"
IN_FLIGHT = "kafka_server_sharepartitionmetrics_inflightmessagecount"
DELIVERIES, TIMEOUTS = "oncelog_share_deliveries_total", "oncelog_share_lock_timeouts_total"
USED_UP = "oncelog_share_records_used_up_total"
SAMPLE = re.compile(r"^(\w+)(\{[^}]*\})? (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"http.listener": "0", "group.share.min.record.lock.duration.ms": "500"}
    with BrokerProcess(tmp_path_factory.mktemp("metrics") / "data", settings) as process:
        yield process


def values(broker: BrokerProcess) -> dict[str, float]:
    """Return the value of each sample, by its name with its labels as text."""
    match = re.search(r"http on (\S+?)\)", broker.start_line)
    assert match, broker.start_line
    with urllib.request.urlopen(f"http://{match[1]}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert told(text)
    return {name + labels: float(value) for name, labels, value in SAMPLE.findall(text)}


def until(broker: BrokerProcess, expected: dict[str, float]) -> None:
    """Wait until these samples have these values; metrics may be slightly old."""
    found: dict[str, float | None] = {}

    def is_so() -> bool:
        present = values(broker)
        found.update({name: present.get(name) for name in expected})
        return found == expected

    try:
        eventually(is_so, "the metrics")
    except AssertionError:
        assert found == expected


def write(broker: BrokerProcess, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(60) == 0


def test_what_happens_to_records_is_counted(broker: BrokerProcess, topic: str, group: str) -> None:
    write(broker, topic, 10)
    of_partition = f'{{group="{group}",partition="0",topic="{topic}"}}'
    before = values(broker)

    def more(name: str, count: int) -> dict[str, float]:
        return {name: before[name] + count}

    first, repeated = f'{DELIVERIES}{{attempt="first"}}', f'{DELIVERIES}{{attempt="repeated"}}'
    with sharing(broker.address, topic, group, 10, share_delivery_count_limit="2") as member:
        until(broker, {LAG + of_partition: 10, ACQUIRED + of_partition: 10, IN_FLIGHT + of_partition: 10})
        until(broker, more(first, 10) | more(repeated, 0))
        for number, message in enumerate(member.records):
            kinds = {8: AcknowledgeType.REJECT, 9: AcknowledgeType.RELEASE}
            member.consumer.acknowledge(message, kinds.get(number, AcknowledgeType.ACCEPT))
        member.consumer.commit_sync(60)
        until(broker, {LAG + of_partition: 1} | more(f'{ACKED}{{ackType="Accept"}}', 8))
        until(broker, more(f'{ACKED}{{ackType="Reject"}}', 1) | more(f'{ACKED}{{ackType="Release"}}', 1))
        member.until_it_got(11)
        until(broker, {ACQUIRED + of_partition: 1} | more(first, 10) | more(repeated, 1) | more(USED_UP, 0))
        member.consumer.acknowledge(member.records[-1], AcknowledgeType.RELEASE)
        member.consumer.commit_sync(60)
        until(broker, {LAG + of_partition: 0, IN_FLIGHT + of_partition: 0} | more(USED_UP, 1))


def test_an_expired_lock_is_counted(broker: BrokerProcess, topic: str, group: str) -> None:
    write(broker, topic, 3)
    before = values(broker)[TIMEOUTS]
    of_partition = f'{{group="{group}",partition="0",topic="{topic}"}}'
    with sharing(broker.address, topic, group, 3, share_record_lock_duration_ms="500"):
        until(broker, {TIMEOUTS: before + 3, ACQUIRED + of_partition: 0, LAG + of_partition: 3})
