"""Tests that all brokers go down and some return with shorter logs: of the logs that can be opened, the most complete
one leads.
"""

from __future__ import annotations

import json
import os

from final_state import settle_and_check
from foreign_clients import eventually
from raw_client import produce_request
from replicated_cluster import BROKERS, WAIT_SECONDS, ReplicatedCluster
from tests.support.storage import make_batch

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.incarnation import SESSION_FILE
from oncelog_protocol.api import ApiKey
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

RECORDS = 6


def write_to_all(cluster: ReplicatedCluster, history: History, place: Place) -> None:
    leader = cluster.until_led(place.topic).leader
    with cluster.client(leader, 60) as client:
        for number in range(RECORDS):
            value = b"raw/%d" % number
            send = history.send("raw", place, value)
            answer = client.call(produce_request(*place, make_batch(value), -1), ApiKey.PRODUCE, 9)
            (answered,) = answer.responses[0].partition_responses
            assert answered.error_code == 0, answered
            history.acknowledged(send, answered.base_offset)


def kill_all_until_nobody_is_registered(cluster: ReplicatedCluster, topic: str) -> None:
    assert cluster.isr_in_store(topic, 0) == set(BROKERS)
    cluster.kill(*BROKERS)
    store = cluster._store
    assert store is not None
    eventually(lambda: not store.get_children(paths.BROKER_IDS), "their sessions are over", WAIT_SECONDS)


def cut(cluster: ReplicatedCluster, broker: int, topic: str, kept: int) -> None:
    """Cut the log so that `kept` of its records remain; all records have the same size."""
    (segment,) = (cluster.brokers[broker].data / f"{topic}-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size * kept // RECORDS)


def lose_power(cluster: ReplicatedCluster, broker: int) -> None:
    """Change the recorded boot of the broker's last run to an earlier boot, as after a power cut."""
    trace = cluster.brokers[broker].data / SESSION_FILE
    trace.write_text(json.dumps({**json.loads(trace.read_text()), "boot": "another one"}))


def test_s80_a_single_unopenable_log_costs_no_record(cluster: ReplicatedCluster, history: History, topic: str) -> None:
    """The first broker to return cannot open its log and therefore cannot lead; the other brokers lose neither records
    nor their places in the ISR.
    """
    cluster.create_topic(topic, (1, 2, 3))
    write_to_all(cluster, history, Place(topic))
    kill_all_until_nobody_is_registered(cluster, topic)
    identity = cluster.brokers[1].data / f"{topic}-0" / "partition.metadata"
    content = identity.read_text()
    identity.write_text("not what it was")
    cluster.start(1)
    cluster.until(lambda: cluster.part(topic).leader == -1, "broker 1 has nothing to lead with")
    cluster.start(2, 3)
    led = cluster.until_led(topic, but_by=1)
    assert 1 not in led.isr
    identity.write_text(content)
    settle_and_check(cluster, history, topic)


def test_s81_all_lose_their_power_and_the_one_with_the_most_leads(
    cluster: ReplicatedCluster, history: History, topic: str
) -> None:
    cluster.create_topic(topic, (1, 2, 3))
    write_to_all(cluster, history, Place(topic))
    kill_all_until_nobody_is_registered(cluster, topic)
    for broker, kept in ((1, 2), (2, RECORDS), (3, 4)):
        lose_power(cluster, broker)
        cut(cluster, broker, topic, kept)
    cluster.start(1)  # broker 1 would otherwise lead, because it is also the preferred leader
    cluster.start(3, 2)
    assert cluster.until_led(topic).leader == 2
    settle_and_check(cluster, history, topic)
