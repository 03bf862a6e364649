"""Topics are adopted from their logs, with their partitions and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.support.storage import make_batch

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.internal_topics import needed_settings
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.founding import FoundLogs, FoundTopic
from oncelog_broker.metadata.membership.registration import register_broker
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.payloads import BrokerRegistration, parse_config
from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.replication import startup_logs as module
from oncelog_broker.replication.older_store import adopt_unknown
from oncelog_broker.replication.startup_logs import KEEP_ALL, found_logs, found_topics
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk

TOPIC_ID = bytes([7]) * 16


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = LogManager.open([tmp_path / "data"], node_id=1, cluster_id="c", disk=RealDisk(), clock=ManualClock())
    yield manager
    manager.close()


def make(logs: LogManager, topic: str, *partitions: int, epoch: int = 4) -> None:
    wanted = [WantedLog(topic, partition, TOPIC_ID, LogConfig()) for partition in partitions]
    opening = logs.begin_opening(wanted)
    opening.run()
    for log in logs.finish_opening(opening):
        log.append_as_leader(bytearray(make_batch(b"x")), leader_epoch=epoch)  # type: ignore[union-attr]


def found(logs: LogManager, **known: Mapping[str, str]) -> dict[str, FoundTopic]:
    """Return the topics that the logs show; `known` are settings from Apache Kafka's metadata log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "read_topics", lambda disk, directory: known)
        topics = found_topics(logs, ["x"], RealDisk(), lambda name: needed_settings(name, BrokerConfig.of({})))
    return {topic.name: topic for topic in topics}


def test_s72_a_topic_whose_settings_are_lost_keeps_its_records(logs: LogManager) -> None:
    make(logs, "orders", 0, 1)
    assert found(logs)["orders"].config == KEEP_ALL == {"retention.ms": "-1", "retention.bytes": "-1"}


def test_s72_a_topic_whose_settings_are_known_keeps_exactly_these(logs: LogManager) -> None:
    for name in ("none", "some", "unlisted"):
        make(logs, name, 0)
    topics = found(logs, none={}, some={"cleanup.policy": "compact"})
    assert topics["none"].config == {}
    assert topics["some"].config == {"cleanup.policy": "compact"}
    assert topics["unlisted"].config == KEEP_ALL


def test_s72_internal_topics_have_what_their_coordinators_need(logs: LogManager) -> None:
    make(logs, "__consumer_offsets", 0)
    make(logs, "__transaction_state", 0)
    topics = found(logs)
    for topic in topics.values():
        assert topic.config["cleanup.policy"] == "compact"
        assert "retention.ms" not in topic.config
    assert topics["__transaction_state"].config["unclean.leader.election.enable"] == "false"
    assert topics["__transaction_state"].config["min.insync.replicas"] == "1", "it has one replica"
    known = found(logs, __consumer_offsets={"segment.bytes": "1048576"})["__consumer_offsets"]
    assert (known.config["segment.bytes"], known.config["cleanup.policy"]) == ("1048576", "compact")


def test_partitions_that_are_missing_begin_empty_and_are_named(
    logs: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    make(logs, "orders", 1, 3)
    assert found(logs)["orders"].leader_epochs == {0: -1, 1: 4, 2: -1, 3: 4}
    (said,) = caplog.records
    assert (said.topic, said.partitions) == ("orders", "0,2")  # type: ignore[attr-defined]


def test_a_number_that_no_partition_has_makes_no_partitions(logs: LogManager) -> None:
    make(logs, "orders", 0, 2_000_000_000)
    assert found(logs)["orders"].leader_epochs == {0: 4, 2_000_000_000: 4}


def test_a_log_that_cannot_be_opened_is_taken_over_and_stays_offline(tmp_path: Path) -> None:
    def reopened() -> LogManager:
        return LogManager.open([tmp_path / "data"], node_id=1, cluster_id="c", disk=RealDisk(), clock=ManualClock())

    logs = reopened()
    make(logs, "orders", 0, 1)
    make(logs, "alone", 0)
    logs.close()
    for name in ("orders-1", "alone-0"):
        (tmp_path / "data" / name / f"{0:020d}.log").write_bytes(b"")
    logs = reopened()
    assert len(logs.failures) == 2
    topics = found(logs)
    assert topics["orders"].leader_epochs == {0: 4, 1: -1}
    assert topics["orders"].topic_id == TOPIC_ID
    assert topics["alone"].leader_epochs == {0: -1}
    logs.close()


def test_epochs_leap_only_where_the_cluster_had_other_members(logs: LogManager) -> None:
    make(logs, "orders", 0)
    assert found_logs(logs, [], RealDisk()).epoch_leap == 0
    assert found_logs(logs, [], RealDisk(), is_refounded=True).epoch_leap == 1000


async def test_s71_an_older_store_learns_of_topics_and_partitions_that_have_logs(
    embedded_store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    known = (FoundTopic("grown", {0: 1}, TOPIC_ID), FoundTopic("another", {0: 1}, bytes([8]) * 16))
    await register_broker(embedded_store, 1, BrokerRegistration(()), lambda: FoundLogs("c", known))
    found = [
        FoundTopic("grown", {0: 5, 1: 6, 2: 7}, TOPIC_ID),
        FoundTopic("another", {0: 1, 1: 2}, TOPIC_ID),
        FoundTopic("new", {0: 3}, TOPIC_ID, KEEP_ALL),
    ]
    for _ in range(2):  # a repeated start, after an interrupted one, has the same result
        await adopt_unknown(embedded_store, found, 1)
    image = await reader.read_image(embedded_store)
    assert [image.partition("grown", each).leader_epoch for each in range(3)] == [1, 6, 7]
    assert list(image.topics["another"].partitions) == [0], "another topic of that name"
    assert image.partition("new", 0).leader_epoch == 3
    settings = paths.topic_config("new")
    assert parse_config((await embedded_store.get(settings))[0], settings) == KEEP_ALL
    assert (await embedded_store.get(paths.topic("new")))[1].version == 0
    (said,) = caplog.records
    assert (said.count, said.topics) == (2, "grown,new")  # type: ignore[attr-defined]
