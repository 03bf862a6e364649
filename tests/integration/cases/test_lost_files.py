"""Tests files that vanish from a data directory: the broker starts, and reports which partitions have lost records."""

from __future__ import annotations

import shutil

import pytest
from broker_process import BrokerFactory
from foreign_clients import eventually
from raw_client import PRODUCE_VERSION, RawClient, produce_request

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.list_offsets import EARLIEST_TIMESTAMP
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record


def produce(client: RawClient, topic: str) -> ErrorCode:
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"v" * 200, [])], compression=Compression.NONE)
    answer = client.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.usefixtures("in_a_file")
def test_s71_logs_that_an_older_metadata_store_does_not_know_are_served_again(broker_factory: BrokerFactory) -> None:
    with broker_factory({"log.retention.check.interval.ms": "100"}) as broker:
        with RawClient(broker.port) as client:
            client.create_topic("old")
        assert broker.stop() == 0
        metadata = broker.data / "metadata.db"
        older = metadata.read_bytes()
        broker.start()
        with RawClient(broker.port) as client:
            client.create_topic("new", retention_ms="-1")
            # retention is off, because the record's timestamp is in 2023
            assert produce(client, "new") is ErrorCode.NONE
        assert broker.stop() == 0
        metadata.write_bytes(older)
        broker.start()
        said = broker.log.read_text()
        assert f"the metadata store at {metadata} is older than {broker.data}" in said
        assert "were restored from their logs" in said
        assert "count=1 topics=new" in said
        with RawClient(broker.port) as client:
            assert produce(client, "new") is ErrorCode.NONE
            assert client.list_offset("new", 0)[0] == 2
            assert client.list_offset("new", 0, EARLIEST_TIMESTAMP)[0] == 0
        assert not list(broker.data.glob("*-stray"))
        assert broker.stop() == 0
        broker.start()
        assert broker.log.read_text().count(f"{metadata} is older than") == 1, "it is so once"


def test_a_log_that_lost_records_stays_offline_and_the_rest_is_served(broker_factory: BrokerFactory) -> None:
    with broker_factory({"log.segment.bytes": "1000"}) as broker:
        with RawClient(broker.port) as client:
            for topic in ("directory", "segment", "whole"):
                client.create_topic(topic)
                for _ in range(10):
                    assert produce(client, topic) is ErrorCode.NONE
        assert broker.stop() == 0
        shutil.rmtree(broker.data / "directory-0")
        (broker.data / "segment-0" / f"{0:020d}.log").write_bytes(b"")
        broker.start()
        with RawClient(broker.port) as client:
            assert produce(client, "directory") is ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(client, "segment") is ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(client, "whole") is ErrorCode.NONE
        for said in (
            "directory-0 is missing, but the checkpoints show that it had records up to offset 10",
            "00000000000000000000.log is empty: its records, from offset 0 to before",
        ):
            eventually(lambda said=said: said in broker.log.read_text(), said)
        assert not (broker.data / "directory-0").exists()
